"""Turn finished calls into rows of one database, without delaying the calls, and read them back.

One writer thread a ledger takes all rows that are waiting into one transaction. A call's ``record``
returns when its row is committed, so whatever a user has seen the result of is in the database. A ledger
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import TypeVar

from specclient.costs.location import OFF, locate
from specclient.costs.rows import Row, timestamp, values_of
from specclient.costs.schema import CALLS, NAMES, ORDER, WAY_OUT, Execute, Values
from specclient.errors import LedgerError
from specclient.types.call import Call

__all__ = ["Ledger"]

logger = logging.getLogger("specclient")

#: Seconds without work after which the thread ends and the connection closes; the next call starts anew.
IDLE_S = 5.0
#: Seconds that the end of the program waits for rows in memory.
EXIT_S = 2.0

Future = asyncio.Future[bool]
T = TypeVar("T")

_SELECT = f"SELECT {', '.join(NAMES)} FROM {CALLS} WHERE {{where}} ORDER BY {ORDER} DESC {{limit}}"  # noqa: S608
_BOUNDS = {"since": f"{ORDER} >= :since", "until": f"{ORDER} < :until"}

#: Seconds without work after which the thread ends and the connection closes; the next call starts anew.
IDLE_S = 5.0
#: Seconds that the end of the program waits for rows in memory.
EXIT_S = 2.0

Future = asyncio.Future[bool]
T = TypeVar("T")


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
        self._store = locate(setting)
        self._patience_s = patience_s
        self._retry_s = retry_s
        self._keep = keep
        self._start_afresh()
        _live.add(self)

    def _start_afresh(self) -> None:
        """Set up what belongs to one process: locks, thread, rows on their way."""
        self._lock = threading.Lock()  # guards everything below; held for moments only
        self._writing = threading.Lock()  # held while the store works; taken before _lock
        self._waiting: dict[str, Values] = {}
        self._waiters: dict[asyncio.AbstractEventLoop, list[Future]] = {}
        self._thread: threading.Thread | None = None
        self._bell: SimpleQueue[None] = SimpleQueue()  # rung once for each sleep of the thread
        self._asleep = False
        self._trouble: str | None = None
        self._behind = False
        self._closing = False
        self._warned = False
        self._dropped = 0
        self._told = 0

    @property
    def location(self) -> str:
        """The file, the database URL without its password, or ``off``."""
        return OFF if self._store is None else self._store.name

    async def record(self, call: Call) -> None:
        """Keep a finished call; returns when its row is committed, or cannot be for now.

        Never raises on a ledger that fails, and waits ``patience_s`` at most, once: while it lags
        behind, further calls do not wait at all.
        """
        if self._store is None:
            return
        loop = asyncio.get_running_loop()
        done: Future = loop.create_future()
        if not self._hand_over(values_of(call), done):
            return
        late = loop.call_later(self._patience_s, _settle, [done], False)
        try:
            in_time = await done
        finally:
            late.cancel()
        if not in_time:
            self._behind = True
            self._warn(f"the ledger {self.location} is slow to write (waited {self._patience_s:g} s)")

    def submit(self, call: Call) -> None:
        """Keep a finished call without waiting; for places that cannot wait. See :meth:`flush`."""
        if self._store is not None:
            self._hand_over(values_of(call), None)

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[Row]:
        """Return the calls that started in ``[since, until)``, oldest first, those still in memory included.

        Args:
            limit: only the newest so many.

        Raises:
            LedgerError: the ledger cannot be read; names it and the way out.
        """
        if self._store is None:
            return []
        first = None if since is None else timestamp(since)
        last = None if until is None else timestamp(until)
        with self._lock:
            found = {id_: row for id_, row in self._waiting.items() if _within(row, first, last)}
        if self._store.exists():
            found |= {str(row[0]): row for row in self._read(first, last, limit)}
        ordered = sorted(found.values(), key=_by_time)
        newest = ordered if limit is None else ordered[max(len(ordered) - limit, 0) :]
        return [Row.from_values(row) for row in newest]

    def transact(self, work: Callable[[Execute], T]) -> T:
        """Return what ``work`` returns, its statements in one transaction of the database.

        From its first statement on nobody else writes to the database, in this process or another one;
        whatever it raises undoes what it did. Call it in a thread (``asyncio.to_thread``) where an event loop
        runs; it waits for the disk and for others.

        Args:
            work: called once, with ``execute(sql, params)``: runs one statement, of SQL that SQLite and
                PostgreSQL both speak with ``:name`` for parameters, and returns its rows.

        Raises:
            LedgerError: the ledger is off, or cannot be written; names it and the way out.
        """
        if self._store is None:
            raise LedgerError(f"the ledger is off and keeps nothing; {WAY_OUT.rpartition(', or')[0]}")
        with self._writing:
            return self._store.transact(work)

    def _read(self, since: str | None, until: str | None, limit: int | None) -> Iterator[Values]:
        assert self._store is not None
        bounds = {"since": since, "until": until, "most": limit}
        sql = _SELECT.format(
            where=" AND ".join(_BOUNDS[name] for name in ("since", "until") if bounds[name] is not None)
            or "1 = 1",
            limit="" if limit is None else "LIMIT :most",
        )
        return self._store.query(sql, {name: value for name, value in bounds.items() if value is not None})

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
        with self._lock:
            self._closing = True
            self._bell.put(None)
            lost = len(self._waiting) + self._dropped
            told, self._told = self._told, lost
        if lost != told and lost:
            logger.warning("%d calls are not in the ledger %s; %s", lost, self.location, WAY_OUT)
        self._disconnect(timeout_s)

    # -- the writer ------------------------------------------------------------------------------

    def _hand_over(self, row: Values, done: Future | None) -> bool:
        """Queue a row; returns whether it is worth waiting for."""
        with self._lock:
            self._closing = False
            self._waiting[str(row[0])] = row
            if len(self._waiting) > self._keep:
                del self._waiting[next(iter(self._waiting))]
                self._dropped += 1
            if self._thread is None:
                self._start_thread()
            elif self._asleep and self._trouble is None:  # in trouble new rows wait for the next try
                self._asleep = False
                self._bell.put(None)
            if done is None or self._thread is None or self._trouble is not None or self._behind:
                return False
            self._waiters.setdefault(done.get_loop(), []).append(done)
            return True

    def _start_thread(self) -> None:
        self._bell = SimpleQueue()
        thread = threading.Thread(
            target=self._work, args=(self._bell,), name="specclient-ledger", daemon=True
        )
        with suppress(RuntimeError):  # no threads start while the interpreter ends: `_at_exit` writes
            thread.start()
            self._thread = thread

    def _work(self, bell: SimpleQueue[None]) -> None:
        while self._is_needed(bell):
            self._write()
        self._disconnect()

    def _is_needed(self, bell: SimpleQueue[None]) -> bool:
        """Return once there are rows to write; False when the thread shall end."""
        rested = False
        while True:
            with self._lock:
                troubled = self._trouble is not None
                self._asleep = False
                if self._closing or (rested and not self._waiting):
                    self._thread = None
                    return False
                if self._waiting and (rested or not troubled):
                    return True
                self._asleep = True
            try:
                bell.get(timeout=self._retry_s if troubled else IDLE_S)
            except Empty:
                rested = True

    def _write(self, timeout_s: float | None = None) -> None:
        """Commit all waiting rows in one transaction; on failure leave them waiting."""
        if not self._writing.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return
        try:
            with self._lock:
                rows = list(self._waiting.values())
                waiters, self._waiters = self._waiters, {}
            trouble = self._commit(rows) if rows else None
            with self._lock:
                self._trouble = trouble
                if trouble is None:
                    for row in rows:
                        self._waiting.pop(str(row[0]), None)
                self._behind = self._behind and bool(self._waiting)
        finally:
            self._writing.release()
        if trouble is not None:
            self._warn(trouble)
        for loop, done in waiters.items():
            with suppress(RuntimeError):  # the loop has ended meanwhile; nobody waits
                loop.call_soon_threadsafe(_settle, done, True)

    def _commit(self, rows: Sequence[Values]) -> str | None:
        """Insert rows; a row that is there already stays as it is. Returns what went wrong, if anything."""
        assert self._store is not None
        try:
            self._store.write(rows)
        except LedgerError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever a driver does, no call breaks and the thread lives
            return f"cannot write the ledger {self.location}: {error!r}; {WAY_OUT}"
        return None

    def _warn(self, trouble: str) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            logger.warning("%s. Calls go on; up to %d records are kept in memory", trouble, self._keep)

    def _disconnect(self, timeout_s: float | None = None) -> None:
        if self._store is None or not self._writing.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return
        try:
            self._store.close()
        finally:
            self._writing.release()

    def _after_fork(self) -> None:
        """Begin anew in a child: the parent's connection is never touched, not even to close it."""
        if self._store is not None:
            self._store.abandon()
        self._start_afresh()


def _settle(waiters: Sequence[Future], in_time: bool) -> None:
    for done in waiters:
        if not done.done():
            done.set_result(in_time)


def _by_time(row: Values) -> tuple[str, str]:
    return str(row[1]), str(row[0])


def _within(row: Values, since: str | None, until: str | None) -> bool:
    started = str(row[1])
    return (since is None or started >= since) and (until is None or started < until)


_live: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _in_child() -> None:
    for ledger in list(_live):
        ledger._after_fork()


@atexit.register
def _at_exit() -> None:
    for ledger in list(_live):
        ledger.close(EXIT_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
