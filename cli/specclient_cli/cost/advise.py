"""``specclient cost advise``: changes that would have saved money."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import click

from specclient.config import Settings
from specclient.prices.prices import Prices
from specclient.reports.advice import Advice, CallPrices, advise
from specclient.routing.choose.quality_tiers import tier_of
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost.report import print_no_calls
from specclient_cli.cost.report_options import PastTime

_COLUMNS = (
    render.TableColumn("saves", right=True),
    render.TableColumn("of", right=True),
    render.TableColumn("calls", right=True),
    render.TableColumn("model"),
    render.TableColumn("change"),
)
_SPAN = timedelta(days=30)


@click.command(name="advise")
@click.option("--since", type=PastTime(), help="Only calls since this time; default: 30 days ago.")
@click.option(
    "--most", type=click.IntRange(min=1), default=10, show_default=True, help="Number of changes to show."
)
@options.json_option
@pass_state
def command(state: State, /, *, since: datetime | None, most: int, as_json: bool) -> None:
    """Advise how to spend less.

    Shows the changes that would have saved most in the ledger's calls, each with its sum and what it assumes:
    a cheaper service tier for jobs, another model or a local pair among the candidates of the configuration,
    prompts that caches can serve, predictions that are rejected, and billed calls that failed. Sums of
    different changes do not add up.

    \b
    Examples:
      specclient cost advise
      specclient cost advise --since 7d --most 3 --json

    Environment: SPECCLIENT_LEDGER (path or database URL), SPECCLIENT_CONFIG.
    """
    client = state.async_client()
    endpoints = client.pipeline.destinations.endpoints

    def price_provider(name: str) -> str | None:
        endpoint = endpoints.get(name)
        return None if endpoint is None else endpoint.price_provider

    settings = client.settings
    ledger = state.ledger()
    rows = ledger.iterate(since or datetime.now(UTC) - _SPAN)
    prices = CallPrices(Prices(settings), price_provider)
    found = advise(rows, prices, _alternatives(settings), most=most)
    if as_json:
        click.echo(json.dumps([each.to_json() for each in found]))
    elif found:
        render.print_table(_COLUMNS, [_row(each) for each in found])
    elif not ledger.rows(limit=1):
        print_no_calls(ledger.location, filtered=False)
    else:
        render.print_paragraph(f"No change would have saved money in the calls of {ledger.location}.")


def _alternatives(settings: Settings) -> Callable[[str], Sequence[str]]:
    """Return a function that returns the candidates whose quality tier is at least that of a route."""
    tiers = {route: tier_of(route, settings.quality) for route in settings.candidates}

    @cache
    def alternatives(route: str) -> Sequence[str]:
        own = tier_of(route, settings.quality)
        if own is None:
            return []
        return [other for other, tier in tiers.items() if tier is not None and tier >= own and other != route]

    return alternatives


def _row(each: Advice) -> render.TableRow:
    cells = [f"${each.saved:.2f}", f"${each.cost:.2f}", f"{each.calls:,}", each.route, each.change]
    return render.TableRow(cells, note=each.assumption)
