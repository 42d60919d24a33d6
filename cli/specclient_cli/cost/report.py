"""``specclient cost report``: sums of the calls in the ledger, by provider, model, day or tag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from specclient.reports.reader import ReportSet, read_reports
from specclient.reports.report import CostReport
from specclient.reports.savings import Saving, SavingsBy
from specclient.reports.text import (
    SAVINGS_TITLES,
    UNKNOWN,
    ReportCells,
    markdown,
    notes,
    saving_cells,
    saving_notes,
    visible_columns,
)
from specclient_cli.common import render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report_options

FORMATS = ("table", "json", "csv", "markdown", "html")


@click.command(name="report")
@report_options.by_option(default="provider,model")
@report_options.filter_options
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Output format. html is one page with charts that needs no network. Default: table.",
)
@report_options.output_option
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="Short for --format csv: one line per group, with exact figures."
)
@pass_state
def command(
    state: State,
    /,
    *,
    by: tuple[str, ...],
    form: str | None,
    output: Path | None,
    as_json: bool,
    as_csv: bool,
    **given: Any,
) -> None:
    """Report tokens, acceptance, speed and cost of the calls in the ledger.

    Costs are exact; '~' marks sums that include an estimated price or token count. A call without a known
    price counts as unpriced, never as free. Days and times are in UTC. The report also shows what speculation
    saved. The cost and time of the target model alone are estimates; their basis is printed below them.

    \b
    Examples:
      specclient cost report --by model --since 7d
      specclient cost report --by day,provider --json
      specclient cost report --by tag:team --tag env=prod --csv > costs.csv
      specclient cost report --since 30d --format html -o costs.html

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    form = _one_format(form, as_json=as_json, as_csv=as_csv)
    if form == "html" and output is None and render.console().is_terminal:
        raise click.UsageError(
            "--format html writes a page for a browser; add -o FILE, such as -o costs.html."
        )
    ledger, where = state.ledger(), report_options.call_filter(given)
    if form == "html":
        from specclient.reports.page.document import render_page  # noqa: PLC0415 - used only by this format

        report_options.write_output(
            output, render_page(ledger, by, where, now=datetime.now(UTC), name=ledger.location)
        )
        return
    savings_by: SavingsBy = "strategy" if "strategy" in by and "pair" not in by else "pair"
    found = read_reports(ledger, [by], where, by=savings_by)
    summed = found.reports[0]
    if form == "csv":
        report_options.write_output(output, summed.to_csv())
    elif form == "json":
        report_options.write_output(output, json.dumps(_as_json(found, ledger.location)) + "\n")
    elif not found.calls:
        print_no_calls(ledger.location, filtered=where.has_conditions)
    elif form == "markdown":
        report_options.write_output(output, markdown(summed, found.savings or (), by=savings_by))
    elif output is None:
        print_report(found, savings_by)
    else:
        _write_table(output, found, savings_by)


def _one_format(form: str | None, *, as_json: bool, as_csv: bool) -> str:
    wanted = [form, "json" if as_json else None, "csv" if as_csv else None]
    named = list(dict.fromkeys(filter(None, wanted)))
    if len(named) > 1:
        raise click.UsageError(f"--{named[-1]} and --{named[0]} are different formats; choose one.")
    return named[0] if named else "table"


def _write_table(output: Path, found: ReportSet, by: SavingsBy) -> None:
    with report_options.open_output(output) as file:
        print_report(found, by, Console(file=file, highlight=False, markup=False, emoji=False))


def print_report(found: ReportSet, by: SavingsBy = "pair", to: Console | None = None) -> None:
    """Print a report as a table, with the savings by pair or strategy."""
    print_report_table(found.reports[0], to=to)
    if found.savings:
        render.print_paragraph(to=to)
        print_savings(found.savings, by, to=to)
    elif found.savings is None and found.reports[0].total.acceptance_rate is not None:
        render.print_paragraph(
            f"Savings are not computed for {found.calls:,} calls at once; use --since, or "
            "client.costs.savings() in Python",
            render.DIM,
            to=to,
        )


def _as_json(found: ReportSet, location: str) -> dict[str, Any]:
    savings = None if found.savings is None else [saving.to_dict() for saving in found.savings]
    return {**found.reports[0].to_json(), "savings": savings, "ledger": location}


def print_report_table(summed: CostReport, *, to: Console | None = None) -> None:
    """Print a report as a table, with its total and the meaning of its marks."""
    cells = ReportCells.of(summed)
    columns = [render.TableColumn(name) for name in summed.by]
    columns += [
        render.TableColumn(figure.title, right=True, rank=figure.rank) for figure in visible_columns(summed)
    ]
    lines = [render.TableRow([report_options.one_line(cell) for cell in line]) for line in cells.lines]
    lines.append(render.TableRow(cells.total, style="bold"))
    if cells.unpriced is not None:
        lines.append(render.TableRow(cells.unpriced))
    render.print_table(columns, lines, to=to)
    for note in notes(summed):
        render.print_paragraph(note, render.DIM, to=to)


def print_savings(savings: Sequence[Saving], by: SavingsBy, *, to: Console | None = None) -> None:
    """Print savings, and below each line the basis of its figures."""
    render.print_paragraph(
        "Savings by speculation, compared with the target model alone", render.HEADING, to=to
    )
    ranks = {"calls": 5, "accepted": 4, "cost": 2, "cost alone": 3, "saved": 0, "time": 2, "time alone": 3}
    columns = [render.TableColumn(by)]
    columns += [render.TableColumn(title, right=True, rank=ranks.get(title, 1)) for title in SAVINGS_TITLES]
    to = to or render.console()
    lines = [[report_options.one_line(cell) for cell in saving_cells(saving)] for saving in savings]
    render.print_table(columns, [render.TableRow(line) for line in lines], to=to)
    for saving in savings:
        render.print_paragraph(report_options.one_line(saving.group or UNKNOWN), to=to)
        for note in saving_notes(saving):
            render.print_paragraph(report_options.one_line(note), render.DIM, indent=2, to=to)


def print_no_calls(location: str, *, filtered: bool) -> None:
    """Print that there are no calls, and the way out.

    Args:
        location: the ledger's path or URL.
        filtered: whether filters are set.
    """
    if location == "off":
        render.print_paragraph(
            "The ledger is off. To record calls, unset SPECCLIENT_LEDGER or `ledger` in specclient.toml."
        )
    elif filtered:
        render.print_paragraph(
            f"No call in {location} matches; omit --since, --until, --provider, --model or --tag to see more."
        )
    else:
        render.print_paragraph(f"No calls yet in {location}.")
        render.print_paragraph('To make one: specclient complete "def fibonacci(n):" -m local/demo')
