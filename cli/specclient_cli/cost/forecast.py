"""``specclient cost forecast``: what the month will cost."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import click

from specclient.reports.forecast import Forecast, forecast_month
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state


@click.command(name="forecast")
@click.option(
    "--limit",
    type=parameter_types.DollarAmount(),
    help="Exit with 1 if the month is likely to cost more than this many dollars.",
)
@options.json_option
@pass_state
def command(state: State, /, *, limit: Decimal | None, as_json: bool) -> None:
    """Forecast the cost of this month.

    Each day that is left is expected to cost as much as the mean of the same day of the week in the last four
    weeks. Nine months in ten stay within the interval if days vary as they did; a trend is not continued. All
    times are in UTC, and calls of unknown cost count as 0.

    \b
    Examples:
      specclient cost forecast
      specclient cost forecast --limit 500 || echo "over budget"

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    found = forecast_month(state.ledger(), now=datetime.now(UTC))
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        _show(found, state.ledger().location)
    if limit is not None and found.likely > limit:
        click.get_current_context().exit(1)


def _show(found: Forecast, location: str) -> None:
    if not found.days:
        render.print_paragraph(
            f"${found.spent:.2f} were spent in {found.month} so far. A forecast needs calls of a complete "
            f"day, and {location} has none before today."
        )
        return
    days = "1 day" if found.days == 1 else f"{found.days} days"
    render.print_paragraph(
        f"{found.month}: ${found.likely:.2f} likely, ${found.low:.2f} to ${found.high:.2f} (90 %); "
        f"${found.spent:.2f} spent, {found.left:.1f} days left. Based on {days} before today."
    )
