"""The tables of budgets in the ledger's database.

``budget_spend`` has the sums of finished calls; ``budget_holds`` has a row for each open call. A row whose
lease has ended is charged, as the provider may bill the call, and moved to ``budget_lapsed``, so that the
actual cost replaces the charge if the process had only been suspended. ``budget_outputs`` has the number of
lines of a batch's output that have been charged. ``budget_marks`` has the number of
each worker's last transaction. All access is in transactions that exclude other writers, in SQL that is valid
in SQLite and PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import cast

from specclient.budgets.accounts import (
    BudgetAccount,
    BudgetCharge,
    BudgetStatus,
    CallBound,
    ThresholdReached,
)
from specclient.ledger.encoding import MAX_COUNT, MAX_NANO
from specclient.ledger.store import Execute, SQLValue
from specclient.types.budget import THRESHOLDS

__all__ = ["BudgetTransaction"]

_ACCOUNT = "name = :name AND subject = :subject AND period = :period"
_CREATE = (
    "CREATE TABLE IF NOT EXISTS budget_spend (name TEXT NOT NULL, subject TEXT NOT NULL, "
    "period TEXT NOT NULL, nano BIGINT NOT NULL, tokens BIGINT NOT NULL, calls BIGINT NOT NULL, "
    "unpriced BIGINT NOT NULL, assumed BIGINT NOT NULL, PRIMARY KEY (name, subject, period))",
    "CREATE TABLE IF NOT EXISTS budget_holds (name TEXT NOT NULL, subject TEXT NOT NULL, "
    "period TEXT NOT NULL, id TEXT NOT NULL, nano BIGINT NOT NULL, tokens BIGINT NOT NULL, "
    "expires_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, subject, period, id))",
    "CREATE TABLE IF NOT EXISTS budget_lapsed (name TEXT NOT NULL, subject TEXT NOT NULL, "
    "period TEXT NOT NULL, id TEXT NOT NULL, nano BIGINT NOT NULL, tokens BIGINT NOT NULL, "
    "expires_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, subject, period, id))",
    "CREATE TABLE IF NOT EXISTS budget_outputs (output TEXT NOT NULL PRIMARY KEY, lines BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS budget_marks (worker TEXT NOT NULL PRIMARY KEY, number BIGINT NOT NULL, "
    "made_at DOUBLE PRECISION NOT NULL)",
)
_COUNTS = ("nano", "tokens", "calls", "unpriced", "assumed")
_SUMS = f"""SELECT spend.nano, spend.tokens, spend.calls, spend.unpriced, spend.assumed,
        held.nano, held.tokens
    FROM (SELECT COALESCE(SUM(nano), 0) AS nano, COALESCE(SUM(tokens), 0) AS tokens
          FROM budget_holds WHERE {_ACCOUNT}) AS held
    LEFT JOIN budget_spend AS spend
        ON spend.name = :name AND spend.subject = :subject AND spend.period = :period"""  # noqa: S608
_HOLD = """INSERT INTO budget_holds (name, subject, period, id, nano, tokens, expires_at)
    VALUES (:name, :subject, :period, :id, :nano, :tokens, :expires_at)"""
_MINE = f"SELECT nano, tokens FROM budget_holds WHERE {_ACCOUNT} AND id = :id"  # noqa: S608
_FREE = f"DELETE FROM budget_holds WHERE {_ACCOUNT} AND id = :id"  # noqa: S608
_RENEW = f"UPDATE budget_holds SET expires_at = :expires_at WHERE {_ACCOUNT} AND id = :id"  # noqa: S608
_EXPIRED = "SELECT name, subject, period, nano, tokens FROM budget_holds WHERE expires_at <= :now"
_LAPSE = """INSERT INTO budget_lapsed (name, subject, period, id, nano, tokens, expires_at)
    SELECT name, subject, period, id, nano, tokens, expires_at FROM budget_holds WHERE expires_at <= :now"""
_EXPIRE = "DELETE FROM budget_holds WHERE expires_at <= :now"
_FORGET = "DELETE FROM budget_lapsed WHERE expires_at <= :before"
_LAPSED = f"SELECT nano, tokens FROM budget_lapsed WHERE {_ACCOUNT} AND id = :id"  # noqa: S608
_UNLAPSE = f"DELETE FROM budget_lapsed WHERE {_ACCOUNT} AND id = :id"  # noqa: S608
_REFUND = f"""UPDATE budget_spend SET nano = nano - :nano, tokens = tokens - :tokens, calls = calls - 1,
    assumed = assumed - 1 WHERE {_ACCOUNT}"""  # noqa: S608
_SPEND = """INSERT INTO budget_spend (name, subject, period, nano, tokens, calls, unpriced, assumed)
    VALUES (:name, :subject, :period, :nano, :tokens, :calls, :unpriced, :assumed)
    ON CONFLICT (name, subject, period) DO UPDATE SET
        nano = budget_spend.nano + excluded.nano, tokens = budget_spend.tokens + excluded.tokens,
        calls = budget_spend.calls + excluded.calls, unpriced = budget_spend.unpriced + excluded.unpriced,
        assumed = budget_spend.assumed + excluded.assumed"""
_SPEND_RETURNING = f"{_SPEND} RETURNING nano, tokens"
_FREE_RETURNING = f"{_FREE} RETURNING nano, tokens"
_MARK = """INSERT INTO budget_marks (worker, number, made_at) VALUES (:worker, :number, :made_at)
    ON CONFLICT (worker) DO UPDATE SET number = excluded.number, made_at = excluded.made_at"""
_FREE_ALL = "DELETE FROM budget_holds WHERE id = :id"
_LAPSED_ALL = "SELECT name, subject, period, nano, tokens FROM budget_lapsed WHERE id = :id"
_UNLAPSE_ALL = "DELETE FROM budget_lapsed WHERE id = :id"
_LINES = "SELECT lines FROM budget_outputs WHERE output = :output"
_CHARGED = """INSERT INTO budget_outputs (output, lines) VALUES (:output, :lines)
    ON CONFLICT (output) DO UPDATE SET lines = excluded.lines"""
_MARKED = "SELECT number FROM budget_marks WHERE worker = :worker"
_FORGET_MARKS = "DELETE FROM budget_marks WHERE made_at < :before"
_SUBJECTS = """SELECT subject FROM budget_spend WHERE name = :name AND period = :period
    UNION SELECT subject FROM budget_holds WHERE name = :name AND period = :period ORDER BY 1"""

#: Seconds after which the charge of a call whose lease ended is final: its process is taken to have died.
_LAPSED_S = 7 * 86_400.0
#: Whether SQLite returns the rows that a statement changes; else they are read by a statement of their own.
_HAS_RETURNING = sqlite3.sqlite_version_info >= (3, 35)


class _AccountSums:
    """The sums that an account has spent and reserved, read once in a transaction and then kept up to date.

    Attributes:
        account: the account.
        spent: the values of its row in ``budget_spend``, with those in ``added``; None if they are not read.
        held: nano-dollars and tokens that are reserved; None if they are not read.
        added: the part of ``spent`` that is not written yet; None if nothing is.
    """

    __slots__ = ("account", "added", "held", "spent")

    def __init__(self, account: BudgetAccount) -> None:
        self.account = account
        self.spent: list[int] | None = None
        self.held: list[int] | None = None
        self.added: list[int] | None = None


class BudgetTransaction:
    """Access to the tables within one transaction; :meth:`write` must end it.

    The sums of an account are read once, updated in memory and written once, as no other writer interferes:
    when many calls share the transaction, each costs the same, however many there are.

    Attributes:
        reached: the thresholds that the charges written by :meth:`write` have reached.
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._sums: dict[tuple[str, str, str], _AccountSums] = {}
        self.reached: list[ThresholdReached] = []

    def create(self) -> None:
        """Create the tables if they are missing."""
        for statement in _CREATE:
            self._execute(statement)

    def expire(self, now: float) -> None:
        """Charge reservations whose lease has ended; their processes have died.

        Args:
            now: seconds since the epoch.
        """
        charged = self._execute(_EXPIRED, {"now": now})
        if not charged:
            return
        self._forget_sums()
        for name, subject, period, nano, tokens in charged:
            key = {"name": name, "subject": subject, "period": period}
            counts = {"nano": nano, "tokens": tokens, "calls": 1, "unpriced": 0, "assumed": 1}
            self._execute(_SPEND, key | counts)
        self._execute(_LAPSE, {"now": now})
        self._execute(_EXPIRE, {"now": now})
        self._execute(_FORGET, {"before": now - _LAPSED_S})

    def mark(self, worker: str, number: int, now: float) -> None:
        """Note the number of a worker's transaction; it is in the table if, and only if, that is committed.

        Args:
            worker: identifier of the worker.
            number: grows with each transaction of the worker.
            now: seconds since the epoch.
        """
        self._execute(_MARK, {"worker": worker, "number": number, "made_at": now})

    def marked(self, worker: str) -> int:
        """Return the number of the last committed transaction that a worker marked; 0 if there is none."""
        found = self._execute(_MARKED, {"worker": worker})
        return cast("int", found[0][0]) if found else 0

    def forget_marks(self, before: float) -> None:
        """Remove the marks that were made before an instant, in seconds since the epoch."""
        self._execute(_FORGET_MARKS, {"before": before})

    def status(self, account: BudgetAccount) -> BudgetStatus:
        """Return the status of an account."""
        (nano, tokens, calls, unpriced, assumed), held = self._read(account)
        spent, reserved = (nano, held[0]) if account.budget.tokens is None else (tokens, held[1])
        return BudgetStatus(account, spent, reserved, calls, unpriced, assumed)

    def subjects(self, account: BudgetAccount) -> list[str]:
        """Return all subjects with calls in the account's budget and period."""
        found = self._execute(_SUBJECTS, {"name": account.budget.name, "period": account.period})
        return [str(subject) for (subject,) in found]

    def reserve(
        self, id_: str, accounts: Sequence[BudgetAccount], bound: CallBound, expires_at: float
    ) -> BudgetStatus | None:
        """Reserve the upper bound of a call in all accounts, or in none if one has not enough left.

        Returns:
            The status of an account with too little left, None if the amount is reserved. A call that costs
            nothing is never refused. A call of unknown cost is refused once nothing is left.
        """
        return self.reserve_each(id_, dict.fromkeys(accounts, bound), expires_at)

    def reserve_each(
        self, id_: str, bounds: Mapping[BudgetAccount, CallBound], expires_at: float
    ) -> BudgetStatus | None:
        """Reserve the upper bounds of a call's or a job's share in each account; see :meth:`reserve`."""
        for each, bound in bounds.items():
            amount = bound.amount_for(each.budget)
            is_free = amount == 0 and (each.budget.tokens is not None or bound.nano is not None)
            status = self.status(each)
            if not is_free and status.remaining < max(amount, 1):
                return status
        for each, bound in bounds.items():
            held: dict[str, SQLValue] = {"id": id_, "nano": bound.nano or 0, "tokens": bound.tokens}
            self._execute(_HOLD, each.key | held | {"expires_at": expires_at})
            self._add(each, bound.nano or 0, bound.tokens)
        return None

    def renew(self, id_: str, accounts: Sequence[BudgetAccount], expires_at: float) -> None:
        """Extend the reservations of a call; those that have expired stay charged."""
        for each in accounts:
            self._execute(_RENEW, each.key | {"id": id_, "expires_at": expires_at})

    def release(self, id_: str, accounts: Sequence[BudgetAccount]) -> None:
        """Remove the reservations of a call, or the charges made when they expired."""
        for each in accounts:
            mine: dict[str, SQLValue] = each.key | {"id": id_}
            held = cast("list[tuple[int, int]]", self._removed(mine))
            for nano, tokens in held:
                self._add(each, -nano, -tokens)
            for charged in () if held else self._execute(_LAPSED, mine):
                self._forget_sums()
                self._execute(_UNLAPSE, mine)
                self._execute(_REFUND, each.key | dict(zip(("nano", "tokens"), charged, strict=True)))

    def release_all(self, id_: str) -> None:
        """Remove the reservations of a job in all accounts, or the charges made when they expired."""
        self._forget_sums()
        self._execute(_FREE_ALL, {"id": id_})
        for name, subject, period, nano, tokens in self._execute(_LAPSED_ALL, {"id": id_}):
            key = {"name": name, "subject": subject, "period": period}
            self._execute(_REFUND, key | {"nano": nano, "tokens": tokens})
        self._execute(_UNLAPSE_ALL, {"id": id_})

    def lines_charged(self, output: str) -> int:
        """Return how many lines of an output have been charged."""
        found = self._execute(_LINES, {"output": output})
        return cast("int", found[0][0]) if found else 0

    def note_charged(self, output: str, lines: int) -> None:
        """Note that the first lines of an output have been charged."""
        self._execute(_CHARGED, {"output": output, "lines": lines})

    def spend(self, accounts: Sequence[BudgetAccount], charge: BudgetCharge) -> None:
        """Charge a finished call to accounts; :meth:`write` writes the charge.

        Amounts that no call has, but an answer may state, count as the largest that the ledger stores: a sum
        beyond 64 bits would fail the transaction, with the charges of other calls.
        """
        nano, used = min(charge.nano, MAX_NANO), min(charge.tokens, MAX_COUNT)
        amounts = (nano, used, 1, int(charge.unpriced), charge.assumed)
        for each in accounts:
            sums = self._sums_of(each)
            sums.added = _sum(sums.added or (0,) * len(amounts), amounts)
            if sums.spent is not None:
                sums.spent = _sum(sums.spent, amounts)

    def write(self) -> None:
        """Write what :meth:`spend` has charged, and note the thresholds that this has reached."""
        for sums in self._sums.values():
            if (added := sums.added) is None:
                continue
            account, sums.added = sums.account, None
            spent = self._charged(account, dict(zip(_COUNTS, added, strict=True)), sums.spent)
            unit, limit = int(account.budget.tokens is not None), account.budget.limit
            now, before = spent[unit], spent[unit] - added[unit]
            passed = [t for t in THRESHOLDS if 100 * before < t * limit <= 100 * now]
            self.reached += [ThresholdReached(account, percent, now) for percent in passed]

    def _charged(
        self, account: BudgetAccount, counts: dict[str, int], known: Sequence[int] | None
    ) -> Sequence[int]:
        """Add counts to an account's row; return the nano-dollars and tokens in it, then further values.

        Args:
            account: the account.
            counts: what is added.
            known: the values of the row afterwards; None if they must be read.
        """
        key = account.key
        if known is None and _HAS_RETURNING:
            return cast("Sequence[int]", self._execute(_SPEND_RETURNING, key | counts)[0])
        self._execute(_SPEND, key | counts)
        return self._read(account)[0] if known is None else known

    def _removed(self, mine: dict[str, SQLValue]) -> list[tuple[SQLValue, ...]]:
        """Remove the reservation of a call in an account; return its amounts, nothing if there is none."""
        if _HAS_RETURNING:
            return self._execute(_FREE_RETURNING, mine)
        if held := self._execute(_MINE, mine):
            self._execute(_FREE, mine)
        return held

    def _forget_sums(self) -> None:
        """Read the sums again when they are needed, because statements change them."""
        self.write()
        self._sums.clear()

    def _sums_of(self, account: BudgetAccount) -> _AccountSums:
        key = account.budget.name, account.subject, account.period
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = _AccountSums(account)
        return sums

    def _read(self, account: BudgetAccount) -> tuple[Sequence[int], Sequence[int]]:
        """Return what an account has spent, including unwritten charges, and what it has reserved."""
        sums = self._sums_of(account)
        if sums.spent is None or sums.held is None:
            found = [int(value or 0) for value in self._execute(_SUMS, account.key)[0]]
            spent, sums.held = found[: len(_COUNTS)], found[len(_COUNTS) :]
            sums.spent = spent if sums.added is None else _sum(spent, sums.added)
        return sums.spent, sums.held

    def _add(self, account: BudgetAccount, nano: int, tokens: int) -> None:
        if (held := self._sums_of(account).held) is not None:
            held[0] += nano
            held[1] += tokens


def _sum(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(first, second, strict=True)]
