"""The accounts of budgets, and the amounts that are reserved for calls and charged to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from specclient.ledger.store import SQLValue
from specclient.types.budget import Budget, BudgetScope
from specclient.types.route import Decision

__all__ = [
    "BudgetAccount",
    "BudgetCharge",
    "BudgetStatus",
    "CallBound",
    "ThresholdReached",
    "account_at",
    "resets_at",
    "scope_of",
]


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """A budget's account for one subject in one period; the fields are those of :class:`BudgetNotice`."""

    budget: Budget
    subject: str
    period: str

    @property
    def key(self) -> dict[str, SQLValue]:
        """The values that identify its rows."""
        return {"name": self.budget.name, "subject": self.subject, "period": self.period}


@dataclass(frozen=True, slots=True)
class CallBound:
    """The upper bound of a call's cost and tokens.

    Attributes:
        nano: nano-dollars; None if they are unknown.
        prompt, completion: tokens.
        priced: whether a price is known.
        limit: tokens of an answer that are assumed, and sent as its limit; None if the request limits it.
        unbounded: why the call may cost more than ``nano``, None if it may not.
    """

    nano: int | None
    prompt: int
    completion: int
    priced: bool = True
    limit: int | None = None
    unbounded: str | None = None

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prompt + self.completion

    def amount_for(self, budget: Budget) -> int:
        """Return the amount to reserve in a budget, in nano-dollars or tokens as the budget counts."""
        return self.tokens if budget.tokens is not None else self.nano or 0


@dataclass(frozen=True, slots=True)
class BudgetCharge:
    """The amounts that a finished call is charged with.

    Attributes:
        nano: nano-dollars.
        unpriced: whether the cost is unknown, and so counted as 0.
        assumed: number of attempts without a response that were charged with their upper bound.
    """

    nano: int
    tokens: int
    unpriced: bool = False
    assumed: int = 0


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The status of an account, in nano-dollars or tokens as its budget counts.

    Attributes:
        spent: by finished calls.
        reserved: for open calls.
        calls: number of finished calls.
        unpriced: number of calls counted as 0 because no price is known.
        assumed: number of attempts without a response, charged with their upper bound.
    """

    account: BudgetAccount
    spent: int
    reserved: int
    calls: int = 0
    unpriced: int = 0
    assumed: int = 0

    @property
    def remaining(self) -> int:
        """The amount left for further calls; negative if more than the limit was spent."""
        return self.account.budget.limit - self.spent - self.reserved

    @property
    def percent(self) -> float:
        """The amount spent, in per cent of the limit."""
        return 100 * self.spent / self.account.budget.limit


class ThresholdReached(NamedTuple):
    """An account, the per cent of its limit that is reached, and the amount spent as the budget counts."""

    account: BudgetAccount
    percent: int
    spent: int


def scope_of(
    route: Decision, tags: Mapping[str, str], session: str | None, *, by_judge: bool = False
) -> BudgetScope:
    """Return the properties of a call by which budgets count it."""
    models = (f"{route.provider}/{route.model}", route.model, route.chosen)
    return BudgetScope(route.provider, models, tags, session, by_judge)


def account_at(budget: Budget, subject: str, now: datetime) -> BudgetAccount:
    """Return the account of a budget for a subject at a time."""
    form = {"total": "total", "day": "%Y-%m-%d", "month": "%Y-%m"}[budget.period]
    return BudgetAccount(budget, subject, now.astimezone(UTC).strftime(form))


def resets_at(account: BudgetAccount) -> datetime | None:
    """Return the time at which the account's period ends; None if it never does."""
    if account.budget.period == "total":
        return None
    if account.budget.period == "day":
        return datetime.strptime(account.period, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    year, month = map(int, account.period.split("-"))
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
