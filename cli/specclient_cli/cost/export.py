"""``specclient cost export``: write the calls as CSV or JSON lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from specclient.reports.export import EXPORT_FORMATS, ExportFormat, export_lines
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report_options
from specclient_cli.cost.call_rows import select_rows


@click.command(name="export")
@report_options.filter_options
@click.option(
    "--format",
    "form",
    type=click.Choice(EXPORT_FORMATS),
    default="csv",
    show_default=True,
    help="Format of the lines.",
)
@report_options.output_option
@pass_state
def command(state: State, /, *, form: ExportFormat, output: Path | None, **given: Any) -> None:
    """Write the calls as CSV or JSON lines.

    Each call is one line with all columns of the ledger, oldest first. 'cost_nano' is the exact cost in
    billionths of a dollar, 'cost' is the same in dollars. Unknown values are empty in CSV and null in JSON.
    In CSV, a text that a spreadsheet would run as a formula gets a leading apostrophe. Memory use does not
    depend on the number of calls.

    \b
    Examples:
      specclient cost export --since 2026-01-01 -o calls.csv
      specclient cost export --format jsonl --tag team=search | gzip > calls.gz

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    ledger, where = state.ledger(), report_options.call_filter(given)
    lines = export_lines(select_rows(ledger, where), form)
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
