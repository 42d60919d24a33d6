"""The worker of budgets: runs the database tasks of many calls in few transactions.

All waiting tasks share the next transaction. A thread runs it, so that no event loop waits for the disk or
another process. The tasks of one turn of an event loop are handed to the thread together: it takes longer to
wake a thread, and to share Python's lock with it, than to run a task.

Tasks that must not be lost are kept while the database fails, and retried every :data:`RETRY_S`. A connection
may break while a transaction is being committed; whether it was committed is then known from the mark that
each such transaction leaves in the database, so that no call is charged twice.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from specclient.budgets.accounts import ThresholdReached
from specclient.budgets.tables import BudgetTransaction
from specclient.errors import LedgerError
from specclient.ledger.store import Execute, SQLValue
from specclient.runtime.forks import register_fork_reset

__all__ = ["BudgetWorker", "MemoryDatabase", "Transact"]

T = TypeVar("T")

#: Seconds without tasks after which the thread ends.
IDLE_S = 5.0
#: Seconds between two retries of kept tasks.
RETRY_S = 1.0
#: Seconds for which the mark of a worker's last transaction stays in the database.
_MARK_S = 7 * 86_400.0
#: Number of tasks kept while the database fails; beyond it the oldest are dropped.
_MAX_KEPT = 10_000


class Transact(Protocol):
    """Runs statements in one transaction; see :meth:`specclient.ledger.ledger.Ledger.transact`."""

    def __call__(self, work: Callable[[Execute], T], /) -> T:
        """Return the result of ``work``; raise LedgerError if the database fails."""
        ...


@dataclass(slots=True, eq=False)
class BudgetTask(Generic[T]):
    """A task that shares a transaction with others.

    Attributes:
        run: runs within the transaction. It must not raise, as this would roll back the other tasks.
        before: runs before the transaction; its exception is raised in the caller.
        is_kept: whether the task is retried with the next transaction if the database fails. Its caller does
            not wait for that and gets None.
        first_try: number of the first transaction that held the task; 0 before.
        done: the result of ``run``, for callers in threads; None without any.
        waiter: the same for a caller in an event loop.
    """

    run: Callable[[BudgetTransaction], T]
    before: Callable[[], None] | None = None
    is_kept: bool = False
    first_try: int = 0
    done: Future[Any] | None = None
    waiter: asyncio.Future[Any] | None = None


class BudgetWorker:
    """Runs tasks in the order of their submission.

    Args:
        transact: runs a transaction of the database.
        on_thresholds: called after the commit with the thresholds that the tasks have reached, if any, before
            their callers go on.
        on_failure: called with the error message when tasks are kept for a later transaction.
    """

    def __init__(
        self,
        transact: Transact,
        on_thresholds: Callable[[Sequence[ThresholdReached]], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._transact = transact
        self._on_thresholds = on_thresholds
        self._on_failure = on_failure
        self.reset_after_fork()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Drop the waiting tasks in a forked child: the parent runs them."""
        # Guards whether there is a thread. Where none can be started, tasks run while it is held.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._waiting: SimpleQueue[list[BudgetTask[Any]]] = SimpleQueue()
        self._gathered: list[BudgetTask[Any]] = []  # not waiting yet; guarded by the lock
        self._turns: set[asyncio.AbstractEventLoop] = set()  # hand the gathered ones over in their next turn
        self._kept: list[BudgetTask[Any]] = []
        self._prepared = False
        self._identifier = uuid4().hex  # of the marks
        self._number = 0  # of the last transaction

    def flush(self) -> None:
        """Wait until all tasks are done or have failed; kept tasks are retried once."""
        if self._kept or self._gathered or self._thread is not None:
            done: Future[None] = Future()
            self.submit(BudgetTask(_nothing, done=done))
            done.exception()

    def submit(self, task: BudgetTask[Any]) -> None:
        """Queue a task. It cannot be cancelled."""
        with self._lock:
            self._gathered.append(task)
            self._hand_over()

    def awaited(self, task: BudgetTask[Any]) -> asyncio.Future[Any]:
        """Queue a task at the end of the running event loop's turn, and return its result for this loop."""
        loop = asyncio.get_running_loop()
        task.waiter = loop.create_future()
        with self._lock:
            self._gathered.append(task)
            if loop not in self._turns:
                self._turns.add(loop)
                loop.call_soon(self._end_turn)
        return task.waiter

    def _end_turn(self) -> None:
        with self._lock:
            if self._gathered:  # not handed over by another loop or thread meanwhile
                self._hand_over()

    def _hand_over(self) -> None:
        """Hand all gathered tasks to the thread, in their order; the lock is held."""
        self._waiting.put(self._gathered)
        self._gathered = []
        self._turns.clear()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name="specclient-budgets", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # no thread starts at interpreter exit
            self._run_all(_with_waiting(self._waiting.get(), self._waiting))

    def _serve(self) -> None:
        while True:
            try:
                first = self._waiting.get(timeout=RETRY_S if self._kept else IDLE_S)
            except Empty:
                if self._kept:
                    self._run_all([])
                    continue
                with self._lock:
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            self._run_all(_with_waiting(first, self._waiting))
            del first

    def _run_all(self, submitted: list[BudgetTask[Any]]) -> None:
        outcomes: list[_Outcome] = []
        tasks = [task for task in submitted if _is_ready(task, outcomes)]
        try:
            self._run_ready(tasks, outcomes)
        finally:
            _deliver(outcomes)

    def _run_ready(self, tasks: list[BudgetTask[Any]], outcomes: list[_Outcome]) -> None:
        everything = [*self._kept, *tasks]
        self._number += 1
        try:
            results, reached = self._transact(lambda execute: self._run(execute, everything))
        except LedgerError as error:
            self._prepared = False
            self._kept = [task for task in everything if task.is_kept][-_MAX_KEPT:]
            if self._kept:
                self._on_failure(str(error))
            outcomes += [
                _Outcome(task, None, None if task.is_kept else LedgerError(str(error))) for task in tasks
            ]
            return
        except BaseException as error:  # noqa: BLE001 - raised in the callers, who would wait forever
            outcomes += [_Outcome(task, None, error) for task in tasks]
            return
        kept, self._kept, self._prepared = len(self._kept), [], True
        if reached:
            self._on_thresholds(reached)
        for place, (task, result) in enumerate(zip(everything, results, strict=True)):
            if place >= kept:  # the caller of a kept task has its result already
                outcomes.append(_Outcome(task, result))

    def _run(
        self, execute: Execute, tasks: list[BudgetTask[Any]]
    ) -> tuple[list[Any], list[ThresholdReached]]:
        """Run the tasks, but not those of a failed transaction that was committed; their result is None.

        Returns:
            The results, and the thresholds that the tasks have reached.
        """
        tables = BudgetTransaction(execute)
        if not self._prepared:
            tables.create()
            tables.forget_marks(time.time() - _MARK_S)
        done = tables.marked(self._identifier) if self._kept else 0
        if any(task.is_kept for task in tasks):
            tables.mark(self._identifier, self._number, time.time())
        results: list[Any] = []
        for task in tasks:
            is_done = 0 < task.first_try <= done
            task.first_try = task.first_try or self._number
            results.append(None if is_done else task.run(tables))
        tables.write()
        return results, tables.reached


def _with_waiting(
    first: list[BudgetTask[Any]], waiting: SimpleQueue[list[BudgetTask[Any]]]
) -> list[BudgetTask[Any]]:
    """Return tasks and all that wait behind them."""
    tasks = first
    with suppress(Empty):
        while True:
            tasks += waiting.get_nowait()
    return tasks


def _nothing(_: BudgetTransaction) -> None:
    """Do nothing; the task only takes part in the transaction of the tasks before it."""


def _is_ready(task: BudgetTask[Any], outcomes: list[_Outcome]) -> bool:
    try:
        if task.before is not None:
            task.before()
    except BaseException as error:  # noqa: BLE001 - as above
        outcomes.append(_Outcome(task, None, error))
        return False
    return True


class _Outcome(NamedTuple):
    """The result of a task, or the exception for its caller."""

    task: BudgetTask[Any]
    result: Any
    error: BaseException | None = None


def _deliver(outcomes: list[_Outcome]) -> None:
    """Hand the outcomes of a transaction to the callers, to those of an event loop together."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        task, result, error = outcome
        if task.waiter is not None:
            by_loop.setdefault(task.waiter.get_loop(), []).append(outcome)
        elif task.done is not None and error is None:
            task.done.set_result(result)
        elif task.done is not None:
            task.done.set_exception(error)
    for loop, own in by_loop.items():
        with suppress(RuntimeError):  # the event loop has been closed
            loop.call_soon_threadsafe(_settle_waiters, own)


def _settle_waiters(outcomes: list[_Outcome]) -> None:
    for task, result, error in outcomes:
        waiter = task.waiter
        if waiter is None or waiter.done():
            continue
        if error is None:
            waiter.set_result(result)
        else:
            waiter.set_exception(error)


class MemoryDatabase:
    """A database in memory, used if the ledger is off. A forked child starts with an empty one.

    It is closed when it is garbage-collected, as nothing of it outlives the process.
    """

    def __init__(self) -> None:
        self.reset_after_fork()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Start with an empty database."""
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)

    def transact(self, work: Callable[[Execute], T], /) -> T:
        """Run ``work`` in one transaction and return its result; an exception rolls the transaction back."""
        with self._lock:
            connection = self._connection

            def execute(sql: str, params: Mapping[str, SQLValue] = {}, /) -> list[tuple[SQLValue, ...]]:
                return connection.execute(sql, params).fetchall()

            connection.execute("BEGIN")
            try:
                result = work(execute)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            return result
