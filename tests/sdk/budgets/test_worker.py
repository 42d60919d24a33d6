"""The worker of budgets shares transactions between the tasks of an event loop's turn, in their order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import pytest

from specclient import Budget
from specclient.budgets.accounts import BudgetCharge, account_at
from specclient.budgets.tables import BudgetTransaction
from specclient.budgets.worker import BudgetTask, BudgetWorker, MemoryDatabase
from specclient.ledger.store import Execute

T = TypeVar("T")


class CountedDatabase(MemoryDatabase):
    """A database in memory that counts its transactions."""

    transactions = 0

    def transact(self, work: Callable[[Execute], T], /) -> T:
        self.transactions += 1
        return super().transact(work)


@pytest.fixture
def database() -> Iterator[CountedDatabase]:
    database = CountedDatabase()
    yield database
    database._connection.close()


@pytest.fixture
def worker(database: CountedDatabase) -> Iterator[BudgetWorker]:
    worker = BudgetWorker(database.transact, pytest.fail, pytest.fail)
    yield worker
    worker.flush()


def test_the_tasks_of_one_turn_share_a_transaction(database: CountedDatabase, worker: BudgetWorker) -> None:
    ran: list[int] = []

    async def run() -> None:
        await asyncio.gather(*(worker.awaited(noting(ran, number)) for number in range(20)))

    asyncio.run(run())
    assert ran == list(range(20))
    assert database.transactions == 1


def test_a_task_without_a_waiter_does_not_overtake_those_of_the_turn(worker: BudgetWorker) -> None:
    """A call that is cancelled in the turn in which it reserved must release after the reservation."""
    ran: list[int] = []

    async def run() -> None:
        first = worker.awaited(noting(ran, 1))
        worker.submit(noting(ran, 2))
        await worker.awaited(noting(ran, 3))
        assert await first is None

    asyncio.run(run())
    assert ran == [1, 2, 3]


@pytest.mark.parametrize("other_loop", [False, True])
def test_tasks_of_a_loop_that_has_stopped_are_run(worker: BudgetWorker, *, other_loop: bool) -> None:
    """The program's end flushes them; the tasks of another loop take them along."""
    ran: list[int] = []
    loop = asyncio.new_event_loop()
    loop.call_soon(loop.stop)
    loop.call_soon(
        worker.awaited, noting(ran, 1)
    )  # its turn ends in the loop's next iteration, which never comes
    loop.run_forever()
    assert not ran

    async def run() -> None:
        await worker.awaited(noting(ran, 2))

    if other_loop:
        asyncio.run(run())
    else:
        worker.flush()
    assert ran == ([1, 2] if other_loop else [1])
    loop.close()


def test_a_notice_may_lead_to_a_task_where_no_thread_can_be_started(
    database: CountedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the interpreter, tasks run in the thread that submits them, and ``notify`` may call."""
    ran: list[int] = []
    account = account_at(Budget(name="b", usd=1), "", datetime(2026, 1, 1, tzinfo=UTC))
    worker = BudgetWorker(database.transact, lambda _: worker.submit(noting(ran, 2)), pytest.fail)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def spend(transaction: BudgetTransaction) -> None:
        ran.append(1)
        transaction.spend([account], BudgetCharge(nano=10**9, tokens=0))

    monkeypatch.setattr(threading.Thread, "start", refuse)
    worker.submit(BudgetTask(spend))
    assert ran == [1, 2]


def noting(ran: list[int], number: int) -> BudgetTask[None]:
    """Return a task that notes a number when it runs."""
    return BudgetTask(partial(_note, ran, number))


def _note(ran: list[int], number: int, _: BudgetTransaction) -> None:
    ran.append(number)
