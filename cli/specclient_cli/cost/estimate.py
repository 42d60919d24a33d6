"""Turn a file of prompts into what sending it may cost: ``specclient cost estimate``."""

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
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost.prompt_file import PromptRequest, read_prompt_file

if TYPE_CHECKING:
    from specclient.ledger.row import LedgerRow
    from specclient.prices.estimate import CostEstimate, LengthRange
    from specclient.prices.prices import Prices
    from specclient.routing.destinations import Destination
    from specclient.routing.learn.ledger_forecast import LedgerForecast
    from specclient.tokens import TokenCount

#: How far back, and how many calls in all, are read from the ledger.
_MEMORY, _ROWS = timedelta(days=30), 10_000


@click.command(name="estimate")
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
@options.model_option
@click.option("--max-tokens", type=click.IntRange(min=0), help="Most tokens that an answer may take.")
@options.json_option
@pass_state
def estimate(state: State, file: Path, *, model: str | None, max_tokens: int | None, as_json: bool) -> None:
    """Tell what prompts may cost before they are sent. Nothing is sent.

    FILE is a text, a chat or request as JSON, or a batch as JSONL; '-' reads standard input. A request that
    names its own model is estimated for that one, unless -m names another. Prices are those of single calls,
    now.

    The range is that of answers as short and as long as all but one in ten have been with the model; with
    fewer than 10 calls of it in the ledger of the last 30 days, it takes in 32 to 1024 tokens.

    \b
    Examples:
      specclient cost estimate prompt.txt -m openai/gpt-4.1
      specclient cost estimate batch.jsonl -m openai/gpt-4.1-mini
      specclient cost estimate - -m anthropic/claude-haiku-4-5 --json < chat.json

    Environment: SPECCLIENT_MODEL, SPECCLIENT_LEDGER, SPECCLIENT_CONFIG, TIKTOKEN_CACHE_DIR.
    """
    asked = read_prompt_file(_text(file))
    if not asked:
        raise click.UsageError(f"{file} holds no request.")
    desk = _CostEstimator(state)
    default = model or desk.settings.default_model
    estimates = [desk.estimate(each, model or each.model or default, max_tokens) for each in asked]
    whole: CostEstimate = reduce(add, (each for _, each in estimates))
    if as_json:
        click.echo(json.dumps(_values(whole, desk, max_tokens)))
    else:
        _show(whole, desk)


def _text(file: Path) -> str:
    """Read a file or standard input.

    Raises:
        click.UsageError: what cannot be read.
    """
    if str(file) == "-":
        return options.text_of("-")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is no UTF-8 text; convert it, with iconv for instance.") from None
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror or error}.") from None


@dataclass(frozen=True, slots=True)
class _PricedModel:
    """A model as the requests of a file meet it.

    Attributes:
        route: ``provider/model``.
        lengths: of its answers.
        source: where its price is known from.
        price: of a prompt's and an answer's tokens.
    """

    route: str
    name: str
    place: Destination
    lengths: LengthRange
    source: str
    price: Callable[[int, int], Decimal | None]


class _CostEstimator:
    """Knows models, prices and earlier answers for the requests of one file."""

    def __init__(self, state: State) -> None:
        from specclient.prices.prices import Prices  # noqa: PLC0415 - loads when it is needed

        self._client = state.parts()
        self.settings = self._client.settings
        self._prices: Prices = Prices(self.settings)
        self._places = self._client.pipeline.destinations
        self._rows = self._earlier()
        self.models: dict[str, _PricedModel] = {}

    def estimate(
        self, asked: PromptRequest, model: str, most: int | None
    ) -> tuple[_PricedModel, CostEstimate]:
        from specclient.prices import estimate  # noqa: PLC0415 - as above

        found = self._model(model)
        limits = [each for each in (asked.most, most) if each is not None]
        lengths = found.lengths.limited(min(limits, default=None)).times(asked.answers)
        if asked.request.operation == "embedding":
            lengths = lengths.times(0)
        return found, estimate.estimate(self._count(asked, found), lengths, found.price)

    def _count(self, asked: PromptRequest, found: _PricedModel) -> TokenCount:
        from specclient.tokens import TokenCount, count_prompt  # noqa: PLC0415 - as above

        if isinstance(found.place, SupportsTokenCount):
            tokens = found.place.count(asked.request, found.name)
            if tokens is not None:
                return TokenCount(tokens)
        return count_prompt(asked.request, found.name)

    def _model(self, model: str) -> _PricedModel:
        if model == options.AUTO:
            raise click.UsageError("'auto' chooses a model for each call; name one with -m to estimate it.")
        if model not in self.models:
            self.models[model] = self._look_up(model)
        return self.models[model]

    def _look_up(self, model: str) -> _PricedModel:
        from specclient.prices.estimate import expected_length  # noqa: PLC0415 - as above
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
        """Return finished calls; a ledger that cannot be read is told, and is none."""
        try:
            rows = self._client.ledger.rows(since=datetime.now(UTC) - _MEMORY, limit=_ROWS)
        except LedgerError as error:
            render.print_paragraph(f"without earlier calls: {error}", to=render.console(stderr=True))
            return []
        return [row for row in rows if row.status == "ok" and row.completion_tokens]


def _values(whole: CostEstimate, desk: _CostEstimator, most: int | None) -> dict[str, Any]:
    def money(value: Decimal | None) -> str | None:
        return None if value is None else f"{value:f}"

    low, likely, high = (getattr(whole.cost, end) for end in ("low", "likely", "high"))
    completion = whole.completion
    return {
        "models": [
            {"model": each.route, "source": each.source, "earlier_calls": each.lengths.evidence}
            for each in desk.models.values()
        ],
        "calls": whole.calls,
        "max_tokens": most,
        "prompt_tokens": whole.prompt.tokens,
        "prompt_tokens_estimated": whole.prompt.estimated,
        "completion_tokens": {
            "low": completion.low,
            "likely": completion.likely,
            "high": completion.high,
        },
        "cost": {"low": money(low), "likely": money(likely), "high": money(high)},
    }


def _show(whole: CostEstimate, desk: _CostEstimator) -> None:
    prompt = f"{'~' if whole.prompt.estimated else ''}{whole.prompt.tokens:,}"
    ends = ("low", "likely", "high")
    columns = [render.TableColumn(""), *(render.TableColumn(end, right=True) for end in ends)]
    spent = [getattr(whole.cost, end) for end in ends]
    lines = [
        render.TableRow(["prompt tokens", prompt, prompt, prompt]),
        render.TableRow(["answer tokens", *(f"{getattr(whole.completion, end):,}" for end in ends)]),
        render.TableRow(
            ["cost", *(render.UNKNOWN if each is None else format_dollars(each) for each in spent)],
            style="bold",
        ),
    ]
    render.print_paragraph(f"{whole.calls} call{'' if whole.calls == 1 else 's'}")
    render.print_table(columns, lines)
    for each in desk.models.values():
        evidence = each.lengths.evidence
        known = f"answers as {evidence} earlier ones" if evidence else "answers as assumed, none is known"
        render.print_paragraph(f"{each.route}: {each.source}; {known}", render.DIM)
    if whole.prompt.estimated:
        render.print_paragraph("~ counted without the model's own tokenizer or frame", render.DIM)
