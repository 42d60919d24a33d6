"""Turn single rows of the ledger into lists: the dearest, the latest, all of them, or none any more."""

from __future__ import annotations

import heapq
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow
from specclient.reports.export import EXPORT_FORMATS, ExportFormat, export_lines, json_row
from specclient.reports.reader import CallFilter, matching_rows, read_reports
from specclient.reports.report import CostReport, ReportBuilder
from specclient.reports.text import UNKNOWN, format_dollars, format_seconds
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report, report_options
from specclient_cli.cost.report_options import one_line

#: Rows that `tail -f` looks at first, and again where all of them are new.
_WINDOW = 500


@click.command(short_help="Show what is dearest.")
@report_options.by_option(default="model", more=("call", "tag"))
@report_options.filter_options
@click.option("-n", "--number", type=click.IntRange(min=1), default=10, show_default=True, help="How many.")
@options.json_option
@pass_state
def top(state: State, /, *, by: tuple[str, ...], number: int, as_json: bool, **given: Any) -> None:
    """Show what is dearest: models, tags or any other group, or single calls. Of the last day by default.

    '--by tag' lists every tag as NAME=VALUE; a call that carries several counts in each of them.

    \b
    Examples:
      specclient cost top
      specclient cost top --by call -n 5 --since 1h
      specclient cost top --by tag --since 7d

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    asked = report_options.call_filter(given)
    if given["since"] is None:
        given["since"] = (given["until"] or datetime.now(UTC)) - timedelta(days=1)
    ledger, where = state.ledger(), report_options.call_filter(given)
    if by == ("call",):
        dearest = heapq.nlargest(number, _rows(ledger, where), key=lambda row: row.cost_nano or 0)
        if as_json:
            click.echo(json.dumps([json_row(row) for row in dearest]))
        elif dearest:
            _show_calls(dearest)
        else:
            _say_none(ledger, asked)
        return
    summed = _by_tag(ledger, where) if by == ("tag",) else read_reports(ledger, [by], where).reports[0]
    lines = sorted(summed.lines, key=lambda line: (-line.cost_nano, line.group))[:number]
    cut = CostReport(summed.by, tuple(lines), summed.total, summed.rounded)
    if as_json:
        click.echo(json.dumps(cut.to_json()))
    elif lines:
        report.print_report_table(cut)
        if len(summed.lines) > len(lines):
            render.print_paragraph(
                f"the total is of all {len(summed.lines):,} groups; -n shows more", render.DIM
            )
    elif by == ("tag",) and summed.total.calls:
        day = "" if asked.since or asked.until else " of the last day (--since 30d looks further back)"
        render.print_paragraph(
            f"No call{day} that matches in {ledger.location} carries a tag; set one with "
            '`specclient complete --tag team=search`, or tags={"team": "search"} in a call.'
        )
    else:
        _say_none(ledger, asked)


def _say_none(ledger: Ledger, asked: CallFilter) -> None:
    """Say that no call is shown: whether filters or the day that holds where none is named leave them out."""
    if asked.narrowed or not ledger.rows(limit=1):
        report.print_no_calls(ledger.location, narrowed=asked.narrowed)
    else:
        render.print_paragraph(
            f"No call in {ledger.location} started within the last day; --since 30d looks further back."
        )


def _rows(ledger: Ledger, where: CallFilter) -> Iterator[LedgerRow]:
    return matching_rows(ledger.iterate(where.since, where.until), where)


def _by_tag(ledger: Ledger, where: CallFilter) -> CostReport:
    """Sum up by each tag that a call carries; the total counts each call once."""
    tally, total = ReportBuilder(()), ReportBuilder(())
    for row in _rows(ledger, where):
        total.add_row(row)
        for name, value in row.tags.items():
            tally.add_row(row, (f"{name}={value}",))
    return CostReport(("tag",), tally.report().lines, total.report().total)


def _show_calls(rows: Sequence[LedgerRow]) -> None:
    columns = [
        render.TableColumn("started (UTC)", rank=3),
        render.TableColumn("model"),
        render.TableColumn("in", right=True, rank=2),
        render.TableColumn("out", right=True, rank=2),
        render.TableColumn("time", right=True, rank=1),
        render.TableColumn("tags", rank=5),
        render.TableColumn("request id", rank=4),
        render.TableColumn("cost", right=True),
    ]
    render.print_table(columns, [render.TableRow(_cells(row)) for row in rows])


def _cells(row: LedgerRow) -> list[str]:
    tags = " ".join(f"{name}={value}" for name, value in row.tags.items())
    return [
        f"{row.started_at:%Y-%m-%d %H:%M:%S}",
        one_line(row.route),
        _count(row.prompt_tokens),
        _count(row.completion_tokens),
        format_seconds(row.latency_s),
        one_line(tags),
        one_line(row.request_id or UNKNOWN),
        _cost(row),
    ]


def _count(tokens: int | None) -> str:
    return UNKNOWN if tokens is None else f"{tokens:,}"


def _cost(row: LedgerRow) -> str:
    dollars, estimated = row.cost, row.cost_estimated or row.usage_estimated
    return "unknown" if dollars is None else format_dollars(dollars, estimated=estimated)


@click.command(short_help="Show the latest calls, or each as it ends.")
@report_options.filter_options
@click.option("-n", "--number", type=click.IntRange(min=0), default=10, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with every call as it ends, until Ctrl-C.")
@click.option(
    "--interval",
    type=options.NonNegativeFloat(above_zero=True),
    default=1.0,
    show_default=True,
    help="Seconds between two looks at the ledger.",
)
@options.json_option
@pass_state
def tail(state: State, /, *, number: int, follow: bool, interval: float, as_json: bool, **given: Any) -> None:
    """Show the latest calls, and with -f those of all programs that share the ledger, as they end.

    A call stands in the order in which it started. Times are UTC.

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
            raise click.UsageError("--until ends, and -f does not: leave one of them out.")
        latest = _latest(ledger, where, number)
        for row in latest:
            _say(row, as_json=as_json)
        if not latest and not as_json:
            report.print_no_calls(ledger.location, narrowed=where.narrowed)
        return
    if ledger.location == "off":
        report.print_no_calls(ledger.location, narrowed=False)
        return
    for row in _followed(ledger, where, number, interval):
        _say(row, as_json=as_json)


def _latest(ledger: Ledger, where: CallFilter, number: int) -> list[LedgerRow]:
    """Return the newest rows that are meant: of ever more of the newest ones, until they are enough."""
    window = max(_WINDOW, number)
    while True:
        rows = ledger.rows(where.since, where.until, limit=window)
        found = list(matching_rows(rows, where))
        if len(found) >= number or len(rows) < window:
            return found[len(found) - min(number, len(found)) :]
        window *= 4


def _followed(ledger: Ledger, where: CallFilter, number: int, interval: float) -> Iterator[LedgerRow]:
    """Yield the latest rows, then every row that comes; of a burst, as far back as there are new ones.

    A row stands where its call started, so one that ends late comes among older ones: they are looked at
    again each time, back to the oldest of the window that this began with.
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


def _say(row: LedgerRow, *, as_json: bool) -> None:
    """Print one call: its time, cost and seconds, where it went, what went wrong, tokens and tags."""
    if as_json:
        click.echo(json.dumps(json_row(row)))
        return
    ended = "" if row.status == "ok" else f"  {row.error or row.status}"
    tags = "".join(f"  {name}={value}" for name, value in row.tags.items())
    tokens = f"{_count(row.prompt_tokens)} → {_count(row.completion_tokens)}"
    text = (
        f"{row.started_at:%H:%M:%S}  {_cost(row):>10}  {format_seconds(row.latency_s):>8}  "
        f"{one_line(row.route)}{one_line(ended)}  {tokens}{one_line(tags)}"
    )
    screen = render.console()
    line = Text(text, render.BAD if row.status == "error" else "")
    if screen.is_terminal:
        line.truncate(screen.width, overflow="ellipsis")
    screen.print(line, soft_wrap=True)
    sys.stdout.flush()


@click.command(short_help="Write the calls as CSV or JSON lines.")
@report_options.filter_options
@click.option(
    "--format",
    "form",
    type=click.Choice(EXPORT_FORMATS),
    default="csv",
    show_default=True,
    help="Of the lines.",
)
@report_options.output_option
@pass_state
def export(state: State, /, *, form: ExportFormat, output: Path | None, **given: Any) -> None:
    """Write the calls in the ledger, every column of them, oldest first: a line each.

    'cost_nano' is exact, in billionths of a dollar, and 'cost' the same in dollars. What is unknown is empty
    in CSV and null in JSON. Takes the same memory whether there are ten calls or ten million.

    \b
    Examples:
      specclient cost export --since 2026-01-01 -o calls.csv
      specclient cost export --format jsonl --tag team=search | gzip > calls.gz

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    ledger, where = state.ledger(), report_options.call_filter(given)
    lines = export_lines(_rows(ledger, where), form)
    if output is None:
        for line in lines:
            sys.stdout.write(line)
        return
    written = 0
    with report_options.open_output(output) as file:
        for line in lines:
            file.write(line)
            written += 1
    calls = written - (form == "csv")
    click.echo(f"{calls:,} {'call' if calls == 1 else 'calls'} written to {output}", err=True)


@click.command(short_help="Remove old calls.")
@click.option(
    "--before",
    type=report_options.PastTime(),
    required=True,
    help="Remove the calls that started before then: 90d, 2026-01-31, or ISO 8601.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_state
def prune(state: State, /, *, before: datetime, yes: bool) -> None:
    """Remove old calls from the ledger, for good, their part in every report included. Asks first.

    \b
    Examples:
      specclient cost export --until 2026-01-01 -o 2025.csv
      specclient cost prune --before 2026-01-01
      specclient cost prune --before 90d --yes

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    ledger = state.ledger()
    found = sum(sums.calls for sums in ledger.rollup(None, before))
    if not found:
        render.print_paragraph(f"No call in {ledger.location} started before {before:%Y-%m-%d %H:%M} UTC.")
        return
    calls = "1 call" if found == 1 else f"{found:,} calls"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"{calls} would be removed, and nobody can be asked; add --yes.")
        click.confirm(f"Remove {calls} from {ledger.location}, for good?", abort=True)
    removed = ledger.prune(before)
    render.print_paragraph(
        f"Removed {'1 call' if removed == 1 else f'{removed:,} calls'} from {ledger.location}."
    )
