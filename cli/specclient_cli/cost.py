"""Turn the ledger into sums by provider, model, day or tag: the command ``specclient cost``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
from click.shell_completion import CompletionItem

from specclient.costs.reports import GROUPS, Line, Report, parse_since, report
from specclient.costs.rows import Row
from specclient.errors import ConfigurationError
from specclient.routing.policy import dollars, seconds
from specclient_cli import options, render
from specclient_cli.state import State, pass_state


class Groups(options.Type):
    """Comma-separated names to group by."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        try:
            report([], by=names)
        except ConfigurationError as error:
            self.fail(f"{error}.", param, ctx)
        return tuple(names)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        done, comma, last = incomplete.rpartition(",")
        names = [name for name in (*GROUPS, "tag:") if name.startswith(last)]
        return [CompletionItem(f"{done}{comma}{name}") for name in names]


class Instant(options.Type):
    """A time, or a span counted back from now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_since(str(value), datetime.now(UTC))
        except ConfigurationError as error:
            self.fail(f"{error}.", param, ctx)


@click.group(name="cost")
def command() -> None:
    """Sum up what calls used and cost.

    \b
    Examples:
      specclient cost report
    """


@command.command(name="report")
@click.option(
    "--by",
    type=Groups(),
    default="provider,model",
    show_default=True,
    help=f"Group by {', '.join(GROUPS)} or tag:NAME, separated by commas.",
)
@click.option("--since", type=Instant(), help="Only calls from then on: 7d, 24h, 2026-01-31, or ISO 8601.")
@click.option("--until", type=Instant(), help="Only calls before then.")
@options.tag_option("Only calls with this label; may be repeated.")
@options.json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: one line a group, exact figures.")
@pass_state
def report_command(
    state: State,
    *,
    by: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    tags: Sequence[tuple[str, str]],
    as_json: bool,
    as_csv: bool,
) -> None:
    """Sum up the calls in the ledger: tokens, acceptance, speed and dollars.

    Money is exact; '~' marks sums in which a price or a token count is an estimate, and a call without a
    known price is counted as unpriced, never as free. Days and times are UTC.

    \b
    Examples:
      specclient cost report --by model --since 7d
      specclient cost report --by day,provider --json
      specclient cost report --by tag:team --tag env=prod --csv > costs.csv

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    ledger = state.ledger()
    rows = tagged(ledger.rows(since, until), dict(tags))
    summed = report(rows, by=by)
    if as_csv:
        click.echo(summed.to_csv(), nl=False)
    elif as_json:
        click.echo(json.dumps(as_values(summed) | {"ledger": ledger.location}))
    elif rows:
        show(summed)
    else:
        say_empty(ledger.location, narrowed=bool(since or until or tags))


def tagged(rows: Sequence[Row], tags: Mapping[str, str]) -> list[Row]:
    """Return the rows that carry all of these tags."""
    return [row for row in rows if all(row.tags.get(name) == value for name, value in tags.items())]


def as_values(summed: Report) -> dict[str, Any]:
    """Return a report as ``--json`` prints it."""
    total = asdict(summed.total) | {"cost": f"{summed.total.cost:f}"}
    del total["group"]
    return {"by": list(summed.by), "lines": summed.to_dicts(), "total": total}


def show(summed: Report) -> None:
    """Print a report as a table, its total, and what its marks mean."""
    figures = [(name, rank, figure) for name, rank, figure in _FIGURES if _matters(name, summed)]
    columns = [render.Column(name) for name in summed.by]
    columns += [render.Column(name, right=True, rank=rank) for name, rank, _ in figures]
    lines = [
        render.Line([*(value or render.UNKNOWN for value in line.group), *(f(line) for _, _, f in figures)])
        for line in summed.lines
    ]
    first = ["total", *[""] * (len(summed.by) - 1)] if summed.by else []
    lines.append(render.Line([*first, *(f(summed.total) for _, _, f in figures)], style="bold"))
    render.grid(columns, lines)
    total = summed.total
    if total.estimated:
        render.say("~ rests on an assumed price or an estimated token count", render.DIM)
    if total.unpriced:
        calls = "1 call has" if total.unpriced == 1 else f"{total.unpriced} calls have"
        render.say(
            f"{calls} no known price and {'is' if total.unpriced == 1 else 'are'} not in the sum; "
            'set [prices."PROVIDER/MODEL"] in specclient.toml',
            render.DIM,
        )


def _matters(name: str, summed: Report) -> bool:
    """Leave out what no line has to tell."""
    total = summed.total
    nothing = {
        "failed": not total.errors,
        "unpriced": not total.unpriced,
        "accepted": total.acceptance_rate is None,
        "tokens/pass": total.mean_accepted_length is None or not total.drafted,
    }
    return not nothing.get(name, False)


def _known(value: float | None, form: Callable[[float], str]) -> str:
    return render.UNKNOWN if value is None else form(value)


_FIGURES: tuple[tuple[str, int, Callable[[Line], str]], ...] = (
    ("calls", 1, lambda line: str(line.calls)),
    ("failed", 2, lambda line: str(line.errors)),
    ("in", 3, lambda line: f"{line.tokens_in:,}"),
    ("out", 3, lambda line: f"{line.tokens_out:,}"),
    ("accepted", 4, lambda line: _known(line.acceptance_rate, lambda v: f"{v:.0%}")),
    (
        "tokens/pass",
        5,
        lambda line: _known(line.mean_accepted_length if line.drafted else None, lambda v: f"{v:.2f}"),
    ),
    ("tokens/s", 4, lambda line: _known(line.tokens_per_s, lambda v: f"{v:.3g}")),
    ("p50", 6, lambda line: _known(line.latency_p50_s, seconds)),
    ("p95", 7, lambda line: _known(line.latency_p95_s, seconds)),
    ("unpriced", 2, lambda line: str(line.unpriced)),
    ("cost", 0, lambda line: f"{'~' if line.estimated else ''}{dollars(line.cost)}"),
)


def say_empty(location: str, *, narrowed: bool) -> None:
    if location == "off":
        render.say(
            "The ledger is off: unset SPECCLIENT_LEDGER, or `ledger` in specclient.toml, to keep calls."
        )
    elif narrowed:
        render.say(f"No call in {location} matches; leave out --since, --until or --tag to see all.")
    else:
        render.say(f"No calls yet in {location}.")
        render.say('A first one: specclient complete "def fibonacci(n):" -m local/demo')
