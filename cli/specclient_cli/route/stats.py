"""``specclient route stats``: the statistics that predictions use."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from specclient.runtime.number_format import format_duration
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient.routing.learn.estimator import RouteStatistics

_LEARNED = (
    render.TableColumn("route"),
    render.TableColumn("task"),
    render.TableColumn("calls", right=True),
    render.TableColumn("ttft", right=True, rank=1),
    render.TableColumn("tokens/s", right=True, rank=1),
    render.TableColumn("failed", right=True, rank=2),
    render.TableColumn("accepted", right=True, rank=3),
    render.TableColumn("a pass", right=True, rank=4),
    render.TableColumn("tokens", right=True, rank=3),
    render.TableColumn("last", right=True, rank=2),
)

#: Names in JSON that differ from the attributes; other programs may read them.
_JSON_NAMES = {
    "median": "middle",
    "p10_factor": "early",
    "limit_factor": "late",
    "p95_ttft_s": "usual_limit_s",
    "p95_factor": "usual_late",
    "uncertain": "doubtful",
    "optimistic_speedup": "hopeful",
}


@click.command(name="stats")
@options.json_option
@pass_state
def command(state: State, /, as_json: bool) -> None:
    """Show the statistics of past calls that predictions use.

    A route's first line is for all its calls, the others for one kind of prompt each. 'ttft' is the median of
    the seconds to the first token, 'failed' the share of failed calls, 'a pass' the tokens per pass of the
    target, 'tokens' the median length of answers, 'last' the time since the last call. Old calls count less.
    A route that is marked 'slow' or 'failing' is left alone for a while.

    \b
    Examples:
      specclient route stats
      specclient route stats --json

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_LEDGER.
    """
    from specclient.routing.learn.estimator import Estimator  # noqa: PLC0415 - keeps --help quick

    learned = [_without_assumed_ttft(each) for each in Estimator(state.ledger()).stats()]
    if as_json:
        click.echo(json.dumps([asdict(each, dict_factory=_json_object) for each in learned]))
    elif not learned:
        render.print_paragraph(
            "The ledger has no calls yet: make some, or name another ledger in SPECCLIENT_LEDGER."
        )
    else:
        render.print_table(_LEARNED, [_learned(each) for each in learned])


def _without_assumed_ttft(each: RouteStatistics) -> RouteStatistics:
    """Return statistics without a time to the first token if no call has shown one.

    The value is then only the intercept of a regression of seconds on tokens.
    """
    if each.estimate.ttft_limit_s is not None:
        return each
    return replace(each, estimate=replace(each.estimate, ttft_s=None))


def _json_object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_JSON_NAMES.get(name, name): value for name, value in fields}


def _learned(each: RouteStatistics) -> render.TableRow:
    estimate, unknown = each.estimate, render.UNKNOWN
    accepted, given = estimate.acceptance_rate, estimate.tokens_per_verification
    state = "failing: avoided for now" if each.failing else "slower than before" if each.slow else ""
    return render.TableRow(
        cells=(
            each.route if each.task is None else "",
            each.task or "all",
            str(each.calls),
            unknown if estimate.ttft_s is None else format_duration(estimate.ttft_s),
            f"{1 / estimate.token_s:.3g}" if estimate.token_s else unknown,
            f"{estimate.failure_rate:.0%}",
            unknown if accepted is None else f"{accepted:.0%}",
            unknown if given is None else f"{given:.2f}",
            unknown if each.length is None else str(each.length.median),
            _age(each.age_s),
        ),
        style=render.BAD if each.failing else "",
        note=state,
    )


def _age(age_s: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if age_s >= size:
            return f"{age_s / size:.0f} {unit}"
    return f"{age_s:.0f} s"
