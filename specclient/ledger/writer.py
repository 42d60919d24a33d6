"""The writer: commits rows and scores that calls leave in memory, in batches, from one thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from specclient.errors import LedgerError
from specclient.ledger import shutdown
from specclient.ledger.store import LEDGER_HINT, LedgerStore, RowValues
from specclient.types.call_score import CallScore

__all__ = ["LedgerWriter"]

logger = logging.getLogger("specclient")

#: Seconds without rows after which the thread ends and the connection closes; the next row starts both again.
IDLE_S = 5.0
#: Number of waiting rows from which they are written without waiting for more.
_BATCH = 2_000
#: Number of waiting rows from which calls wait for the database even in ``batch``.
_MAX_UNAWAITED = 5_000

CommitFuture = asyncio.Future[bool]


class LedgerWriter:
    """Queues rows for one store and commits them. Safe to use from any thread and event loop.

    Args:
        store: used by this writer alone.
        sync: whether calls wait for their rows.
        window_s: seconds that a row waits at most for further rows and its commit.
        patience_s: seconds that a call waits at most.
        retry_s: seconds before a failed write is retried.
        keep: number of rows kept in memory while the store cannot be written; beyond it the oldest are
            dropped.

    Attributes:
        owner: identifier of the thread that has exclusive use of the store now, None if no thread has.
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
        self._reset()
        shutdown.register_writer(self)

    def _reset(self) -> None:
        """Set up the state of one process: locks, thread, waiting rows."""
        # Guards everything below, for moments only. Reentrant: SIGTERM's handler may interrupt a holder.
        self._lock = threading.RLock()
        self._writing = threading.Lock()  # held while the store is used; acquired before _lock
        self.owner: int | None = None
        self._waiting: dict[str, RowValues] = {}
        self._scores: dict[str, CallScore] = {}  # they wait in the same way
        self._waiters: dict[asyncio.AbstractEventLoop, list[CommitFuture]] = {}
        self._thread: threading.Thread | None = None
        self._wakeup: SimpleQueue[None] = SimpleQueue()  # an item ends a pause of the thread
        self._pausing = False  # the thread waits: for rows, or after a failure for the next retry
        self._gathering = False  # it waits for further rows
        self._trouble: str | None = None
        self._behind = False
        self._closing = False
        self._warned = False
        self._dropped = 0
        self._reported = 0  # rows that were reported as not written

    def add(self, rows: Sequence[RowValues]) -> Awaitable[None] | None:
        """Queue rows; if calls wait for them, return an awaitable that ends with their commit or failure.

        A failing store raises nothing. A call waits ``patience_s`` at most; after one such timeout, further
        calls do not wait until the writer has caught up.
        """
        if not self._sync and len(self._waiting) < _MAX_UNAWAITED:
            self._enqueue(rows, None)
            return None
        done: CommitFuture = asyncio.get_running_loop().create_future()
        return self._committed(done) if self._enqueue(rows, done) else None

    async def _committed(self, done: CommitFuture) -> None:
        late = done.get_loop().call_later(self._patience_s, _settle, [done], False)
        try:
            in_time = await done
        finally:
            late.cancel()
        if not in_time:
            self._behind = True
            self._warn(f"the ledger {self.store.name} is slow to write (waited {self._patience_s:g} s)")

    def put(self, rows: Sequence[RowValues]) -> None:
        """Queue rows without waiting."""
        self._enqueue(rows, None)

    def put_score(self, score: CallScore) -> None:
        """Queue a score without waiting."""
        with self._lock:
            self._scores[score.id] = score
            while len(self._scores) > self._keep:
                del self._scores[next(iter(self._scores))]
        self._enqueue((), None)

    def waiting(self) -> list[RowValues]:
        """Return the rows that are not known to be in the store."""
        with self._lock:
            return list(self._waiting.values())

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write the waiting rows and scores in this thread; return whether all are in the store."""
        if self._has_waiting:
            self._write(timeout_s)
        return not self._has_waiting

    def close(self, timeout_s: float | None = None) -> None:
        """Write the waiting rows and close the store. A warning gives the number of rows not written."""
        self.flush(timeout_s)
        with self._lock:
            self._closing = True
            self._wakeup.put(None)
            lost = len(self._waiting) + self._dropped
            reported, self._reported = self._reported, lost
        if lost != reported and lost:
            logger.warning("%d calls are not in the ledger %s; %s", lost, self.store.name, LEDGER_HINT)
        self._disconnect(timeout_s)

    def after_fork(self) -> None:
        """Reset the writer in a forked child. The parent's connection is not touched, not even closed."""
        self.store.abandon()
        self._reset()

    @contextmanager
    def exclusive(self, timeout_s: float | None = None) -> Iterator[bool]:
        """Acquire exclusive use of the store; gives False if it was not acquired in time.

        Also gives False, without waiting, if this thread has exclusive use already.
        """
        is_owner = self.owner == threading.get_ident()
        if is_owner or not self._writing.acquire(timeout=-1 if timeout_s is None else timeout_s):
            yield False
            return
        self.owner = threading.get_ident()
        try:
            yield True
        finally:
            self.owner = None
            self._writing.release()
            shutdown.obey_pending_sigterm()

    @property
    def _has_waiting(self) -> bool:
        return bool(self._waiting or self._scores)

    def _enqueue(self, rows: Sequence[RowValues], done: CommitFuture | None) -> bool:
        """Queue rows; return whether the caller must wait for ``done``."""
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
                self._wakeup.put(None)
            if done is None or self._thread is None or self._trouble is not None or self._behind:
                return False
            self._waiters.setdefault(done.get_loop(), []).append(done)
            return True

    def _may_begin(self, *, urgent: bool) -> bool:
        """Return whether new rows end the thread's pause; after a failure they wait for the next retry."""
        gathered = not self._gathering or urgent or len(self._waiting) >= _BATCH
        return gathered and self._trouble is None

    def _start_thread(self) -> None:
        self._wakeup = SimpleQueue()
        thread = threading.Thread(
            target=self._work, args=(self._wakeup,), name="specclient-ledger", daemon=True
        )
        with suppress(RuntimeError):  # no thread starts at interpreter exit; `shutdown` writes then
            thread.start()
            self._thread = thread

    def _work(self, wakeup: SimpleQueue[None]) -> None:
        while self._is_needed(wakeup):
            if not self._sync:
                self._gather(wakeup)
            self._write()
        self._disconnect()

    def _is_needed(self, wakeup: SimpleQueue[None]) -> bool:
        """Wait until there are rows to write; return False if the thread must end."""
        rested = False
        while True:
            with self._lock:
                troubled = self._trouble is not None
                self._pausing = False
                if self._closing or (rested and not self._has_waiting):
                    self._thread = None
                    return False
                if self._has_waiting and (rested or not troubled):
                    return True
                self._pausing = True
            rested = not _woken(wakeup, self._retry_s if troubled else IDLE_S)

    def _gather(self, wakeup: SimpleQueue[None]) -> None:
        """Wait for further rows for half the window; the other half is for their commit."""
        with self._lock:
            if self._closing or self._waiters or len(self._waiting) >= _BATCH:
                return
            self._pausing = self._gathering = True
        _woken(wakeup, self._window_s / 2)
        with self._lock:
            self._pausing = self._gathering = False

    def _write(self, timeout_s: float | None = None) -> None:
        """Commit all waiting rows and scores in one transaction; after a failure they stay queued."""
        with self.exclusive(timeout_s) as free:
            if not free:
                return
            with self._lock:
                rows, scores = list(self._waiting.values()), list(self._scores.values())
                waiters, self._waiters = self._waiters, {}
            trouble = self._commit(rows, scores) if rows or scores else None
            with self._lock:
                self._trouble = trouble
                if trouble is None:
                    for row in rows:
                        self._waiting.pop(str(row[0]), None)
                    for score in scores:
                        self._scores.pop(score.id, None)
                self._behind = self._behind and bool(self._waiting)
        if trouble is not None:
            self._warn(trouble)
        for loop, done in waiters.items():
            with suppress(RuntimeError):  # the event loop has been closed
                loop.call_soon_threadsafe(_settle, done, True)

    def _commit(self, rows: Sequence[RowValues], scores: Sequence[CallScore]) -> str | None:
        """Insert rows and scores, skipping known ones; return the error message, None on success."""
        try:
            self.store.write(rows, scores)
        except LedgerError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - no error of a driver may break a call or end the thread
            return f"cannot write the ledger {self.store.name}: {error!r}; {LEDGER_HINT}"
        return None

    def _warn(self, trouble: str) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            logger.warning("%s. Calls go on; up to %d records are kept in memory", trouble, self._keep)

    def _disconnect(self, timeout_s: float | None = None) -> None:
        with self.exclusive(timeout_s) as free:
            if free:
                self.store.close()


def _woken(wakeup: SimpleQueue[None], timeout_s: float) -> bool:
    """Wait until woken or the time is over; return whether woken."""
    try:
        wakeup.get(timeout=timeout_s)
    except Empty:
        return False
    return True


def _settle(waiters: Sequence[CommitFuture], in_time: bool) -> None:
    for done in waiters:
        if not done.done():
            done.set_result(in_time)
