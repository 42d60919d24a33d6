"""Turn finished calls into rows of one database file, without delaying the calls, and read them back.

One writer thread a ledger takes all rows that are waiting into one transaction. A call's ``record``
returns when its row is committed, so whatever a user has seen the result of is in the file. A ledger
that cannot be written never breaks a call: there is one warning, rows are kept in memory and tried
again, and callers stop waiting until it works again.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from specclient.costs.rows import Row, timestamp
from specclient.costs.schema import (
    OFF,
    WAY_OUT,
    calls,
    exists,
    explain,
    immediately,
    locate,
    name,
    open_database,
)
from specclient.errors import LedgerError
from specclient.types.call import Call

__all__ = ["Ledger"]

logger = logging.getLogger("specclient")

#: Seconds without work after which the thread ends and the connection closes; the next call starts anew.
IDLE_S = 5.0
#: Seconds that the end of the program waits for rows in memory.
EXIT_S = 2.0

Wake = Callable[[], None]


class Ledger:
    """The record of finished calls.

    Safe to use from any thread and event loop; after ``fork`` the child writes with a thread and a
    connection of its own, and leaves the rows that were waiting to the parent. Opens nothing until
    the first record or read.

    Args:
        setting: a file path, a database URL, ``off``, or None for a file in the user's data folder.
        patience_s: longest a call waits for its row to be committed.
        retry_s: pause before a ledger that failed is tried again.
        keep: rows kept in memory while it cannot be written; beyond it the oldest are dropped.

    Raises:
        ConfigurationError: a setting that is no path and no database URL.
    """

    def __init__(
        self, setting: str | None = None, *, patience_s: float = 2.0, retry_s: float = 1.0, keep: int = 10_000
    ) -> None:
        self._url = locate(setting)
        self._patience_s = patience_s
        self._retry_s = retry_s
        self._keep = keep
        self._engine: Engine | None = None
        self._start_afresh()
        _live.add(self)

    def _start_afresh(self) -> None:
        """Set up what belongs to one process: locks, thread, rows on their way."""
        self._changed = threading.Condition()  # guards everything below
        self._writing = threading.Lock()  # held while a transaction runs; taken before _changed
        self._waiting: dict[str, tuple[Row, Wake | None]] = {}
        self._thread: threading.Thread | None = None
        self._trouble: str | None = None
        self._behind = False
        self._closing = False
        self._warned = False
        self._dropped = 0
        self._told = 0

    @property
    def location(self) -> str:
        """The file, the database URL without its password, or ``off``."""
        return OFF if self._url is None else name(self._url)

    async def record(self, call: Call) -> None:
        """Keep a finished call; returns when its row is committed, or cannot be for now.

        Never raises on a ledger that fails, and waits ``patience_s`` at most, once: while it lags
        behind, further calls do not wait at all.
        """
        if self._url is None:
            return
        loop = asyncio.get_running_loop()
        committed = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile; nobody waits
                loop.call_soon_threadsafe(committed.set)

        if not self._hand_over(Row.of(call), wake):
            return
        try:
            async with asyncio.timeout(self._patience_s):
                await committed.wait()
        except TimeoutError:
            self._behind = True
            self._warn(f"the ledger {self.location} is slow to write (waited {self._patience_s:g} s)")

    def submit(self, call: Call) -> None:
        """Keep a finished call without waiting; for places that cannot wait. See :meth:`flush`."""
        if self._url is not None:
            self._hand_over(Row.of(call), None)

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[Row]:
        """Return the calls that started in ``[since, until)``, oldest first, those still in memory included.

        Args:
            limit: only the newest so many.

        Raises:
            LedgerError: the ledger cannot be read; names it and the way out.
        """
        if self._url is None:
            return []
        with self._changed:
            waiting = [row for row, _ in self._waiting.values()]
        found = {row.id: row for row in waiting if _within(row, since, until)}
        for row in self._read(since, until, limit):
            found[row.id] = row
        ordered = sorted(found.values(), key=lambda row: (row.started_at, row.id))
        return ordered if limit is None else ordered[max(len(ordered) - limit, 0) :]

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write what is waiting, in this thread; returns whether everything is in the database."""
        if not self._waiting:
            return True
        self._write(timeout_s)
        return not self._waiting

    def close(self, timeout_s: float | None = 5.0) -> None:
        """Write what is waiting and close the database; a later record opens it again.

        Rows that cannot be written are counted in a warning.
        """
        self.flush(timeout_s)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            lost = len(self._waiting) + self._dropped
            told, self._told = self._told, lost
        if lost != told and lost:
            logger.warning("%d calls are not in the ledger %s; %s", lost, self.location, WAY_OUT)
        self._disconnect(timeout_s)

    # -- the writer ------------------------------------------------------------------------------

    def _hand_over(self, row: Row, wake: Wake | None) -> bool:
        """Queue a row; returns whether it is worth waiting for."""
        with self._changed:
            self._closing = False
            worth_waiting = self._trouble is None and not self._behind
            self._waiting[row.id] = (row, wake if worth_waiting else None)
            if len(self._waiting) > self._keep:
                oldest = next(iter(self._waiting))
                _, abandoned = self._waiting.pop(oldest)
                self._dropped += 1
                if abandoned:
                    abandoned()
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="specclient-ledger", daemon=True)
                with suppress(RuntimeError):  # no threads start while the interpreter ends: `_at_exit` writes
                    thread.start()
                    self._thread = thread
            worth_waiting = worth_waiting and self._thread is not None
            self._changed.notify_all()
        return worth_waiting

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._trouble is not None:
                    self._changed.wait_for(lambda: self._closing, self._retry_s)
                else:
                    self._changed.wait_for(lambda: bool(self._waiting) or self._closing, IDLE_S)
                if self._closing or not self._waiting:
                    self._thread = None
                    break
            self._write()
        self._disconnect()

    def _write(self, timeout_s: float | None = None) -> None:
        """Commit all waiting rows in one transaction; on failure leave them waiting."""
        if not self._writing.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return
        try:
            with self._changed:
                batch = list(self._waiting.values())
            trouble = self._commit([row for row, _ in batch]) if batch else None
            with self._changed:
                self._trouble = trouble
                for row, _ in batch:
                    if trouble is None:
                        self._waiting.pop(row.id, None)
                    elif row.id in self._waiting:
                        self._waiting[row.id] = (row, None)
                self._behind = self._behind and bool(self._waiting)
        finally:
            self._writing.release()
        if trouble is not None:
            self._warn(trouble)
        for _, wake in batch:
            if wake is not None:
                wake()

    def _commit(self, rows: Sequence[Row]) -> str | None:
        """Insert rows; a row that is there already stays as it is. Returns what went wrong, if anything."""
        try:
            engine = self._open()
            with engine.connect() as connection:
                immediately(connection)
                connection.execute(_insert(engine), [row.columns() for row in rows])
                connection.commit()
        except LedgerError as error:
            return str(error)
        except SQLAlchemyError as error:
            return f"cannot write the ledger {self.location}: {explain(error)}; {WAY_OUT}"
        except Exception as error:  # noqa: BLE001 - whatever a driver does, no call breaks and the thread lives
            return f"cannot write the ledger {self.location}: {error!r}; {WAY_OUT}"
        return None

    def _warn(self, trouble: str) -> None:
        with self._changed:
            first, self._warned = not self._warned, True
        if first:
            logger.warning("%s. Calls go on; up to %d records are kept in memory", trouble, self._keep)

    # -- the database ----------------------------------------------------------------------------

    def _open(self) -> Engine:
        assert self._url is not None
        if self._engine is None:
            self._engine = open_database(self._url)
        return self._engine

    def _disconnect(self, timeout_s: float | None = None) -> None:
        if not self._writing.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return
        engine, self._engine = self._engine, None
        self._writing.release()
        if engine is not None:
            engine.dispose()

    def _after_fork(self) -> None:
        """Begin anew in a child: the parent's connection is never touched, not even to close it."""
        _inherited.append(self._engine)
        self._engine = None
        self._start_afresh()

    def _read(self, since: datetime | None, until: datetime | None, limit: int | None) -> list[Row]:
        assert self._url is not None
        if not exists(self._url):
            return []
        query = select(calls)
        if since is not None:
            query = query.where(calls.c.started_at >= timestamp(since))
        if until is not None:
            query = query.where(calls.c.started_at < timestamp(until))
        query = query.order_by(calls.c.started_at.desc()).limit(limit)
        engine = open_database(self._url)
        try:
            with engine.connect() as connection:
                return [Row.from_columns(found) for found in connection.execute(query).mappings()]
        except SQLAlchemyError as error:
            raise LedgerError(
                f"cannot read the ledger {self.location}: {explain(error)}; {WAY_OUT}"
            ) from None
        finally:
            engine.dispose()


def _within(row: Row, since: datetime | None, until: datetime | None) -> bool:
    started = timestamp(row.started_at)
    return (since is None or started >= timestamp(since)) and (until is None or started < timestamp(until))


def _insert(engine: Engine) -> Any:
    """Return an insert that passes over rows that are there, where the database can; so retries are safe."""
    match engine.dialect.name:
        case "sqlite":
            return sqlite.insert(calls).on_conflict_do_nothing()
        case "postgresql":
            return postgresql.insert(calls).on_conflict_do_nothing()
    return insert(calls)


_live: weakref.WeakSet[Ledger] = weakref.WeakSet()
_inherited: list[Engine | None] = []


def _in_child() -> None:
    for ledger in list(_live):
        ledger._after_fork()


@atexit.register
def _at_exit() -> None:
    for ledger in list(_live):
        ledger.close(EXIT_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
