"""Turn how a budget stands into what is said of it: a refusal, a warning, a notice."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from decimal import Decimal

from specclient.budgets import tables as book
from specclient.budgets.tables import BudgetAccount, BudgetStatus, CallBound, ThresholdReached
from specclient.errors import BudgetExceededError, LedgerError
from specclient.types.budget import Budget, BudgetNotice
from specclient.types.usage import NANO

__all__ = ["announce_thresholds", "ledger_failure", "refusal_error"]

logger = logging.getLogger("specclient")


def announce_thresholds(reached: Sequence[ThresholdReached]) -> None:
    """Say that accounts have reached so many per cent: a warning each, and a notice where one is wanted."""
    for account, percent, spent in reached:
        budget, at = account.budget, book.resets_at(account)
        logger.warning(
            "budget %r%s has reached %d %% of its %s: spent %s%s",
            budget.name,
            _whose(account),
            percent,
            _limit(account),
            budget.told(spent),
            "" if at is None else f"; it begins anew at {at:%Y-%m-%d %H:%M} UTC",
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
        except Exception:
            logger.exception("the notify of budget %r failed", budget.name)


def refusal_error(standing: BudgetStatus, route: str, size: CallBound) -> BudgetExceededError:
    """Return the error for a call that an account refuses."""
    account = standing.account
    budget, at = account.budget, book.resets_at(account)
    ways = [f"raise its {'usd' if budget.tokens is None else 'tokens'}", 'set mode = "soft"']
    if budget.tokens is None and not size.priced and budget.unpriced == "refuse":
        ways = [f'set [prices."{route}"] in specclient.toml', 'set unpriced = "allow"']
        why = f"no price is known for {route}"
    elif budget.tokens is None and size.nano is None:
        why = f"what this call of {route} will take cannot be told"
    else:
        ways = [*(["set max_tokens, or a lower one"] if size.completion else []), *ways]
        why = f"this call of {route} may take {budget.told(size.of(budget))}{_assumed(size)}"
    when = "It never resets" if at is None else f"It begins anew at {at:%Y-%m-%d %H:%M} UTC"
    text = (
        f"budget {budget.name!r}{_whose(account)} refuses a call, which was not sent: its limit is "
        f"{_limit(account)}, spent {budget.told(standing.spent)}, reserved for calls under way "
        f"{budget.told(standing.reserved)}; {why}. {when}. To go on: {', or '.join(ways)}."
    )
    return BudgetExceededError(
        text,
        budget=budget.name,
        limit=amount(budget, budget.limit),
        spent=amount(budget, standing.spent),
        reserved=amount(budget, standing.reserved),
        estimate=amount(budget, size.of(budget)),
        resets_at=at,
    )


def _assumed(size: CallBound) -> str:
    if size.bounded:
        return ""
    return f" (it sets no max_tokens, so an answer of {size.completion:,} tokens is reckoned with)"


def ledger_failure(held: Sequence[BudgetAccount], error: LedgerError) -> LedgerError:
    """Return the error for a call that hard budgets refuse because their database fails."""
    names = ", ".join(repr(each.budget.name) for each in held)
    return LedgerError(
        f"a call was not sent: the hard budget {names} cannot be counted, and might be passed. {error}; "
        'or set mode = "soft", and calls go on, to be counted once the ledger works'
    )


def _limit(account: BudgetAccount) -> str:
    budget = account.budget
    span = {"total": "in all", "day": f"for {account.period}", "month": f"for {account.period}"}
    return f"{budget.told(budget.limit)} {span[budget.period]}"


def _whose(account: BudgetAccount) -> str:
    return f" ({account.subject})" if account.subject else ""


def amount(budget: Budget, count: int) -> Decimal | int:
    """Return an amount as callers see it: dollars, or tokens."""
    return count if budget.tokens is not None else Decimal(count) / NANO
