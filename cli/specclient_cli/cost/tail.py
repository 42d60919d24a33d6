"""``specclient cost tail``: the latest calls, and with ``-f`` each call as it ends."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow
from specclient.reports.export import json_row
from specclient.reports.reader import CallFilter, matching_rows
from specclient.reports.text import format_seconds
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report, report_options
from specclient_cli.cost.call_rows import format_cost, format_count
from specclient_cli.cost.report_options import one_line

#: Rows that `tail -f` reads at first; it reads more while all of them are new.
_WINDOW = 500


@click.command(name="tail")
@report_options.filter_options
@click.option(
    "-n", "--number", type=click.IntRange(min=0), default=10, show_default=True, help="Number of calls."
)
@click.option("-f", "--follow", is_flag=True, help="Continue with every call as it ends, until Ctrl-C.")
@click.option(
    "--interval",
    type=parameter_types.NonNegativeFloat(above_zero=True),
    default=1.0,
    show_default=True,
    help="Seconds between two reads of the ledger.",
)
@options.json_option
@pass_state
def command(
    state: State, /, *, number: int, follow: bool, interval: float, as_json: bool, **given: Any
) -> None:
    """Show the latest calls, or follow calls as they end.

    -f shows the calls of all programs that share the ledger. The order is that of the start times, in UTC.

    \b
    Examples:
      specclient cost tail
      specclient cost tail -f --tag team=search
      specclient cost tail -f --json | jq .cost_nano

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    ledger, where = state.ledger(), report_options.call_filter(given)
    if not follow or where.until is not None:
        if follow:
            raise click.UsageError("--until and -f exclude each other.")
        latest = _latest(ledger, where, number)
        for row in latest:
            _print_call(row, as_json=as_json)
        if not latest and not as_json:
            report.print_no_calls(ledger.location, filtered=where.has_conditions)
        return
    if ledger.location == "off":
        report.print_no_calls(ledger.location, filtered=False)
        return
    for row in _followed(ledger, where, number, interval):
        _print_call(row, as_json=as_json)


def _latest(ledger: Ledger, where: CallFilter, number: int) -> list[LedgerRow]:
    """Return the newest matching rows. Reads ever more rows until there are enough."""
    window = max(_WINDOW, number)
    while True:
        rows = ledger.rows(where.since, where.until, limit=window)
        found = list(matching_rows(rows, where))
        if len(found) >= number or len(rows) < window:
            return found[len(found) - min(number, len(found)) :]
        window *= 4


def _followed(ledger: Ledger, where: CallFilter, number: int, interval: float) -> Iterator[LedgerRow]:
    """Yield the latest rows, then every new row.

    Rows are ordered by the start of their call, so a call that ends late appears among older rows. Therefore
    each read goes back to the oldest row of the first window, and further after a burst of calls.
    """
    rows = ledger.rows(where.since, limit=_WINDOW)
    floor = rows[0].started_at if len(rows) == _WINDOW else datetime.min.replace(tzinfo=UTC)
    latest = _latest(ledger, where, number)
    seen = {row.id for row in (*rows, *latest)}
    yield from latest
    while True:
        time.sleep(interval)
        window = _WINDOW
        while True:
            rows = ledger.rows(where.since, limit=window)
            if len(rows) < window or rows[0].id in seen or rows[0].started_at < floor:
                break
            window *= 4
        fresh = [row for row in rows if row.id not in seen and row.started_at >= floor]
        yield from matching_rows(fresh, where)
        seen.update(row.id for row in fresh)
        if len(seen) > 20 * _WINDOW and rows:
            seen, floor = {row.id for row in rows}, rows[0].started_at


def _print_call(row: LedgerRow, *, as_json: bool) -> None:
    """Print one call: start, cost, latency, route, error, tokens and tags."""
    if as_json:
        click.echo(json.dumps(json_row(row)))
        return
    ended = "" if row.status == "ok" else f"  {row.error or row.status}"
    tags = "".join(f"  {name}={value}" for name, value in row.tags.items())
    tokens = f"{format_count(row.prompt_tokens)} → {format_count(row.completion_tokens)}"
    text = (
        f"{row.started_at:%H:%M:%S}  {format_cost(row):>10}  {format_seconds(row.latency_s):>8}  "
        f"{one_line(row.route)}{one_line(ended)}  {tokens}{one_line(tags)}"
    )
    screen = render.console()
    line = Text(text, render.BAD if row.status == "error" else "")
    if screen.is_terminal:
        line.truncate(screen.width, overflow="ellipsis")
    screen.print(line, soft_wrap=True)
    sys.stdout.flush()
