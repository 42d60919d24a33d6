"""Turn rows that calls leave in memory into batches that one thread commits."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from specclient.errors import LedgerError
from specclient.ledger import shutdown
from specclient.ledger.store import LEDGER_HINT, LedgerStore, RowValues

__all__ = ["LedgerWriter"]

logger = logging.getLogger("specclient")

#: Seconds without work after which the thread ends and the connection closes; the next call starts anew.
IDLE_S = 5.0
#: Waiting rows that are written before their time has come.
_BATCH = 2_000
#: Waiting rows from which on calls wait for the database after all.
_CROWD = 5_000

CommitFuture = asyncio.Future[bool]


class LedgerWriter:
    """The rows on their way to one store. Safe to use from any thread and event loop.

    Args:
        store: used by nobody else.
        sync: whether calls wait for their rows.
        window_s: longest that a row waits for company, and for its commit.
        patience_s: longest that a call waits.
        retry_s: pause before a store that failed is tried again.
        keep: rows kept in memory while it cannot be written; beyond it the oldest are dropped.

    Attributes:
        owner: the thread that has the store to itself now.
    """

    def __init__(
        self, store: LedgerStore, *, sync: bool, window_s: float, patience_s: float, retry_s: float, keep: int
    ) -> None:
        self.store = store
        self._sync = sync
        self._window_s = window_s
        self._patience_s = patience_s
        self._retry_s = retry_s
        self._keep = keep
        self._start_afresh()
        shutdown.register_writer(self)

    def _start_afresh(self) -> None:
        """Set up what belongs to one process: locks, thread, rows on their way."""
        # Guards everything below; held for moments only, amid which SIGTERM's handler may enter once more.
        self._lock = threading.RLock()
        self._writing = threading.Lock()  # held while the store works; taken before _lock
        self.owner: int | None = None
        self._waiting: dict[str, RowValues] = {}
        self._waiters: dict[asyncio.AbstractEventLoop, list[CommitFuture]] = {}
        self._thread: threading.Thread | None = None
        self._bell: SimpleQueue[None] = SimpleQueue()  # rung to end a pause of the thread
        self._pausing = False  # for rows to come, or, in trouble, for better times
        self._gathering = False  # pausing for further rows
        self._trouble: str | None = None
        self._behind = False
        self._closing = False
        self._warned = False
        self._dropped = 0
        self._told = 0

    async def add(self, rows: Sequence[RowValues]) -> None:
        """Take rows, and where calls wait for theirs, return when they are committed or cannot be for now.

        Never raises on a store that fails, and waits ``patience_s`` at most, once: while it lags behind,
        further calls do not wait at all.
        """
        if not self._sync and len(self._waiting) < _CROWD:
            self._hand_over(rows, None)
            return
        loop = asyncio.get_running_loop()
        done: CommitFuture = loop.create_future()
        if not self._hand_over(rows, done):
            return
        late = loop.call_later(self._patience_s, _settle, [done], False)
        try:
            in_time = await done
        finally:
            late.cancel()
        if not in_time:
            self._behind = True
            self._warn(f"the ledger {self.store.name} is slow to write (waited {self._patience_s:g} s)")

    def put(self, rows: Sequence[RowValues]) -> None:
        """Take rows without waiting."""
        self._hand_over(rows, None)

    def waiting(self) -> list[RowValues]:
        """Return the rows that are not known to be in the store."""
        with self._lock:
            return list(self._waiting.values())

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write what is waiting, in this thread; returns whether everything is in the store."""
        if self._waiting:
            self._write(timeout_s)
        return not self._waiting

    def close(self, timeout_s: float | None = None) -> None:
        """Write what is waiting and close the store. Rows that cannot be written are counted in a warning."""
        self.flush(timeout_s)
        with self._lock:
            self._closing = True
            self._bell.put(None)
            lost = len(self._waiting) + self._dropped
            told, self._told = self._told, lost
        if lost != told and lost:
            logger.warning("%d calls are not in the ledger %s; %s", lost, self.store.name, LEDGER_HINT)
        self._disconnect(timeout_s)

    def after_fork(self) -> None:
        """Begin anew in a child: the parent's connection is never touched, not even to close it."""
        self.store.abandon()
        self._start_afresh()

    @contextmanager
    def alone(self, timeout_s: float | None = None) -> Iterator[bool]:
        """Have the store to oneself; gives False where that did not come about in time."""
        mine = self.owner == threading.get_ident()  # already, further out
        if mine or not self._writing.acquire(timeout=-1 if timeout_s is None else timeout_s):
            yield False
            return
        self.owner = threading.get_ident()
        try:
            yield True
        finally:
            self.owner = None
            self._writing.release()
            shutdown.obey_pending_sigterm()

    def _hand_over(self, rows: Sequence[RowValues], done: CommitFuture | None) -> bool:
        """Queue rows; returns whether they are worth waiting for."""
        shutdown.handle_sigterm()
        with self._lock:
            self._closing = False
            for row in rows:
                self._waiting[str(row[0])] = row
            while len(self._waiting) > self._keep:
                del self._waiting[next(iter(self._waiting))]
                self._dropped += 1
            if self._thread is None:
                self._start_thread()
            elif self._pausing and self._may_begin(urgent=done is not None):
                self._pausing = False
                self._bell.put(None)
            if done is None or self._thread is None or self._trouble is not None or self._behind:
                return False
            self._waiters.setdefault(done.get_loop(), []).append(done)
            return True

    def _may_begin(self, *, urgent: bool) -> bool:
        """Tell whether new rows end the thread's pause; in trouble they wait for the next try."""
        gathered = not self._gathering or urgent or len(self._waiting) >= _BATCH
        return gathered and self._trouble is None

    def _start_thread(self) -> None:
        self._bell = SimpleQueue()
        thread = threading.Thread(
            target=self._work, args=(self._bell,), name="specclient-ledger", daemon=True
        )
        with suppress(RuntimeError):  # no threads start while the interpreter ends: `ending` writes
            thread.start()
            self._thread = thread

    def _work(self, bell: SimpleQueue[None]) -> None:
        while self._is_needed(bell):
            if not self._sync:
                self._gather(bell)
            self._write()
        self._disconnect()

    def _is_needed(self, bell: SimpleQueue[None]) -> bool:
        """Return once there are rows to write; False when the thread shall end."""
        rested = False
        while True:
            with self._lock:
                troubled = self._trouble is not None
                self._pausing = False
                if self._closing or (rested and not self._waiting):
                    self._thread = None
                    return False
                if self._waiting and (rested or not troubled):
                    return True
                self._pausing = True
            rested = not _rung(bell, self._retry_s if troubled else IDLE_S)

    def _gather(self, bell: SimpleQueue[None]) -> None:
        """Let rows come together for half the window; the other half is for their commit."""
        with self._lock:
            if self._closing or self._waiters or len(self._waiting) >= _BATCH:
                return
            self._pausing = self._gathering = True
        _rung(bell, self._window_s / 2)
        with self._lock:
            self._pausing = self._gathering = False

    def _write(self, timeout_s: float | None = None) -> None:
        """Commit all waiting rows in one transaction; on failure leave them waiting."""
        with self.alone(timeout_s) as free:
            if not free:
                return
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
        if trouble is not None:
            self._warn(trouble)
        for loop, done in waiters.items():
            with suppress(RuntimeError):  # the loop has ended meanwhile; nobody waits
                loop.call_soon_threadsafe(_settle, done, True)

    def _commit(self, rows: Sequence[RowValues]) -> str | None:
        """Insert rows; a row that is there already stays as it is. Returns what went wrong, if anything."""
        try:
            self.store.write(rows)
        except LedgerError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever a driver does, no call breaks and the thread lives
            return f"cannot write the ledger {self.store.name}: {error!r}; {LEDGER_HINT}"
        return None

    def _warn(self, trouble: str) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            logger.warning("%s. Calls go on; up to %d records are kept in memory", trouble, self._keep)

    def _disconnect(self, timeout_s: float | None = None) -> None:
        with self.alone(timeout_s) as free:
            if free:
                self.store.close()


def _rung(bell: SimpleQueue[None], timeout_s: float) -> bool:
    """Wait for the bell; tells whether it was rung."""
    try:
        bell.get(timeout=timeout_s)
    except Empty:
        return False
    return True


def _settle(waiters: Sequence[CommitFuture], in_time: bool) -> None:
    for done in waiters:
        if not done.done():
            done.set_result(in_time)
