"""Turn the configured budgets into how each of them stands: the command ``specclient cost budget``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from specclient_cli import options, render
from specclient_cli.state import State, pass_state

if TYPE_CHECKING:
    from specclient.config import Settings
    from specclient.costs.budgets_book import Standing
    from specclient.types.budget import Budget


@click.command(name="budget")
@options.json_option
@click.option(
    "--check",
    type=options.Finite(),
    is_flag=False,
    flag_value=100.0,
    metavar="[PERCENT]",
    help="Exit with 1 where so much of a budget is spent; all of it if no number is given.",
)
@pass_state
def budget(state: State, *, as_json: bool, check: float | None) -> None:
    """Show what is spent, held and left of each [budgets.NAME] of the configuration.

    'Held' is what calls under way may come to at most. Days and months are of UTC. A budget with tag =
    "NAME=*" or session = "*" has a line for each value. '~' marks sums in which calls count as nothing, for
    want of a price, or as estimated, as no answer came.

    \b
    Examples:
      specclient cost budget
      specclient cost budget --check 80 || echo "slow down"

    Environment: SPECCLIENT_LEDGER (path or database URL that keeps the budgets), SPECCLIENT_CONFIG.
    """
    settings = state.settings()
    found = _standings(settings)
    reached = [each for each in found if check is not None and each.percent >= check]
    if as_json:
        click.echo(json.dumps({"budgets": [_values(each) for each in found]}))
    elif found:
        _show(found)
    else:
        render.say(
            f"No budgets in {settings.source or 'the configuration'}; a first one in specclient.toml: "
            '[budgets.mine] with usd = 5 and period = "day".'
        )
    if reached:
        click.get_current_context().exit(1)


def _standings(settings: Settings) -> Sequence[Standing]:
    from specclient.costs.budgets import Budgets  # noqa: PLC0415 - only where there are some
    from specclient.costs.ledger import Ledger  # noqa: PLC0415
    from specclient.costs.location import OFF  # noqa: PLC0415
    from specclient.costs.prices import Prices  # noqa: PLC0415
    from specclient.errors import LedgerError  # noqa: PLC0415
    from specclient.routing.estimates import Estimates  # noqa: PLC0415

    budgets = settings.budget_list()
    if not budgets:
        return []
    ledger = Ledger(settings.ledger)
    if ledger.location == OFF:
        raise LedgerError(
            "the ledger is off, so every process counts its budgets alone; set SPECCLIENT_LEDGER to a file "
            "or a database URL to share and see them"
        )
    return Budgets(budgets, Prices(settings), Estimates(), ledger).standings()


def _amount(of: Budget, count: int) -> str | int:
    """Return dollars as an exact text, tokens as a number."""
    return count if of.tokens is not None else f"{Decimal(count).scaleb(-9):f}"


def _values(standing: Standing) -> dict[str, Any]:
    from specclient.costs.budgets_book import resets_at  # noqa: PLC0415

    account, of = standing.account, standing.account.budget
    at = resets_at(account)
    amounts = {
        "limit": of.limit,
        "spent": standing.spent,
        "reserved": standing.reserved,
        "left": standing.left,
    }
    return {
        "name": of.name,
        "subject": account.subject,
        "counts": {name: value for name in _SCOPE if (value := getattr(of, name)) is not None},
        "mode": of.mode,
        "period": account.period,
        "unit": "usd" if of.tokens is None else "tokens",
        **{name: _amount(of, count) for name, count in amounts.items()},
        "percent": round(standing.percent, 2),
        "exceeded": standing.percent >= 100,
        "resets_at": None if at is None else at.isoformat(),
        "calls": standing.calls,
        "unpriced": standing.unpriced,
        "assumed": standing.assumed,
    }


def _show(found: Sequence[Standing]) -> None:
    columns = [
        render.Column("budget"),
        render.Column("counts", rank=4),
        render.Column("mode", rank=5),
        render.Column("period", rank=3),
        render.Column("limit", right=True, rank=1),
        render.Column("spent", right=True),
        render.Column("held", right=True, rank=2),
        render.Column("left", right=True),
        render.Column("used", right=True),
        render.Column("begins anew (UTC)", rank=3),
    ]
    render.grid(columns, [_line(each) for each in found])
    unpriced, assumed = (sum(getattr(each, name) for each in found) for name in ("unpriced", "assumed"))
    if unpriced:
        render.say(
            f'~ {unpriced} counted as nothing for want of a price; set [prices."PROVIDER/MODEL"] in '
            "specclient.toml",
            render.DIM,
        )
    if assumed:
        render.say(f"~ {assumed} counted as estimated: sent, and no answer came", render.DIM)


def _line(standing: Standing) -> render.Line:
    from specclient.costs.budgets_book import resets_at  # noqa: PLC0415

    account, of = standing.account, standing.account.budget
    at = resets_at(account)
    rough = "~" if standing.unpriced or standing.assumed else ""
    style = render.BAD if standing.percent >= 100 else ""
    cells = [
        f"{of.name} ({account.subject})" if account.subject else of.name,
        " ".join(str(value) for name in _SCOPE if (value := getattr(of, name)) is not None) or "all calls",
        of.mode,
        account.period,
        of.told(of.limit),
        rough + of.told(standing.spent),
        of.told(standing.reserved),
        of.told(standing.left),
        f"{standing.percent:.0f}%",
        render.UNKNOWN if at is None else f"{at:%Y-%m-%d %H:%M}",
    ]
    return render.Line(cells, style=style)


_SCOPE = ("provider", "model", "tag", "session")
