"""The sums of budgets equal those of a model for any sequence of reservations and settlements."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from specclient import Budget
from specclient.budgets import tables
from specclient.budgets.accounts import BudgetCharge, CallBound, account_at
from specclient.budgets.tables import BudgetTransaction
from specclient.budgets.worker import MemoryDatabase
from specclient.ledger.store import Execute

STEP = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 40), st.integers(0, 40)),
    st.tuples(st.just("settle"), st.integers(0, 20), st.integers(0, 60)),
    st.tuples(st.just("release"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("renew"), st.integers(0, 20), st.just(0)),
)


class Model:
    """The expected sums of two budgets, in dollars and in tokens; also applies each step to the database."""

    def __init__(self) -> None:
        day = datetime(2026, 1, 1, tzinfo=UTC)
        budgets = Budget(name="n", usd="1e-7"), Budget(name="t", tokens=150)
        self.accounts = [account_at(each, "", day) for each in budgets]
        self.now, self.spent = 0.0, [0, 0]
        self.open: dict[str, tuple[tuple[int, int], float]] = {}
        self.lapsed: set[str] = set()
        self.names = iter(range(10**6))

    def reserved(self, unit: int) -> int:
        held = (amounts[unit] for name, (amounts, _) in self.open.items() if name not in self.lapsed)
        return sum(held)

    def lapse(self) -> None:
        """Charge the reservations whose lease has ended."""
        for name, (amounts, until) in self.open.items():
            if until <= self.now and name not in self.lapsed:
                self.lapsed.add(name)
                self._charge(*amounts)

    def _charge(self, nano: int, tokens: int) -> None:
        self.spent = [self.spent[0] + nano, self.spent[1] + tokens]

    def step(self, transaction: BudgetTransaction, kind: str, number: int, amount: int) -> None:
        transaction.expire(self.now)
        if kind == "reserve":
            name, limits = str(next(self.names)), [each.budget.limit for each in self.accounts]
            wanted = number, amount
            used = [self.spent[unit] + self.reserved(unit) for unit in (0, 1)]
            fits = all(not wanted[unit] or used[unit] + wanted[unit] <= limits[unit] for unit in (0, 1))
            refusing = transaction.reserve(name, self.accounts, CallBound(number, amount, 0), self.now + 10)
            assert (refusing is None) is fits
            if fits:
                self.open[name] = wanted, self.now + 10
        elif self.open:
            chosen = list(self.open)[number % len(self.open)]
            if kind == "renew":
                transaction.renew(chosen, self.accounts, self.now + 10)
                self.open[chosen] = self.open[chosen][0], self.now + 10
                return
            (nano, tokens), _ = self.open.pop(chosen)
            transaction.release(chosen, self.accounts)
            if chosen in self.lapsed:
                self._charge(-nano, -tokens)
            if kind == "settle":
                transaction.spend(self.accounts, BudgetCharge(amount, 2 * amount))
                self._charge(amount, 2 * amount)

    def stored(self, transaction: BudgetTransaction) -> list[tuple[int, int]]:
        return [(each.spent, each.reserved) for each in map(transaction.status, self.accounts)]

    def expected(self) -> list[tuple[int, int]]:
        return [(self.spent[unit], self.reserved(unit)) for unit in (0, 1)]


@given(st.booleans(), st.lists(st.tuples(st.integers(0, 7), st.lists(STEP, max_size=6)), max_size=12))
def test_any_order_of_steps_keeps_the_sums(
    has_returning: bool,
    transactions: list[tuple[int, list[tuple[str, int, int]]]],
) -> None:
    """Spent is the sum of settlements and expired holds, reserved that of other open holds.

    Versions of SQLite before 3.35 do not return the rows that a statement changes.
    """
    with mock.patch.object(tables, "_HAS_RETURNING", has_returning):
        _check_steps(transactions)


def _check_steps(transactions: list[tuple[int, list[tuple[str, int, int]]]]) -> None:
    model, memory = Model(), MemoryDatabase()
    memory.transact(lambda execute: BudgetTransaction(execute).create())

    def run_steps(execute: Execute, steps: list[tuple[str, int, int]]) -> None:
        transaction = BudgetTransaction(execute)
        for step in steps:
            model.step(transaction, *step)
            assert model.stored(transaction) == model.expected()
        transaction.write()

    def check(execute: Execute) -> None:
        transaction = BudgetTransaction(execute)
        transaction.expire(model.now)
        assert model.stored(transaction) == model.expected()

    for seconds, steps in transactions:
        model.now += seconds
        model.lapse()
        memory.transact(partial(run_steps, steps=steps))
        memory.transact(check)
    memory._connection.close()


def test_a_charge_that_no_call_has_fails_no_other_charge() -> None:
    account = account_at(Budget(name="b", usd=1, mode="soft"), "", datetime(2026, 1, 1, tzinfo=UTC))

    def spend(execute: Execute) -> int:
        transaction = BudgetTransaction(execute)
        transaction.create()
        transaction.spend([account], BudgetCharge(7, 5))
        transaction.spend([account], BudgetCharge(10**24, 10**15))
        transaction.write()
        return transaction.status(account).calls

    database = MemoryDatabase()
    assert [database.transact(spend) for _ in range(3)] == [2, 4, 6]
    read = database.transact(lambda execute: BudgetTransaction(execute).status(account))
    assert 7 < read.spent < 2**63
