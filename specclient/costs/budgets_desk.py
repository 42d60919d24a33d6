"""Turn what many calls ask of a database into few transactions: all that wait share the next one.

A thread does the work while there is any, so that no event loop waits for a disk or another process.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from specclient.costs.budgets_book import Page
from specclient.costs.schema import Execute, Value
from specclient.errors import LedgerError
from specclient.forks import restart_in_child

__all__ = ["Desk", "Memory", "Transact"]

T = TypeVar("T")

#: Works that are kept for a database that fails; beyond it the oldest are dropped.
_KEPT = 10_000


class Transact(Protocol):
    """Runs statements in one transaction; see :meth:`specclient.costs.ledger.Ledger.transact`."""

    def __call__(self, work: Callable[[Execute], T], /) -> T:
        """Return what ``work`` returns; raises LedgerError where the database fails."""
        ...


@dataclass(slots=True, eq=False)
class Work(Generic[T]):
    """A share of a transaction.

    Attributes:
        run: takes part in the transaction; must not raise, as it would undo the others'.
        before: prepares it, outside of the transaction; what it raises is raised in the caller.
        after: called with what it returned, once that is committed.
        lasting: whether it is tried again with the next transaction, where the database fails. Its caller
            does not wait for that, and gets None.
    """

    run: Callable[[Page], T]
    before: Callable[[], None] | None = None
    after: Callable[[T], None] | None = None
    lasting: bool = False
    done: Future[Any] = field(default_factory=Future)


class Desk:
    """Does works in the order in which they come.

    Args:
        transact: of the database.
        troubled: told why a lasting work has to wait.
    """

    def __init__(self, transact: Transact, troubled: Callable[[str], None]) -> None:
        self._transact = transact
        self._troubled = troubled
        self.start_afresh()
        restart_in_child(self)

    def start_afresh(self) -> None:
        """Forget what waits: in a forked child it is the parent's."""
        self._lock = threading.Lock()  # guards what follows
        self._waiting: list[Work[Any]] = []
        self._owed: list[Work[Any]] = []
        self._serving = False
        self._prepared = False

    def flush(self) -> None:
        """Wait until all works are done, or have failed; those that were kept are tried once more."""
        if self._owed or self._serving:
            self.submit(Work(_nothing)).exception()

    def submit(self, work: Work[Any]) -> Future[Any]:
        """Have a work done; the future cannot be cancelled, as the work cannot."""
        work.done.set_running_or_notify_cancel()
        with self._lock:
            self._waiting.append(work)
            first, self._serving = not self._serving, True
        if first:
            try:
                threading.Thread(target=self._serve, name="specclient-budgets").start()
            except RuntimeError:  # no threads start while the interpreter ends
                self._serve()
        return work.done

    def _serve(self) -> None:
        while True:
            with self._lock:
                works, self._waiting = self._waiting, []
                if not works:
                    self._serving = False
                    return
            self._do([work for work in works if _ready(work)])
            del works

    def _do(self, works: list[Work[Any]]) -> None:
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

    def _run(self, execute: Execute, works: list[Work[Any]]) -> list[Any]:
        page = Page(execute)
        if not self._prepared:
            page.create()
        return [work.run(page) for work in works]


def _nothing(_: Page) -> None:
    """Take part in a transaction for the sake of the others."""


def _ready(work: Work[Any]) -> bool:
    try:
        if work.before is not None:
            work.before()
    except BaseException as error:  # noqa: BLE001 - as above
        work.done.set_exception(error)
        return False
    return True


class Memory:
    """A database in this process's memory, for a ledger that is off; a forked child has an empty one."""

    def __init__(self) -> None:
        self.start_afresh()
        restart_in_child(self)

    def start_afresh(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def transact(self, work: Callable[[Execute], T], /) -> T:
        """Return what ``work`` returns, its statements in one transaction; whatever it raises undoes them."""
        with self._lock:
            connection = self._connection

            def execute(sql: str, params: Mapping[str, Value] = {}, /) -> list[tuple[Value, ...]]:
                return connection.execute(sql, params).fetchall()

            connection.execute("BEGIN")
            try:
                result = work(execute)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            return result
