"""``specclient cost anomalies``: what cost unusually much in the last day."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import urlsplit

import click

from specclient.reports.anomalies import Anomaly, find_alarms, find_anomalies
from specclient.runtime.masked_urls import mask_url
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost import report_options

#: Compares models, keys and tags.
ALL = "all"


def _checked_webhook(_ctx: click.Context, _param: click.Parameter, url: str | None) -> str | None:
    """Refuse an address that could not be sent to, which a day without an alarm would not show."""
    parts = None if url is None else urlsplit(url)
    if url is not None and parts is not None and not (parts.scheme in ("http", "https") and parts.netloc):
        raise click.BadParameter(f"{mask_url(url)!r} is no address; write https://HOST/PATH.")
    return url


@click.command(name="anomalies")
@report_options.by_option(
    default=ALL,
    more=(ALL,),
    help=f"What to compare: every model, key of a server, and tag ({ALL}), or groups of calls by",
)
@click.option(
    "--least",
    type=parameter_types.DollarAmount(),
    default="1",
    show_default=True,
    help="Dollars above the usual cost that are not reported.",
)
@click.option(
    "--webhook",
    metavar="URL",
    callback=_checked_webhook,
    help="Send what is found to this URL, as JSON by POST.",
)
@options.json_option
@pass_state
def command(
    state: State, /, *, by: tuple[str, ...], least: Decimal, webhook: str | None, as_json: bool
) -> None:
    """Report what cost unusually much in the last day.

    The last day is compared with the same day of the week in the four weeks before. It is reported if it
    cost more than the median of these by half of the median, by five standard deviations, and by --least
    dollars. The exit code is 1 if anything is found. A week of calls is needed.

    \b
    Examples:
      specclient cost anomalies
      specclient cost anomalies --by tag:team,model --least 5
      specclient cost anomalies --webhook https://hooks.example/spending

    Environment: SPECCLIENT_LEDGER (path, database URL, or 'off'), SPECCLIENT_CONFIG.
    """
    now = datetime.now(UTC)
    if by == (ALL,):
        alarms = find_alarms(state.ledger(), now=now, least=least)
        by = tuple(alarms)
        found = [(name, each) for name, group in alarms.items() for each in group]
        listed = [each.to_json([name]) for name, each in found]
    else:
        found = [("", each) for each in find_anomalies(state.ledger(), by, now=now, least=least)]
        listed = [each.to_json(by) for _, each in found]
    values = {"at": now.isoformat(), "by": list(by), "anomalies": listed}
    if as_json:
        click.echo(json.dumps(values))
    else:
        _show(found, by)
        if not found and not state.ledger().rows(until=now - timedelta(days=8), limit=1):
            render.print_paragraph("A comparison needs a week of calls before the last day.")
    if found and webhook is not None:
        from specclient.http_transport.webhook import send_json  # noqa: PLC0415 - imports httpx

        send_json(webhook, values)
    if found:
        click.get_current_context().exit(1)


def _show(found: Sequence[tuple[str, Anomaly]], by: Sequence[str]) -> None:
    if not found:
        render.print_paragraph("Nothing cost unusually much in the last 24 hours.")
        return
    columns = [
        *(render.TableColumn(name) for name in (("by", "name") if found[0][0] else by)),
        render.TableColumn("last day", right=True),
        render.TableColumn("usual", right=True),
        render.TableColumn("deviation", right=True, rank=1),
    ]
    rows = [
        render.TableRow(
            [
                *([name] if name else []),
                *(report_options.one_line(value) or render.UNKNOWN for value in each.group),
                *map(_money, (each.cost, each.usual, each.deviation)),
            ]
        )
        for name, each in found
    ]
    render.print_table(columns, rows)


def _money(dollars: Decimal) -> str:
    return f"${dollars:.2f}"
