"""``specclient cost reconcile``: the ledger compared with a vendor's bill."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import click

from specclient.errors import ConfigurationError
from specclient.reports.fetched_bill import BilledBy, fetch_bill
from specclient.reports.reconcile import BillLine, KeyNames, Reconciliation, reconcile
from specclient.reports.vendor_bill import VendorBill, read_bill
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost.admin_client import admin_client
from specclient_cli.cost.report_options import PastTime

_COLUMNS = (
    render.TableColumn("day"),
    render.TableColumn("model"),
    render.TableColumn("key"),
    render.TableColumn("billed", right=True),
    render.TableColumn("ledger", right=True),
    render.TableColumn("difference", right=True),
)
#: Largest size of an export, in bytes.
_LARGEST = 512 * 2**20


@click.command(name="reconcile")
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--openai", "vendor", flag_value="openai", help="Fetch the bill from OpenAI's cost API.")
@click.option(
    "--anthropic", "vendor", flag_value="anthropic", help="Fetch the bill from Anthropic's cost API."
)
@click.option(
    "--since",
    type=PastTime(),
    help="With --openai or --anthropic: the first day, 7d or 2026-01-31; default: 30 days ago.",
)
@click.option("--until", type=PastTime(), help="With them: the day after the last; default: today, in UTC.")
@click.option(
    "--provider", metavar="NAME", help="Compare the calls of this provider; default: the bill's vendor."
)
@click.option(
    "--tolerance",
    type=parameter_types.DollarAmount(),
    default="0.005",
    show_default=True,
    help="Largest difference of a day and model, in dollars, that is ignored.",
)
@click.option(
    "--by-key",
    "tag",
    metavar="TAG",
    help="Compare by key, too: the bill's key, project or workspace with this tag of the calls.",
)
@click.option(
    "--key",
    "names",
    type=parameter_types.BilledKeyPair(),
    multiple=True,
    metavar="BILLED=VALUE",
    help="With --by-key: a key as the bill names it, and the tag's value for it, if they differ; may be "
    "repeated.",
)
@click.option("--all", "every", is_flag=True, help="Show the lines without a difference, too.")
@options.json_option
@pass_state
def command(
    state: State,
    /,
    *,
    file: Path | None,
    vendor: BilledBy | None,
    since: datetime | None,
    until: datetime | None,
    provider: str | None,
    tolerance: Decimal,
    tag: str | None,
    names: tuple[tuple[str, str], ...],
    every: bool,
    as_json: bool,
) -> None:
    """Compare a vendor's bill with the ledger.

    FILE is a cost export of OpenAI or Anthropic: CSV from their console, or JSON from their cost API, grouped
    by line item or description; '-' reads standard input. Instead of a file, --openai and --anthropic fetch
    the bill, with the key of an organization's administrator. Lines are compared by day and model, for the
    days that it covers, in UTC. With --by-key, they are compared by key, too; a server tags each call with
    the name of its key, as 'key'. The exit code is 1 if a difference is above the tolerance.

    \b
    Examples:
      specclient cost reconcile openai-costs.csv
      specclient cost reconcile claude.csv --tolerance 0.05 --json
      specclient cost reconcile --anthropic --since 7d
      specclient cost reconcile --openai --by-key team --key key_AbC=search

    Environment: SPECCLIENT_LEDGER (path or database URL), SPECCLIENT_CONFIG, OPENAI_ADMIN_KEY,
    ANTHROPIC_ADMIN_KEY.
    """
    if names and tag is None:
        raise click.UsageError("--key needs --by-key TAG, the tag that names the key of each call.")
    if (file is None) == (vendor is None):
        raise click.UsageError("Give one of FILE, --openai and --anthropic.")
    if vendor is not None:
        with admin_client(state, vendor) as client:
            bill = fetch_bill(client, vendor, *_days(since, until), by_key=tag is not None)
    elif since is not None or until is not None:
        raise click.UsageError(
            "--since and --until need --openai or --anthropic; a file covers its own days."
        )
    else:
        assert file is not None
        bill = _bill(file)
    whose = provider or bill.vendor or vendor
    if whose is None:
        raise click.UsageError(f"{file} does not tell whose bill it is; name the provider by --provider.")
    keys = None if tag is None else KeyNames(tag, dict(names))
    found = reconcile(state.ledger(), bill, whose, tolerance=tolerance, keys=keys)
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        _show(found, bill, every=every, by_key=keys is not None)
    if found.differing:
        click.get_current_context().exit(1)


def _days(since: datetime | None, until: datetime | None) -> tuple[date, date]:
    """Return the first day of a fetched bill, and the day after the last one; that is complete by default."""
    end = (until or datetime.now(UTC)).astimezone(UTC).date()
    return (end - timedelta(days=30) if since is None else since.astimezone(UTC).date()), end


def _bill(file: Path) -> VendorBill:
    name = "standard input" if str(file) == "-" else str(file)
    try:
        with click.open_file(str(file), "rb") as stream:  # "-" is stdin, which stays open
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read {name}: {error.strerror or error}") from None
    if len(content) > _LARGEST:
        raise ConfigurationError(f"{name} is larger than {_LARGEST >> 20} MiB; export fewer days at a time")
    return read_bill(content, name)


def _show(found: Reconciliation, bill: VendorBill, *, every: bool, by_key: bool) -> None:
    if not bill.days:
        render.print_paragraph("The bill covers no day.")
        return
    lines = found.lines if every else found.differing
    if lines:
        columns = _COLUMNS if by_key else (*_COLUMNS[:2], *_COLUMNS[3:])
        render.print_table(columns, [_row(line, by_key=by_key) for line in lines])
    span = f"{bill.days[0]} to {bill.days[-1]}" if len(bill.days) > 1 else f"{bill.days[0]}"
    differing = len(found.differing)
    end = "no difference"
    if differing:
        number = "1 line differs" if differing == 1 else f"{differing} lines differ"
        more = found.billed - found.booked
        end = f"{number}, by {'-' if more < 0 else '+'}${abs(more):.4f} in all"
    render.print_paragraph(
        f"{found.provider}, {span}: billed ${found.billed:.4f}, in the ledger ${found.booked:.4f}; {end} "
        f"(tolerance ${found.tolerance.normalize():f})."
    )


def _row(line: BillLine, *, by_key: bool) -> render.TableRow:
    cells = [
        line.day.isoformat(),
        line.model or "all models",
        *([line.key or "no key"] if by_key else []),
        _money(line.billed),
        _money(line.booked),
        f"{line.difference:+.4f}",
    ]
    return render.TableRow(cells, note=line.cause)


def _money(dollars: Decimal | None) -> str:
    return "–" if dollars is None else f"{dollars:.4f}"
