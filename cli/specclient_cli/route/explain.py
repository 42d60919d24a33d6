"""``specclient route explain``: what 'auto' would choose for a prompt, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import click

from specclient.errors import NoRouteError
from specclient.runtime.number_format import format_dollars, format_duration
from specclient.types import inference_methods
from specclient.types.criterion import CRITERIA, Criterion
from specclient.types.policy import Policy
from specclient.types.request import Request
from specclient.types.route import Candidate, Decision
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.call_format import decision_values
from specclient_cli.common.state import State, pass_state

_COLUMNS = (
    render.TableColumn("route"),
    render.TableColumn("verdict"),
    render.TableColumn("cost", right=True, rank=1),
    render.TableColumn("(range)", right=True, rank=6),
    render.TableColumn("latency", right=True, rank=1),
    render.TableColumn("(interval)", right=True, rank=4),
    render.TableColumn("ttft", right=True, rank=3),
    render.TableColumn("accepted", right=True, rank=5),
    render.TableColumn("depth", right=True, rank=5),
    render.TableColumn("quality", right=True, rank=6),
)
#: After the columns of the criteria that have no fields of their own.
_LAST_COLUMN = render.TableColumn("calls", right=True, rank=3)
_STYLES = {"chosen": render.GOOD, "left": "", "refused": render.DIM, "unavailable": render.DIM}


@click.command(name="explain")
@click.argument("prompt")
@options.policy_options
@click.option(
    "-m",
    "--model",
    type=parameter_types.ModelName(),
    help="Show where this name is served, an alias or a name without a provider for example, instead of what "
    "'auto' chooses.",
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Maximum tokens that the call would generate.")
@options.json_option
@pass_state
def command(
    state: State, /, prompt: str, model: str | None, max_tokens: int | None, as_json: bool, **given: Any
) -> None:
    """Show which route 'auto' would choose for a prompt, and why.

    Nothing is sent.

    PROMPT is the text, or - to read it from stdin. Cost and latency are predicted from the calls in your
    ledger; 'calls' is their number. 'cost' and 'latency' are medians; '(range)' is the cost of 80 % of
    answers, '(interval)' the latency from the fastest 10 % of calls to the policy's percentile. 'accepted' is
    the share of accepted draft tokens, 'depth' the best number of tokens to draft at a time.

    \b
    Examples:
      specclient route explain "def fibonacci(n):"
      specclient route explain - --minimize latency --max-cost 0.001 < prompt.txt
      specclient route explain "hi" --minimize cost=1,latency=0.002 --max-ttft 1
      specclient route explain "hello" --policy fast --json
      specclient route explain "hello" -m gpt-4o

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys (only whether they are set).
    """
    settings = state.settings()
    policy = options.policy_of(settings, **given)
    text = options.text_of(prompt)
    params: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if max_tokens is not None:
        params["max_tokens"] = max_tokens
    router = state.async_client(settings).router
    named = Request(
        inference_methods.CHAT, options.model_of(settings, model or parameter_types.AUTO, policy), params
    )
    if policy is not None or router.names_auto(named):
        named = replace(named, policy=policy or Policy())
    try:
        chosen = router.decide(named, explore=False)
    except NoRouteError as error:
        if error.decision is not None and error.decision.candidates:
            print_decision(error.decision, as_json=as_json)
            count = len(error.decision.candidates)
            nearest = error.decision.reason.rpartition("\n")[2]
            way_out = nearest if nearest.startswith("nearest") else "relax it, or add candidates"
            raise NoRouteError(f"none of {count} candidates satisfies the policy; {way_out}") from None
        raise
    print_decision(chosen, as_json=as_json)
    if settings.aliases and not as_json:
        names = ", ".join(f"{alias} = {target}" for alias, target in settings.aliases.items())
        render.print_paragraph(f"aliases: {names}", render.DIM)


def print_decision(route: Decision, *, as_json: bool = False) -> None:
    """Print a decision with every candidate, its predictions and its reason."""
    if as_json:
        click.echo(json.dumps(decision_values(route)))
        return
    added = [criterion for criterion in CRITERIA.values() if not criterion.has_fields]
    titles = [render.TableColumn(criterion.title, right=True, rank=2) for criterion in added]
    lines = [_line(candidate, added) for candidate in route.candidates]
    render.print_table((*_COLUMNS, *titles, _LAST_COLUMN), lines)


def _line(candidate: Candidate, added: Sequence[Criterion]) -> render.TableRow:
    unknown = render.UNKNOWN
    figures = [(each, candidate.figures.get(each.name)) for each in added]
    rate, ends, times = candidate.acceptance_rate, candidate.cost_range, candidate.latency_range_s
    return render.TableRow(
        cells=(
            candidate.route,
            candidate.verdict,
            unknown if candidate.cost is None else format_dollars(candidate.cost),
            unknown if ends is None else _between(*map(_bare, ends)),
            unknown if candidate.latency_s is None else format_duration(candidate.latency_s),
            unknown if times is None else f"{_between(*(format_duration(each)[:-2] for each in times))} s",
            unknown if candidate.ttft_s is None else format_duration(candidate.ttft_s),
            unknown if rate is None else f"{rate:.0%}",
            unknown if candidate.depth is None else str(candidate.depth),
            unknown if candidate.quality is None else f"{candidate.quality:.2g}",
            *(unknown if value is None else criterion.text(value) for criterion, value in figures),
            str(candidate.evidence),
        ),
        style=_STYLES[candidate.verdict],
        note=candidate.reason,
    )


def _bare(amount: Decimal) -> str:
    return format_dollars(amount)[1:]


def _between(low: str, high: str) -> str:
    return f"{low}–{high}"
