"""Turn what many calls ask of a database into few transactions: all that wait share the next one.

A thread does the work, so that no event loop waits for a disk or another process.
"""

from __future__ import annotations

import sqlite3
import threading
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

#: Seconds without work after which the thread ends.
IDLE_S = 5.0
#: Works that are kept for a database that fails; beyond it the oldest are dropped.
_KEPT = 10_000


class Transact(Protocol):
    """Runs statements in one transaction; see :meth:`specclient.ledger.ledger.Ledger.transact`."""

    def __call__(self, work: Callable[[Execute], T], /) -> T:
        """Return what ``work`` returns; raises LedgerError where the database fails."""
        ...


@dataclass(slots=True, eq=False)
class BudgetTask(Generic[T]):
    """A share of a transaction.

    Attributes:
        run: takes part in the transaction; must not raise, as it would undo the others'.
        before: prepares it, outside of the transaction; what it raises is raised in the caller.
        after: called with what it returned, once that is committed.
        lasting: whether it is tried again with the next transaction, where the database fails. Its caller
            does not wait for that, and gets None.
    """

    run: Callable[[BudgetTransaction], T]
    before: Callable[[], None] | None = None
    after: Callable[[T], None] | None = None
    lasting: bool = False
    done: Future[Any] = field(default_factory=Future)


class BudgetWorker:
    """Does works in the order in which they come.

    Args:
        transact: of the database.
        troubled: told why a lasting work has to wait.
    """

    def __init__(self, transact: Transact, troubled: Callable[[str], None]) -> None:
        self._transact = transact
        self._troubled = troubled
        self.reset_after_fork()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Forget what waits: in a forked child it is the parent's."""
        self._lock = threading.Lock()  # guards whether there is a thread
        self._thread: threading.Thread | None = None
        self._waiting: SimpleQueue[BudgetTask[Any]] = SimpleQueue()
        self._owed: list[BudgetTask[Any]] = []
        self._prepared = False

    def flush(self) -> None:
        """Wait until all works are done, or have failed; those that were kept are tried once more."""
        if self._owed or self._thread is not None:
            self.submit(BudgetTask(_nothing)).exception()

    def submit(self, work: BudgetTask[Any]) -> Future[Any]:
        """Have a work done; the future cannot be cancelled, as the work cannot."""
        work.done.set_running_or_notify_cancel()
        with self._lock:
            self._waiting.put(work)
            if self._thread is None:
                self._start()
        return work.done

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name="specclient-budgets", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # no threads start while the interpreter ends
            self._do(_all(self._waiting.get(), self._waiting))

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
            self._do(_all(first, self._waiting))
            del first

    def _do(self, asked: list[BudgetTask[Any]]) -> None:
        works = [work for work in asked if _ready(work)]
        everything = [*self._owed, *works]
        try:
            results = self._transact(lambda execute: self._run(execute, everything))
        except LedgerError as error:
            self._prepared = False
            self._owed = [work for work in everything if work.lasting][-_KEPT:]
            if self._owed:
                self._troubled(str(error))
            for work in works:
                if work.lasting:
                    work.done.set_result(None)
                else:
                    work.done.set_exception(LedgerError(str(error)))
            return
        except BaseException as error:  # noqa: BLE001 - raised in the callers, who would wait for ever
            for work in works:
                work.done.set_exception(error)
            return
        owed, self._owed, self._prepared = len(self._owed), [], True
        for place, (work, result) in enumerate(zip(everything, results, strict=True)):
            if work.after is not None:
                work.after(result)
            if place >= owed:
                work.done.set_result(result)

    def _run(self, execute: Execute, works: list[BudgetTask[Any]]) -> list[Any]:
        page = BudgetTransaction(execute)
        if not self._prepared:
            page.create()
        return [work.run(page) for work in works]


def _all(first: BudgetTask[Any], waiting: SimpleQueue[BudgetTask[Any]]) -> list[BudgetTask[Any]]:
    """Return a work and all that wait behind it."""
    found = [first]
    with suppress(Empty):
        while True:
            found.append(waiting.get_nowait())
    return found


def _nothing(_: BudgetTransaction) -> None:
    """Take part in a transaction for the sake of the others."""


def _ready(work: BudgetTask[Any]) -> bool:
    try:
        if work.before is not None:
            work.before()
    except BaseException as error:  # noqa: BLE001 - as above
        work.done.set_exception(error)
        return False
    return True


class MemoryDatabase:
    """A database in this process's memory, for a ledger that is off; a forked child has an empty one."""

    def __init__(self) -> None:
        self.reset_after_fork()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def transact(self, work: Callable[[Execute], T], /) -> T:
        """Return what ``work`` returns, its statements in one transaction; whatever it raises undoes them."""
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
