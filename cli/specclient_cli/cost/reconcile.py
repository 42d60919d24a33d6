"""``specclient cost reconcile``: the ledger compared with a vendor's bill."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import click

from specclient.errors import ConfigurationError
from specclient.reports.reconcile import BillLine, Reconciliation, reconcile
from specclient.reports.vendor_bill import VendorBill, read_bill
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state

_COLUMNS = (
    render.TableColumn("day"),
    render.TableColumn("model"),
    render.TableColumn("billed", right=True),
    render.TableColumn("ledger", right=True),
    render.TableColumn("difference", right=True),
)
#: Largest size of an export, in bytes.
_LARGEST = 512 * 2**20


@click.command(name="reconcile")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
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
@click.option("--all", "every", is_flag=True, help="Show the lines without a difference, too.")
@options.json_option
@pass_state
def command(
    state: State, /, *, file: Path, provider: str | None, tolerance: Decimal, every: bool, as_json: bool
) -> None:
    """Compare a vendor's bill with the ledger.

    FILE is a cost export of OpenAI or Anthropic: CSV from their console, or JSON from their cost API, grouped
    by line item or description; '-' reads standard input. Lines are compared by day and model, for the days
    that it covers, in UTC. The exit code is 1 if a difference is above the tolerance.

    \b
    Examples:
      specclient cost reconcile openai-costs.csv
      specclient cost reconcile claude.csv --tolerance 0.05 --json
      curl -H @key "$COSTS_URL" | specclient cost reconcile -

    Environment: SPECCLIENT_LEDGER (path or database URL), SPECCLIENT_CONFIG.
    """
    bill = _bill(file)
    whose = provider or bill.vendor
    if whose is None:
        raise click.UsageError(f"{file} does not tell whose bill it is; name the provider by --provider.")
    found = reconcile(state.ledger(), bill, whose, tolerance=tolerance)
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        _show(found, bill, every=every)
    if found.differing:
        click.get_current_context().exit(1)


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


def _show(found: Reconciliation, bill: VendorBill, *, every: bool) -> None:
    if not bill.days:
        render.print_paragraph("The bill covers no day.")
        return
    lines = found.lines if every else found.differing
    if lines:
        render.print_table(_COLUMNS, [_row(line) for line in lines])
    span = f"{bill.days[0]} to {bill.days[-1]}" if len(bill.days) > 1 else f"{bill.days[0]}"
    differing = len(found.differing)
    end = "no difference"
    if differing:
        number = "1 line differs" if differing == 1 else f"{differing} lines differ"
        end = f"{number}, by ${found.billed - found.booked:+.4f} in all"
    render.print_paragraph(
        f"{found.provider}, {span}: billed ${found.billed:.4f}, in the ledger ${found.booked:.4f}; {end} "
        f"(tolerance ${found.tolerance.normalize():f})."
    )


def _row(line: BillLine) -> render.TableRow:
    cells = [
        line.day.isoformat(),
        line.model or "all models",
        _money(line.billed),
        _money(line.booked),
        f"{line.difference:+.4f}",
    ]
    return render.TableRow(cells, note=line.cause)


def _money(dollars: Decimal | None) -> str:
    return "–" if dollars is None else f"{dollars:.4f}"
