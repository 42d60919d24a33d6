"""Turn what calls reserve and use into rows of two tables of the ledger's database, and back.

``budget_spend`` sums up what finished calls used, ``budget_holds`` has a row for each call under way. Every
function here takes part in a transaction in which nobody else writes, and speaks the SQL of both databases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from specclient.costs.schema import Execute, Value
from specclient.types.budget import THRESHOLDS, Budget

__all__ = ["Account", "Bill", "Size", "Standing"]

_ACCOUNT = "name = :name AND subject = :subject AND period = :period"
_CREATE = (
    "CREATE TABLE IF NOT EXISTS budget_spend (name TEXT NOT NULL, subject TEXT NOT NULL, "
    "period TEXT NOT NULL, nano BIGINT NOT NULL, tokens BIGINT NOT NULL, calls BIGINT NOT NULL, "
    "unpriced BIGINT NOT NULL, assumed BIGINT NOT NULL, PRIMARY KEY (name, subject, period))",
    "CREATE TABLE IF NOT EXISTS budget_holds (name TEXT NOT NULL, subject TEXT NOT NULL, "
    "period TEXT NOT NULL, id TEXT NOT NULL, nano BIGINT NOT NULL, tokens BIGINT NOT NULL, "
    "expires_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, subject, period, id))",
)
_SPENT = f"SELECT nano, tokens, calls, unpriced, assumed FROM budget_spend WHERE {_ACCOUNT}"  # noqa: S608
_HELD = f"SELECT COALESCE(SUM(nano), 0), COALESCE(SUM(tokens), 0) FROM budget_holds WHERE {_ACCOUNT}"  # noqa: S608
_HOLD = "INSERT INTO budget_holds VALUES (:name, :subject, :period, :id, :nano, :tokens, :expires_at)"
_FREE = f"DELETE FROM budget_holds WHERE {_ACCOUNT} AND id = :id"  # noqa: S608
_RENEW = f"UPDATE budget_holds SET expires_at = :expires_at WHERE {_ACCOUNT} AND id = :id"  # noqa: S608
_LAPSE = "DELETE FROM budget_holds WHERE expires_at <= :now"
_SPEND = """INSERT INTO budget_spend
    VALUES (:name, :subject, :period, :nano, :tokens, 1, :unpriced, :assumed)
    ON CONFLICT (name, subject, period) DO UPDATE SET
        nano = budget_spend.nano + excluded.nano, tokens = budget_spend.tokens + excluded.tokens,
        calls = budget_spend.calls + 1, unpriced = budget_spend.unpriced + excluded.unpriced,
        assumed = budget_spend.assumed + excluded.assumed"""
_SUBJECTS = """SELECT subject FROM budget_spend WHERE name = :name AND period = :period
    UNION SELECT subject FROM budget_holds WHERE name = :name AND period = :period ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class Account:
    """What a budget counts for one subject in one period; the fields as in :class:`BudgetNotice`."""

    budget: Budget
    subject: str
    period: str

    @property
    def key(self) -> dict[str, Value]:
        """What its rows are found by."""
        return {"name": self.budget.name, "subject": self.subject, "period": self.period}


@dataclass(frozen=True, slots=True)
class Size:
    """What a call may come to at most, as far as that can be told.

    Attributes:
        nano: nano-dollars; None where they cannot be told.
        prompt, completion: tokens.
        priced: whether there is a price at all.
        bounded: whether the request itself bounds its answer.
    """

    nano: int | None
    prompt: int
    completion: int
    priced: bool = True
    bounded: bool = True

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prompt + self.completion

    def of(self, budget: Budget) -> int:
        """Return what a budget holds for it."""
        return self.tokens if budget.tokens is not None else self.nano or 0


@dataclass(frozen=True, slots=True)
class Bill:
    """What a finished call counts as; ``assumed``: its tries that counted as their size, unanswered."""

    nano: int
    tokens: int
    unpriced: bool = False
    assumed: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """How an account stands, in nano-dollars or tokens as its budget counts.

    Attributes:
        spent: by finished calls; ``reserved``: for those under way.
        calls: finished ones; ``unpriced``: those that counted as nothing for want of a price; ``assumed``:
            tries that counted as their estimate, as they were sent and no answer came.
    """

    account: Account
    spent: int
    reserved: int
    calls: int = 0
    unpriced: int = 0
    assumed: int = 0

    @property
    def left(self) -> int:
        """What a further call may take; below zero where more was spent than the limit is."""
        return self.account.budget.limit - self.spent - self.reserved

    @property
    def percent(self) -> float:
        """Of the limit, what is spent."""
        return 100 * self.spent / self.account.budget.limit


def account(budget: Budget, subject: str, now: datetime) -> Account:
    """Return what a budget counts for a subject at a time."""
    form = {"total": "total", "day": "%Y-%m-%d", "month": "%Y-%m"}[budget.period]
    return Account(budget, subject, now.astimezone(UTC).strftime(form))


def resets_at(account: Account) -> datetime | None:
    """Return when the period after an account's begins; None where there is none."""
    if account.budget.period == "total":
        return None
    if account.budget.period == "day":
        return datetime.strptime(account.period, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    year, month = map(int, account.period.split("-"))
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)


def create(execute: Execute) -> None:
    """Make the tables where they are missing."""
    for statement in _CREATE:
        execute(statement)


def lapse(execute: Execute, now: float) -> None:
    """Forget what was held for calls of processes that are gone; seconds of the epoch."""
    execute(_LAPSE, {"now": now})


def stand(execute: Execute, account: Account) -> Standing:
    """Return how an account stands."""
    found = execute(_SPENT, account.key) or [(0, 0, 0, 0, 0)]
    nano, tokens, calls, unpriced, assumed = cast("tuple[int, ...]", found[0])
    held = cast("tuple[int, int]", execute(_HELD, account.key)[0])
    spent, reserved = (nano, held[0]) if account.budget.tokens is None else (tokens, held[1])
    return Standing(account, spent, reserved, calls, unpriced, assumed)


def subjects(execute: Execute, account: Account) -> list[str]:
    """Return all for whom an account's budget has counted in its period."""
    found = execute(_SUBJECTS, {"name": account.budget.name, "period": account.period})
    return [str(subject) for (subject,) in found]


def reserve(
    execute: Execute, id_: str, accounts: Sequence[Account], size: Size, expires_at: float
) -> Standing | None:
    """Hold what a call may come to, on all accounts or, where one has not enough left, on none.

    Returns:
        The account that refuses it, if any does. A call that costs nothing is never refused; one whose cost
        cannot be told is, once nothing is left.
    """
    for each in accounts:
        amount = size.of(each.budget)
        free = amount == 0 and (each.budget.tokens is not None or size.nano is not None)
        standing = stand(execute, each)
        if not free and standing.left < max(amount, 1):
            return standing
    for each in accounts:
        held: dict[str, Value] = {"id": id_, "nano": size.nano or 0, "tokens": size.tokens}
        execute(_HOLD, each.key | held | {"expires_at": expires_at})
    return None


def renew(execute: Execute, id_: str, accounts: Sequence[Account], expires_at: float) -> None:
    """Go on holding what is held for a call; what has lapsed meanwhile stays so."""
    for each in accounts:
        execute(_RENEW, each.key | {"id": id_, "expires_at": expires_at})


def settle(
    execute: Execute, id_: str, held: Sequence[Account], counted: Sequence[Account], bill: Bill | None
) -> list[tuple[Standing, int]]:
    """Put what a call has come to in place of what was held for it.

    Args:
        bill: None for a call that was never made.

    Returns:
        Each account that has reached a threshold by it, with its per cent, as it stands now.
    """
    for each in held:
        execute(_FREE, each.key | {"id": id_})
    if bill is None:
        return []
    reached: list[tuple[Standing, int]] = []
    for each in counted:
        count: dict[str, Value] = {"nano": bill.nano, "tokens": bill.tokens, "unpriced": int(bill.unpriced)}
        execute(_SPEND, each.key | count | {"assumed": bill.assumed})
        now = stand(execute, each)
        before = now.spent - (bill.nano if each.budget.tokens is None else bill.tokens)
        limit = each.budget.limit
        reached += [(now, t) for t in THRESHOLDS if 100 * before < t * limit <= 100 * now.spent]
    return reached
