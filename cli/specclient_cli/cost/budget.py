"""``specclient cost budget``: the state of each configured budget."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient.budgets.accounts import BudgetStatus
    from specclient.types.budget import Budget


@click.command(name="budget")
@options.json_option
@click.option(
    "--check",
    type=parameter_types.NonNegativeFloat(),
    is_flag=False,
    flag_value=100.0,
    metavar="[PERCENT]",
    help="Exit with 1 if at least this share of a budget is spent; 100 if no number is given.",
)
@pass_state
def command(state: State, *, as_json: bool, check: float | None) -> None:
    """Show the spent, reserved and remaining amount of each budget.

    Budgets are the [budgets.NAME] tables of the configuration. 'held' is the maximum cost of calls in flight.
    Days and months are in UTC. A budget with tag = "NAME=*" or session = "*" has one line per value. '~'
    marks sums that include unpriced calls, which count as 0, or calls without an answer, which count as
    estimated.

    \b
    Examples:
      specclient cost budget
      specclient cost budget --check 80 || echo "slow down"

    Environment: SPECCLIENT_LEDGER (path or database URL of the budgets), SPECCLIENT_CONFIG.
    """
    settings = state.settings()
    found = _statuses(state)
    reached = [each for each in found if check is not None and each.percent >= check]
    if as_json:
        click.echo(json.dumps({"budgets": [_values(each) for each in found]}))
    elif found:
        _show(found)
    else:
        render.print_paragraph(
            f"No budgets in {settings.source or 'the configuration'}; add one to specclient.toml: "
            '[budgets.mine] with usd = 5 and period = "day".'
        )
    if reached:
        click.get_current_context().exit(1)


def _statuses(state: State) -> Sequence[BudgetStatus]:
    from specclient.budgets.budgets import Budgets  # noqa: PLC0415 - used only if there are budgets
    from specclient.errors import LedgerError  # noqa: PLC0415
    from specclient.ledger.location import OFF  # noqa: PLC0415
    from specclient.prices.prices import Prices  # noqa: PLC0415
    from specclient.routing.learn.estimator import Estimator  # noqa: PLC0415

    settings = state.settings()
    budgets = settings.budget_list()
    if not budgets:
        return []
    ledger = state.ledger()
    if ledger.location == OFF:
        raise LedgerError(
            "the ledger is off, so every process counts its budgets alone; to share and show them, set "
            "SPECCLIENT_LEDGER to a file or a database URL"
        )
    return Budgets(budgets, Prices(settings), Estimator(), ledger).standings()


def _amount(of: Budget, count: int) -> str | int:
    """Return dollars as exact text, tokens as a number."""
    return count if of.tokens is not None else f"{Decimal(count).scaleb(-9):f}"


def _values(status: BudgetStatus) -> dict[str, Any]:
    from specclient.budgets.accounts import resets_at  # noqa: PLC0415

    account, of = status.account, status.account.budget
    at = resets_at(account)
    amounts = {
        "limit": of.limit,
        "spent": status.spent,
        "reserved": status.reserved,
        "left": status.remaining,
    }
    return {
        "name": of.name,
        "subject": account.subject,
        "counts": {name: value for name in _SCOPE if (value := getattr(of, name)) is not None},
        "mode": of.mode,
        "period": account.period,
        "unit": "usd" if of.tokens is None else "tokens",
        **{name: _amount(of, count) for name, count in amounts.items()},
        "percent": round(status.percent, 2),
        "exceeded": status.percent >= 100,
        "resets_at": None if at is None else at.isoformat(),
        "calls": status.calls,
        "unpriced": status.unpriced,
        "assumed": status.assumed,
    }


def _show(found: Sequence[BudgetStatus]) -> None:
    columns = [
        render.TableColumn("budget"),
        render.TableColumn("counts", rank=4),
        render.TableColumn("mode", rank=5),
        render.TableColumn("period", rank=3),
        render.TableColumn("limit", right=True, rank=1),
        render.TableColumn("spent", right=True),
        render.TableColumn("held", right=True, rank=2),
        render.TableColumn("left", right=True),
        render.TableColumn("used", right=True),
        render.TableColumn("resets (UTC)", rank=3),
    ]
    render.print_table(columns, [_line(each) for each in found])
    unpriced, assumed = (sum(getattr(each, name) for each in found) for name in ("unpriced", "assumed"))
    if unpriced:
        render.print_paragraph(
            f'~ {unpriced} calls without a price count as 0; set [prices."PROVIDER/MODEL"] in '
            "specclient.toml",
            render.DIM,
        )
    if assumed:
        render.print_paragraph(f"~ {assumed} calls without an answer count as estimated", render.DIM)


def _line(status: BudgetStatus) -> render.TableRow:
    from specclient.budgets.accounts import resets_at  # noqa: PLC0415

    account, of = status.account, status.account.budget
    at = resets_at(account)
    rough = "~" if status.unpriced or status.assumed else ""
    style = render.BAD if status.percent >= 100 else ""
    cells = [
        f"{of.name} ({account.subject})" if account.subject else of.name,
        " ".join(str(value) for name in _SCOPE if (value := getattr(of, name)) is not None) or "all calls",
        of.mode,
        account.period,
        of.format_amount(of.limit),
        rough + of.format_amount(status.spent),
        of.format_amount(status.reserved),
        of.format_amount(status.remaining),
        f"{status.percent:.0f}%",
        render.UNKNOWN if at is None else f"{at:%Y-%m-%d %H:%M}",
    ]
    return render.TableRow(cells, style=style)


_SCOPE = ("provider", "model", "tag", "session")
