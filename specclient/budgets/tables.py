"""Turn what calls reserve and use into rows of two tables of the ledger's database, and back.

``budget_spend`` sums up what finished calls used, ``budget_holds`` has a row for each call under way. All is
done in transactions in which nobody else writes, in the SQL that both databases speak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast

from specclient.ledger.store import Execute, SQLValue
from specclient.types.budget import THRESHOLDS, Budget

__all__ = [
    "BudgetAccount",
    "BudgetCharge",
    "BudgetStatus",
    "BudgetTransaction",
    "CallBound",
    "ThresholdReached",
]

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
_MINE = f"SELECT nano, tokens FROM budget_holds WHERE {_ACCOUNT} AND id = :id"  # noqa: S608
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
class BudgetAccount:
    """What a budget counts for one subject in one period; the fields as in :class:`BudgetNotice`."""

    budget: Budget
    subject: str
    period: str

    @property
    def key(self) -> dict[str, SQLValue]:
        """What its rows are found by."""
        return {"name": self.budget.name, "subject": self.subject, "period": self.period}


@dataclass(frozen=True, slots=True)
class CallBound:
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
class BudgetCharge:
    """What a finished call counts as; ``assumed``: its tries that counted as their size, unanswered."""

    nano: int
    tokens: int
    unpriced: bool = False
    assumed: int = 0


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """How an account stands, in nano-dollars or tokens as its budget counts.

    Attributes:
        spent: by finished calls; ``reserved``: for those under way.
        calls: finished ones; ``unpriced``: those that counted as nothing for want of a price; ``assumed``:
            tries that counted as their estimate, as they were sent and no answer came.
    """

    account: BudgetAccount
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


class ThresholdReached(NamedTuple):
    """An account, the per cent of its limit that it has reached, and what is spent, as its budget counts."""

    account: BudgetAccount
    percent: int
    spent: int


def account(budget: Budget, subject: str, now: datetime) -> BudgetAccount:
    """Return what a budget counts for a subject at a time."""
    form = {"total": "total", "day": "%Y-%m-%d", "month": "%Y-%m"}[budget.period]
    return BudgetAccount(budget, subject, now.astimezone(UTC).strftime(form))


def resets_at(account: BudgetAccount) -> datetime | None:
    """Return when the period after an account's begins; None where there is none."""
    if account.budget.period == "total":
        return None
    if account.budget.period == "day":
        return datetime.strptime(account.period, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    year, month = map(int, account.period.split("-"))
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)


class BudgetTransaction:
    """The tables as one transaction sees them; for that transaction alone.

    What an account holds is summed up once and kept up to date from then on, as nobody else writes meanwhile:
    a burst of calls that share the transaction costs each of them the same, however many they are.
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._held: dict[BudgetAccount, list[int]] = {}  # nano-dollars and tokens
        self._lapsed = False

    def create(self) -> None:
        """Make the tables where they are missing."""
        for statement in _CREATE:
            self._execute(statement)

    def lapse(self, now: float) -> None:
        """Forget, once, what was held for calls of processes that are gone; seconds of the epoch."""
        if not self._lapsed:
            self._lapsed = True
            self._held.clear()
            self._execute(_LAPSE, {"now": now})

    def stand(self, account: BudgetAccount) -> BudgetStatus:
        """Return how an account stands."""
        nano, tokens, calls, unpriced, assumed = self._spent(account)
        held = self._holding(account)
        spent, reserved = (nano, held[0]) if account.budget.tokens is None else (tokens, held[1])
        return BudgetStatus(account, spent, reserved, calls, unpriced, assumed)

    def subjects(self, account: BudgetAccount) -> list[str]:
        """Return all for whom an account's budget has counted in its period."""
        found = self._execute(_SUBJECTS, {"name": account.budget.name, "period": account.period})
        return [str(subject) for (subject,) in found]

    def reserve(
        self, id_: str, accounts: Sequence[BudgetAccount], size: CallBound, expires_at: float
    ) -> BudgetStatus | None:
        """Hold what a call may come to, on all accounts or, where one has not enough left, on none.

        Returns:
            The account that refuses it, if any does. A call that costs nothing is never refused; one whose
            cost cannot be told is, once nothing is left.
        """
        for each in accounts:
            amount = size.of(each.budget)
            free = amount == 0 and (each.budget.tokens is not None or size.nano is not None)
            standing = self.stand(each)
            if not free and standing.left < max(amount, 1):
                return standing
        for each in accounts:
            held: dict[str, SQLValue] = {"id": id_, "nano": size.nano or 0, "tokens": size.tokens}
            self._execute(_HOLD, each.key | held | {"expires_at": expires_at})
            self._add(each, size.nano or 0, size.tokens)
        return None

    def renew(self, id_: str, accounts: Sequence[BudgetAccount], expires_at: float) -> None:
        """Go on holding what is held for a call; what has lapsed meanwhile stays so."""
        for each in accounts:
            self._execute(_RENEW, each.key | {"id": id_, "expires_at": expires_at})

    def release(self, id_: str, accounts: Sequence[BudgetAccount]) -> None:
        """Let go of what is held for a call."""
        for each in accounts:
            mine: dict[str, SQLValue] = each.key | {"id": id_}
            for nano, tokens in cast("list[tuple[int, int]]", self._execute(_MINE, mine)):
                self._execute(_FREE, mine)
                self._add(each, -nano, -tokens)

    def spend(self, accounts: Sequence[BudgetAccount], bill: BudgetCharge) -> list[ThresholdReached]:
        """Count what a call has come to; returns which accounts have reached a threshold by it."""
        reached: list[ThresholdReached] = []
        for each in accounts:
            count: dict[str, SQLValue] = {"nano": bill.nano, "tokens": bill.tokens}
            marks = {"unpriced": int(bill.unpriced), "assumed": bill.assumed}
            self._execute(_SPEND, each.key | count | marks)
            nano, tokens, *_ = self._spent(each)
            of_tokens, limit = each.budget.tokens is not None, each.budget.limit
            now, gained = (tokens, bill.tokens) if of_tokens else (nano, bill.nano)
            before = now - gained
            passed = [t for t in THRESHOLDS if 100 * before < t * limit <= 100 * now]
            reached += [ThresholdReached(each, percent, now) for percent in passed]
        return reached

    def _spent(self, account: BudgetAccount) -> tuple[int, ...]:
        found = self._execute(_SPENT, account.key) or [(0, 0, 0, 0, 0)]
        return cast("tuple[int, ...]", found[0])

    def _holding(self, account: BudgetAccount) -> list[int]:
        held = self._held.get(account)
        if held is None:
            held = self._held[account] = [int(value or 0) for value in self._execute(_HELD, account.key)[0]]
        return held

    def _add(self, account: BudgetAccount, nano: int, tokens: int) -> None:
        if (held := self._held.get(account)) is not None:
            held[0] += nano
            held[1] += tokens
