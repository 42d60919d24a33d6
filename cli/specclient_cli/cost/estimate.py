"""``specclient cost estimate``: the expected cost of prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import LedgerError
from specclient.providers import Endpoint
from specclient.runtime.number_format import format_dollars
from specclient.types.backend import SupportsTokenCount
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost.prompt_file import PromptRequest, read_prompt_file

if TYPE_CHECKING:
    from specclient.ledger.row import LedgerRow
    from specclient.prices.estimate import CostEstimate, LengthRange
    from specclient.prices.prices import Prices
    from specclient.routing.destinations import Destination
    from specclient.routing.learn.ledger_forecast import LedgerForecast
    from specclient.tokens import TokenCount

#: Age and number of the calls that are read from the ledger.
_MEMORY, _ROWS = timedelta(days=30), 10_000


@click.command(name="estimate")
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
@options.model_option
@click.option("--max-tokens", type=click.IntRange(min=0), help="Maximum tokens of an answer.")
@options.json_option
@pass_state
def command(state: State, file: Path, *, model: str | None, max_tokens: int | None, as_json: bool) -> None:
    """Estimate the cost of prompts before they are sent.

    Nothing is sent. FILE is a text, a chat or request as JSON, or a batch as JSONL; '-' reads standard input.
    A request that names a model is estimated for that model, unless -m is given. Prices are the current ones
    of single calls.

    The range goes from the 10th to the 90th percentile of the lengths of earlier answers of the model. With
    fewer than 10 calls in the last 30 days, it goes from 32 to 1024 tokens.

    \b
    Examples:
      specclient cost estimate prompt.txt -m openai/gpt-4.1
      specclient cost estimate batch.jsonl -m openai/gpt-4.1-mini
      specclient cost estimate - -m anthropic/claude-haiku-4-5 --json < chat.json

    Environment: SPECCLIENT_MODEL, SPECCLIENT_LEDGER, SPECCLIENT_CONFIG, TIKTOKEN_CACHE_DIR.
    """
    requests = read_prompt_file(_text(file))
    if not requests:
        raise click.UsageError(f"{file} contains no request.")
    estimator = _CostEstimator(state)
    default = model or estimator.settings.default_model
    estimates = [estimator.estimate(each, model or each.model or default, max_tokens) for each in requests]
    total: CostEstimate = reduce(add, (each for _, each in estimates))
    if as_json:
        click.echo(json.dumps(_values(total, estimator, max_tokens)))
    else:
        _show(total, estimator)


def _text(file: Path) -> str:
    """Read a file or standard input.

    Raises:
        click.UsageError: it cannot be read.
    """
    if str(file) == "-":
        return options.text_of("-")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is not UTF-8 text; convert it, for example with iconv.") from None
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror or error}.") from None


@dataclass(frozen=True, slots=True)
class _PricedModel:
    """A model with its price and the lengths of its earlier answers.

    Attributes:
        route: ``provider/model``.
        name: ``model``.
        place: the endpoint or engine that serves it.
        lengths: the expected lengths of answers, in tokens.
        source: source of its price.
        price: returns dollars for the numbers of prompt and answer tokens; None if unknown.
    """

    route: str
    name: str
    place: Destination
    lengths: LengthRange
    source: str
    price: Callable[[int, int], Decimal | None]


class _CostEstimator:
    """Estimates the requests of one file; looks each model up once."""

    def __init__(self, state: State) -> None:
        from specclient.prices.prices import Prices  # noqa: PLC0415 - slow to import

        self._client = state.async_client()
        self.settings = self._client.settings
        self._prices: Prices = Prices(self.settings)
        self._places = self._client.pipeline.destinations
        self._rows = self._earlier()
        self.models: dict[str, _PricedModel] = {}

    def estimate(
        self, request: PromptRequest, model: str, most: int | None
    ) -> tuple[_PricedModel, CostEstimate]:
        from specclient.prices import estimate  # noqa: PLC0415

        found = self._model(model)
        limits = [each for each in (request.most, most) if each is not None]
        lengths = found.lengths.limited(min(limits, default=None)).times(request.answers)
        if request.request.operation == "embedding":
            lengths = lengths.times(0)
        return found, estimate.estimate(self._count(request, found), lengths, found.price)

    def _count(self, request: PromptRequest, found: _PricedModel) -> TokenCount:
        from specclient.tokens import TokenCount, count_prompt  # noqa: PLC0415

        if isinstance(found.place, SupportsTokenCount):
            tokens = found.place.count(request.request, found.name)
            if tokens is not None:
                return TokenCount(tokens)
        return count_prompt(request.request, found.name)

    def _model(self, model: str) -> _PricedModel:
        if self._places.resolve(model) == parameter_types.AUTO:
            raise click.UsageError(
                "'auto' chooses a model for each call; give one with -m to estimate its cost."
            )
        if model not in self.models:
            self.models[model] = self._look_up(model)
        return self.models[model]

    def _look_up(self, model: str) -> _PricedModel:
        from specclient.prices.estimate import expected_length  # noqa: PLC0415
        from specclient.routing.learn.ledger_forecast import forecast  # noqa: PLC0415
        from specclient.routing.learn.priors import PRIORS  # noqa: PLC0415

        provider, name = self._places.split(model)
        place = self._places.get(provider)
        listed = place.price_provider if isinstance(place, Endpoint) else None
        route = f"{provider}/{name}"
        rows = [row for row in self._rows if row.route == route]
        quote = self._prices.quote(provider, name, price_provider=listed)

        @cache
        def taking(completion: int) -> LedgerForecast:
            return forecast(rows, length=completion, prior=PRIORS.get(route))

        def price(prompt: int, completion: int) -> Decimal | None:
            taken = taking(completion)
            return self._prices.predict(
                prompt,
                completion,
                provider,
                name,
                price_provider=listed,
                engine_s=taken.engine_s,
                latency_s=taken.latency_s,
            )

        source = f'no price; set [prices."{route}"] in specclient.toml' if quote is None else quote.source
        lengths = expected_length([row.completion_tokens for row in rows if row.completion_tokens])
        return _PricedModel(route, name, place, lengths, source, price)

    def _earlier(self) -> list[LedgerRow]:
        """Return earlier calls; without them, print why the ledger cannot be read."""
        try:
            rows = self._client.ledger.rows(since=datetime.now(UTC) - _MEMORY, limit=_ROWS)
        except LedgerError as error:
            render.print_paragraph(f"without earlier calls: {error}", to=render.console(stderr=True))
            return []
        return [row for row in rows if row.status == "ok" and row.completion_tokens]


def _values(total: CostEstimate, estimator: _CostEstimator, most: int | None) -> dict[str, Any]:
    def money(value: Decimal | None) -> str | None:
        return None if value is None else f"{value:f}"

    low, likely, high = (getattr(total.cost, end) for end in ("low", "likely", "high"))
    completion = total.completion
    return {
        "models": [
            {"model": each.route, "source": each.source, "earlier_calls": each.lengths.evidence}
            for each in estimator.models.values()
        ],
        "calls": total.calls,
        "max_tokens": most,
        "prompt_tokens": total.prompt.tokens,
        "prompt_tokens_estimated": total.prompt.estimated,
        "completion_tokens": {
            "low": completion.low,
            "likely": completion.likely,
            "high": completion.high,
        },
        "cost": {"low": money(low), "likely": money(likely), "high": money(high)},
    }


def _show(total: CostEstimate, estimator: _CostEstimator) -> None:
    prompt = f"{'~' if total.prompt.estimated else ''}{total.prompt.tokens:,}"
    ends = ("low", "likely", "high")
    columns = [render.TableColumn(""), *(render.TableColumn(end, right=True) for end in ends)]
    spent = [getattr(total.cost, end) for end in ends]
    lines = [
        render.TableRow(["prompt tokens", prompt, prompt, prompt]),
        render.TableRow(["answer tokens", *(f"{getattr(total.completion, end):,}" for end in ends)]),
        render.TableRow(
            ["cost", *(render.UNKNOWN if each is None else format_dollars(each) for each in spent)],
            style="bold",
        ),
    ]
    render.print_paragraph(f"{total.calls} call{'' if total.calls == 1 else 's'}")
    render.print_table(columns, lines)
    for each in estimator.models.values():
        evidence = each.lengths.evidence
        known = (
            f"answer lengths of {evidence} earlier calls"
            if evidence
            else "assumed answer lengths; there are no earlier calls"
        )
        render.print_paragraph(f"{each.route}: {each.source}; {known}", render.DIM)
    if total.prompt.estimated:
        render.print_paragraph("~ counted without the model's own tokenizer or chat template", render.DIM)
