"""The worker of budgets: runs the database tasks of many calls in few transactions.

All waiting tasks share the next transaction. A thread runs it, so that no event loop waits for the disk or
another process.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from specclient.budgets.tables import BudgetTransaction
from specclient.errors import LedgerError
from specclient.ledger.store import Execute, SQLValue
from specclient.runtime.forks import register_fork_reset

__all__ = ["BudgetWorker", "MemoryDatabase", "Transact"]

T = TypeVar("T")

#: Seconds without tasks after which the thread ends.
IDLE_S = 5.0
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
        after: called with the result of ``run`` after the commit.
        is_kept: whether the task is retried with the next transaction if the database fails. Its caller does
            not wait for that and gets None.
        done: the result of ``run``.
    """

    run: Callable[[BudgetTransaction], T]
    before: Callable[[], None] | None = None
    after: Callable[[T], None] | None = None
    is_kept: bool = False
    done: Future[Any] = field(default_factory=Future)


class BudgetWorker:
    """Runs tasks in the order of their submission.

    Args:
        transact: runs a transaction of the database.
        on_failure: called with the error message when tasks are kept for a later transaction.
    """

    def __init__(self, transact: Transact, on_failure: Callable[[str], None]) -> None:
        self._transact = transact
        self._on_failure = on_failure
        self.reset_after_fork()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Drop the waiting tasks in a forked child: the parent runs them."""
        self._lock = threading.Lock()  # guards whether there is a thread
        self._thread: threading.Thread | None = None
        self._waiting: SimpleQueue[BudgetTask[Any]] = SimpleQueue()
        self._kept: list[BudgetTask[Any]] = []
        self._prepared = False

    def flush(self) -> None:
        """Wait until all tasks are done or have failed; kept tasks are retried once."""
        if self._kept or self._thread is not None:
            self.submit(BudgetTask(_nothing)).exception()

    def submit(self, task: BudgetTask[Any]) -> Future[Any]:
        """Queue a task. Neither the task nor its future can be cancelled."""
        task.done.set_running_or_notify_cancel()
        with self._lock:
            self._waiting.put(task)
            if self._thread is None:
                self._start()
        return task.done

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
                first = self._waiting.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            self._run_all(_with_waiting(first, self._waiting))
            del first

    def _run_all(self, submitted: list[BudgetTask[Any]]) -> None:
        tasks = [task for task in submitted if _is_ready(task)]
        everything = [*self._kept, *tasks]
        try:
            results = self._transact(lambda execute: self._run(execute, everything))
        except LedgerError as error:
            self._prepared = False
            self._kept = [task for task in everything if task.is_kept][-_MAX_KEPT:]
            if self._kept:
                self._on_failure(str(error))
            for task in tasks:
                if task.is_kept:
                    task.done.set_result(None)
                else:
                    task.done.set_exception(LedgerError(str(error)))
            return
        except BaseException as error:  # noqa: BLE001 - raised in the callers, who would wait forever
            for task in tasks:
                task.done.set_exception(error)
            return
        kept, self._kept, self._prepared = len(self._kept), [], True
        for place, (task, result) in enumerate(zip(everything, results, strict=True)):
            if task.after is not None:
                task.after(result)
            if place >= kept:  # the future of a kept task is done already
                task.done.set_result(result)

    def _run(self, execute: Execute, tasks: list[BudgetTask[Any]]) -> list[Any]:
        tables = BudgetTransaction(execute)
        if not self._prepared:
            tables.create()
        return [task.run(tables) for task in tasks]


def _with_waiting(first: BudgetTask[Any], waiting: SimpleQueue[BudgetTask[Any]]) -> list[BudgetTask[Any]]:
    """Return a task and all that wait behind it."""
    tasks = [first]
    with suppress(Empty):
        while True:
            tasks.append(waiting.get_nowait())
    return tasks


def _nothing(_: BudgetTransaction) -> None:
    """Do nothing; the task only takes part in the transaction of the tasks before it."""


def _is_ready(task: BudgetTask[Any]) -> bool:
    try:
        if task.before is not None:
            task.before()
    except BaseException as error:  # noqa: BLE001 - as above
        task.done.set_exception(error)
        return False
    return True


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
