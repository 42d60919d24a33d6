"""``specclient cost top``: the most expensive models, tags or calls."""

from __future__ import annotations

import heapq
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from specclient.ledger.ledger import Ledger
from specclient.reports.export import json_row
from specclient.reports.reader import CallFilter, read_reports
from specclient.reports.report import CostReport, ReportBuilder
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report, report_options
from specclient_cli.cost.call_rows import select_rows, show_calls


@click.command(name="top")
@report_options.by_option(
    default="model",
    more=("call", "tag"),
    help="What to list: single calls (call), every tag (tag), or groups of calls by",
)
@report_options.filter_options
@click.option(
    "-n", "--number", type=click.IntRange(min=1), default=10, show_default=True, help="Number of lines."
)
@options.json_option
@pass_state
def command(state: State, /, *, by: tuple[str, ...], number: int, as_json: bool, **given: Any) -> None:
    """Show the most expensive models, tags or calls.

    The default time span is the last day. '--by call' lists single calls instead of sums. '--by tag' lists
    every tag as NAME=VALUE; a call with several tags counts for each of them.

    \b
    Examples:
      specclient cost top
      specclient cost top --by call -n 5 --since 1h
      specclient cost top --by tag --since 7d

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    requested = report_options.call_filter(given)
    if given["since"] is None:
        given["since"] = (given["until"] or datetime.now(UTC)) - timedelta(days=1)
    ledger, where = state.ledger(), report_options.call_filter(given)
    if by == ("call",):
        most_expensive = heapq.nlargest(
            number, select_rows(ledger, where), key=lambda row: row.cost_nano or 0
        )
        if as_json:
            click.echo(json.dumps([json_row(row) for row in most_expensive]))
        elif most_expensive:
            show_calls(most_expensive)
        else:
            _print_none(ledger, requested)
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
                f"the total covers all {len(summed.lines):,} groups; -n shows more", render.DIM
            )
    elif by == ("tag",) and summed.total.calls:
        day = (
            "" if requested.since or requested.until else " of the last day (--since 30d looks further back)"
        )
        render.print_paragraph(
            f"No matching call{day} in {ledger.location} has a tag; set one with "
            '`specclient complete --tag team=search`, or tags={"team": "search"} in a call.'
        )
    else:
        _print_none(ledger, requested)


def _print_none(ledger: Ledger, requested: CallFilter) -> None:
    """Print why no call is shown: because of filters, or because of the default time span."""
    if requested.has_conditions or not ledger.rows(limit=1):
        report.print_no_calls(ledger.location, filtered=requested.has_conditions)
    else:
        render.print_paragraph(
            f"No call in {ledger.location} started within the last day; --since 30d looks further back."
        )


def _by_tag(ledger: Ledger, where: CallFilter) -> CostReport:
    """Return sums by tag; the total counts each call once."""
    tally, total = ReportBuilder(()), ReportBuilder(())
    for row in select_rows(ledger, where):
        total.add_row(row)
        for name, value in row.tags.items():
            tally.add_row(row, (f"{name}={value}",))
    return CostReport(("tag",), tally.report().lines, total.report().total)
