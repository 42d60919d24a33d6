"""Messages about budgets: refusals, warnings and notices."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import lru_cache

from specclient.budgets.accounts import BudgetAccount, BudgetStatus, CallBound, ThresholdReached, resets_at
from specclient.errors import BudgetExceededError, LedgerError
from specclient.types.budget import Budget, BudgetNotice
from specclient.types.usage import NANO

__all__ = [
    "announce_thresholds",
    "ledger_failure",
    "refusal_error",
    "strict_account",
    "warn_unwritten",
]

logger = logging.getLogger("specclient")


def announce_thresholds(reached: Sequence[ThresholdReached]) -> None:
    """Log a warning for each threshold reached, and call the budget's ``notify`` if it has one."""
    for account, percent, spent in reached:
        budget, at = account.budget, resets_at(account)
        logger.warning(
            "budget %r%s has reached %d %% of its %s: spent %s%s",
            budget.name,
            _subject_note(account),
            percent,
            _limit_text(account),
            budget.format_amount(spent),
            "" if at is None else f"; it resets at {at:%Y-%m-%d %H:%M} UTC",
        )
        if budget.notify is None:
            continue
        notice = BudgetNotice(
            budget=budget,
            percent=percent,
            spent=amount(budget, spent),
            limit=amount(budget, budget.limit),
            subject=account.subject,
            period=account.period,
            resets_at=at,
        )
        try:
            budget.notify(notice)
        except BaseException:  # SystemExit would end the thread that serves all budgets
            logger.exception("the notify of budget %r failed", budget.name)


def refusal_error(
    status: BudgetStatus, route: str, bound: CallBound, what: str = "this call"
) -> BudgetExceededError:
    """Return the error for a call, or another thing named ``what``, that exceeds the rest of an account."""
    account = status.account
    budget, at = account.budget, resets_at(account)
    ways = [f"raise its {'usd' if budget.tokens is None else 'tokens'}", 'set mode = "soft"']
    if budget.tokens is None and not bound.priced and budget.unpriced == "refuse":
        ways = [f'set [prices."{route}"] in specclient.toml', 'set unpriced = "allow"']
        why = f"no price is known for {route}"
    elif budget.tokens is None and bound.unbounded is not None and budget.unpriced == "refuse":
        ways = ["omit it", 'set unpriced = "allow"', "use a key without a budget"]
        why = bound.unbounded
    elif budget.tokens is None and bound.nano is None:
        why = f"the cost of {what} of {route} is unknown"
    else:
        ways = [*(["set max_tokens, or a lower one"] if bound.completion else []), *ways]
        most = budget.format_amount(bound.amount_for(budget))
        why = f"{what} of {route} may take {most}{_assumption(bound)}"
    when = "It never resets" if at is None else f"It resets at {at:%Y-%m-%d %H:%M} UTC"
    text = (
        f"budget {budget.name!r}{_subject_note(account)} refuses a call, which was not sent: its limit is "
        f"{_limit_text(account)}, spent {budget.format_amount(status.spent)}, reserved for open calls "
        f"{budget.format_amount(status.reserved)}; {why}. {when}. To go on: {', or '.join(ways)}."
    )
    return BudgetExceededError(
        text,
        budget=budget.name,
        limit=amount(budget, budget.limit),
        spent=amount(budget, status.spent),
        reserved=amount(budget, status.reserved),
        estimate=amount(budget, bound.amount_for(budget)),
        resets_at=at,
    )


def _assumption(bound: CallBound) -> str:
    if bound.limit is None:
        return ""
    return f" (it sets no max_tokens, so {bound.limit:,} are reserved for each answer)"


def ledger_failure(held: Sequence[BudgetAccount], error: LedgerError) -> LedgerError:
    """Return the error for a call that hard budgets refuse because their database fails."""
    names = ", ".join(repr(each.budget.name) for each in held)
    return LedgerError(
        f"a call was not sent: the hard budget {names} cannot be counted and might be exceeded. {error}; "
        'or set mode = "soft", so that calls go on and are counted once the ledger works'
    )


def _limit_text(account: BudgetAccount) -> str:
    budget = account.budget
    span = {"total": "in all", "day": f"for {account.period}", "month": f"for {account.period}"}
    return f"{budget.format_amount(budget.limit)} {span[budget.period]}"


def _subject_note(account: BudgetAccount) -> str:
    return f" ({account.subject})" if account.subject else ""


def amount(budget: Budget, count: int) -> Decimal | int:
    """Return an amount in dollars or tokens, as the budget counts."""
    return count if budget.tokens is not None else Decimal(count) / NANO


def strict_account(held: Iterable[tuple[BudgetAccount, CallBound]], route: str) -> BudgetAccount | None:
    """Return the first account whose strict budget in dollars refuses an unknown bound; None if none does.

    Warn, once for each, of the other budgets in dollars that count a route without a price as 0.

    Args:
        held: the accounts, each with the bound that it reserves.
        route: of the call, for the warning.
    """
    strict = None
    for account, bound in held:
        budget = account.budget
        if budget.usd is None or (bound.priced and bound.unbounded is None):
            continue
        if budget.unpriced == "refuse":
            strict = strict or account
        elif not bound.priced:
            _warn_unpriced(budget.name, route)
    return strict


@lru_cache(maxsize=1024)
def _warn_unpriced(budget: str, route: str) -> None:
    """Warn once that a budget counts the calls of a route as 0."""
    logger.warning(
        "budget %r counts calls of %s as $0: no price is known; set [prices.%s] in specclient.toml, or "
        'unpriced = "refuse"',
        budget,
        route,
        f'"{route}"',
    )


@lru_cache(maxsize=64)
def warn_unwritten(trouble: str) -> None:
    """Warn once that the database of budgets fails."""
    logger.warning("%s. The cost of calls is kept in memory and counted in their budgets later", trouble)
