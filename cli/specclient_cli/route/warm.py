"""``specclient route warm``: measure the candidates with a few cheap calls."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from specclient.errors import ConfigurationError, OpenAIError
from specclient.providers import Endpoint
from specclient.routing.learn.call_sample import WARM_UP_TAG
from specclient.runtime.number_format import format_dollars, format_duration
from specclient.types.call import Call
from specclient_cli.common import calls, options, parameter_types, render
from specclient_cli.common.errors import describe
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient.client.sync_client import OpenAI
    from specclient.prices.prices import Prices

_COLUMNS = (
    render.TableColumn("route"),
    render.TableColumn("calls", right=True),
    render.TableColumn("ttft", right=True, rank=1),
    render.TableColumn("long prompt", right=True, rank=2),
    render.TableColumn("tokens/s", right=True, rank=1),
    render.TableColumn("cost", right=True, rank=1),
)
_QUESTION = "Count from one to forty in words, separated by commas."
_SENTENCE = "The committee read the report of the harbour master and asked for the figures of last year. "
#: Bytes of a prompt per token: of the estimate that makes a prompt long, and of the bound on its cost.
_BYTES_PER_TOKEN, _FEWEST_BYTES = 4.0, 2.0


@dataclass(slots=True)
class WarmedRoute:
    """The measurements of one route.

    Attributes:
        calls: the number of answers.
        ttft_s: seconds to the first token of a short prompt, the least of all calls; None without any.
        long_ttft_s: of a long prompt.
        tokens_per_s: after the first token, the greatest of all calls.
        cost: dollars of all calls; None if a price is unknown.
        skipped: why no further call was made; empty if all were.
    """

    route: str
    calls: int = 0
    ttft_s: float | None = None
    long_ttft_s: float | None = None
    tokens_per_s: float | None = None
    cost: Decimal | None = Decimal(0)
    skipped: str = ""

    def note(self, call: Call, *, long: bool) -> None:
        """Add the record of an answer."""
        self.calls += 1
        spent = call.cost.total
        self.cost = None if self.cost is None or spent is None else self.cost + spent
        first, tokens = call.ttft_s, call.usage.completion
        if first is None:
            return
        if long:
            self.long_ttft_s = first if self.long_ttft_s is None else min(first, self.long_ttft_s)
        else:
            self.ttft_s = first if self.ttft_s is None else min(first, self.ttft_s)
        if tokens and call.latency_s > first:
            self.tokens_per_s = max(tokens / (call.latency_s - first), self.tokens_per_s or 0.0)


@click.command(name="warm")
@click.argument("routes", nargs=-1, type=parameter_types.ModelName(), metavar="[ROUTES]...")
@click.option(
    "--budget",
    type=parameter_types.DollarAmount(above_zero=True),
    default="0.01",
    show_default=True,
    help="The most dollars that all calls together may cost, by the upper bound of each.",
)
@click.option(
    "--calls",
    "count",
    type=click.IntRange(1, 20),
    default=2,
    show_default=True,
    help="Calls of each route; every second one has a long prompt.",
)
@click.option(
    "--max-tokens", type=click.IntRange(8, 1024), default=48, show_default=True, help="Tokens of an answer."
)
@click.option(
    "--long-prompt",
    type=click.IntRange(100, 100_000),
    default=2000,
    show_default=True,
    help="Approximate tokens of a long prompt.",
)
@click.option("--unpriced", is_flag=True, help="Also call routes whose price is unknown.")
@options.json_option
@pass_state
def command(  # noqa: PLR0917 - click passes them by name
    state: State,
    /,
    routes: tuple[str, ...],
    budget: Decimal,
    count: int,
    max_tokens: int,
    long_prompt: int,
    unpriced: bool,
    as_json: bool,
) -> None:
    """Measure the candidates with a few cheap calls.

    Without calls in the ledger, 'auto' learns the speed of each candidate from the first calls of your
    program, some of which then go to a candidate that is too slow. This command makes those calls beforehand:
    short answers, streamed, one after the other, in rounds over all routes, and every second round with a
    long prompt. No call is sent whose greatest possible cost exceeds the rest of the budget.

    ROUTES are names PROVIDER/MODEL; by default the configured candidates. The calls are in the ledger with
    the tag "route_warm". Speeds are learned from them, the lengths of answers are not.

    \b
    Examples:
      specclient route warm
      specclient route warm openai/gpt-4.1-mini mine/llama --calls 4
      specclient route warm --budget 0.05 --unpriced --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys.
    """
    from specclient.prices.prices import Prices  # noqa: PLC0415 - slow to import

    settings = state.settings()
    with state.client(settings) as client:
        named = list(dict.fromkeys(routes or settings.candidates))
        session = _WarmUp(client, Prices(settings), named, budget, max_tokens, unpriced=unpriced)
        for number in range(count):
            session.round(long_prompt if number % 2 else 0)
    found = list(session.found.values())
    if as_json:
        values = [{**asdict(each), "cost": None if each.cost is None else str(each.cost)} for each in found]
        click.echo(json.dumps({"routes": values, "spent": str(session.spent)}))
    else:
        render.print_table(_COLUMNS, [_row(each) for each in found])
        render.print_paragraph()
        total = sum(each.calls for each in found)
        render.print_paragraph(f"{total} calls, {format_dollars(session.spent)} of {format_dollars(budget)}")
    if not any(each.calls for each in found):
        raise ConfigurationError(
            "no candidate could be measured; name routes that answer, or raise --budget, or pass --unpriced"
        )


class _WarmUp:
    """Sends the calls of a warm-up.

    Attributes:
        found: the measurements by route, in the given order.
        spent: dollars of all calls; of unpriced ones 0, of failed ones their upper bound.
    """

    def __init__(
        self,
        client: OpenAI,
        prices: Prices,
        routes: Sequence[str],
        budget: Decimal,
        max_tokens: int,
        *,
        unpriced: bool,
    ) -> None:
        self._client, self._prices, self._places = client, prices, client.router.destinations
        self._budget, self._max_tokens, self._unpriced = budget, max_tokens, unpriced
        self.found = {route: WarmedRoute(route, skipped=self._lack(route)) for route in routes}
        self.spent = Decimal(0)

    def round(self, prompt_tokens: int) -> None:
        """Call every usable route once, with a prompt of about so many tokens; 0 for a short one."""
        for each in self.found.values():
            if each.skipped:
                continue
            text = _prompt(prompt_tokens)
            bound = self._bound(each.route, text)
            if bound is None and not self._unpriced:
                each.skipped = "its price is unknown; set it under [prices], or pass --unpriced"
                continue
            if self.spent + (bound or 0) > self._budget:
                each.skipped = f"a further call may cost {format_dollars(bound or Decimal(0))}, over --budget"
                continue
            self._call(each, text, bound or Decimal(0), long=prompt_tokens > 0)

    def _call(self, each: WarmedRoute, text: str, bound: Decimal, *, long: bool) -> None:
        form = calls.prompt_form(each.route)
        params = {**calls.prompt_params(form, text), "max_tokens": self._max_tokens}
        ask = calls.PromptCall(each.route, form, params, tags={WARM_UP_TAG: "1"})
        try:
            stream = calls.stream_call(self._client, ask)
            with stream:
                for _ in stream:
                    pass
        except OpenAIError as error:
            each.skipped = describe(error)
            self.spent += bound
            return
        each.note(stream.meta, long=long)
        spent = stream.meta.cost.total
        self.spent += bound if spent is None else spent

    def _lack(self, route: str) -> str:
        """Return why a route cannot be called, an empty text if it can."""
        if self._places.resolve(route) == parameter_types.AUTO:
            return "auto stands for several models; name them"
        try:
            place = self._places.of_model(*self._places.split(route))
        except OpenAIError as error:
            return describe(error)
        return (place.lacks or "") if isinstance(place, Endpoint) else ""

    def _bound(self, route: str, text: str) -> Decimal | None:
        """Return the most dollars that a call can cost, 0 for engines in this process; None where unknown."""
        provider, model = self._places.split(route)
        place = self._places.of_model(provider, model)
        if not isinstance(place, Endpoint):
            return Decimal(0)
        tokens = int(len(text.encode()) / _FEWEST_BYTES) + 100
        return self._prices.predict(
            tokens, self._max_tokens, provider, model, price_provider=place.price_provider
        )


def _prompt(tokens: int) -> str:
    """Return a prompt of about so many tokens. It begins like no other one, so no cache holds it."""
    size = int(tokens * _BYTES_PER_TOKEN)
    filler = "".join(_sentences(size))
    return f"Measurement {secrets.token_hex(4)}. {filler}{_QUESTION}"


def _sentences(size: int) -> Iterator[str]:
    while size > 0:
        yield _SENTENCE
        size -= len(_SENTENCE)


def _row(each: WarmedRoute) -> render.TableRow:
    def seconds(value: float | None) -> str:
        return render.UNKNOWN if value is None else format_duration(value)

    cells: list[Any] = [
        each.route,
        str(each.calls),
        seconds(each.ttft_s),
        seconds(each.long_ttft_s),
        render.UNKNOWN if each.tokens_per_s is None else f"{each.tokens_per_s:.3g}",
        render.UNKNOWN if each.cost is None else format_dollars(each.cost),
    ]
    return render.TableRow(
        cells, style=render.DIM if each.skipped and not each.calls else "", note=each.skipped
    )
