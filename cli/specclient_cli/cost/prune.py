"""``specclient cost prune``: delete old calls from the ledger."""

from __future__ import annotations

from datetime import datetime

import click

from specclient_cli.common import render
from specclient_cli.common.confirmation import confirm
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report_options


@click.command(name="prune")
@click.option(
    "--before",
    type=report_options.PastTime(),
    required=True,
    help="Delete calls that started before this time: 90d, 2026-01-31, or ISO 8601.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_state
def command(state: State, /, *, before: datetime, yes: bool) -> None:
    """Delete old calls from the ledger.

    The calls also disappear from reports. The command asks for confirmation.

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
        confirm("delete", calls, f"Permanently delete {calls} from {ledger.location}?")
    removed = ledger.prune(before)
    render.print_paragraph(
        f"Deleted {'1 call' if removed == 1 else f'{removed:,} calls'} from {ledger.location}."
    )
