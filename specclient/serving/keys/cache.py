"""The stored keys in memory, refreshed every few seconds.

The first request that finds the keys older than :data:`FRESH_S` reads all of them again. Until then, running
servers accept a revoked key and refuse a new one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from specclient.errors import LedgerError
from specclient.runtime.event_loop import run_in_thread
from specclient.serving.errors import ServingError
from specclient.serving.keys.key import NAME_TAG, StoredKey, digest_of
from specclient.serving.keys.store import KeyStore
from specclient.types.budget import Budget, BudgetScope

__all__ = ["KeyCache"]

_log = logging.getLogger("specclient")

#: Seconds until keys are read again, and until they are unusable if the database fails.
FRESH_S, STALE_S = 2.0, 60.0
#: Minimum interval between two recorded uses of a key.
_NOTED = timedelta(minutes=1)


class KeyCache:
    """The keys of a running server; used in one event loop.

    Args:
        store: the stored keys.
        required: whether a key is required even if none is stored, or if the keys cannot be read.
        clock: returns monotonic seconds.
        now: returns the current time, for expiry.
        fresh_s: see :data:`FRESH_S`.
        stale_s: see :data:`STALE_S`.
    """

    def __init__(
        self,
        store: KeyStore,
        *,
        required: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        fresh_s: float = FRESH_S,
        stale_s: float = STALE_S,
    ) -> None:
        self._store, self._clock, self._now = store, clock, now
        self._fresh_s, self._stale_s = fresh_s, stale_s
        self._keys: Mapping[str, StoredKey] = {}
        self._budgets: Mapping[str, Budget] = {}
        self._needed = required
        self._read_at: float | None = None  # time of the last successful read
        self._tried_at: float | None = None
        self._failing = False
        self._reading = asyncio.Lock()
        self._noted: dict[str, datetime] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def needed(self) -> bool:
        """Return whether requests require a key: one was stored once, or ``required`` is set."""
        await self._refresh()
        return self._needed

    async def find(self, token: str) -> StoredKey | None:
        """Return the active key of a token; None if there is none.

        Raises:
            ServingError: 503, the keys cannot be read.
        """
        await self._refresh()
        if self._read_at is None or self._clock() - self._read_at > self._stale_s:
            raise ServingError(
                503,
                "the keys of this server cannot be read; its log says why",
                code="keys_unavailable",
                headers={"retry-after": "5"},
            )
        key = self._keys.get(digest_of(token))
        now = self._now()
        if key is None or key.status(now) != "active":
            return None
        self._note(key, now)
        return key

    def budgets(self, scope: BudgetScope) -> tuple[Budget, ...]:
        """Return the budget of the key in a call's tags."""
        budget = self._budgets.get(scope.tags.get(NAME_TAG, ""))
        return () if budget is None else (budget,)

    async def close(self) -> None:
        """Wait for pending writes, and close the database."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await run_in_thread(self._store.close)

    async def _refresh(self) -> None:
        """Read the keys again if they are due; after a failure in the background, without waiting."""
        if self._is_fresh():
            return
        if self._failing:
            if not self._reading.locked():
                self._start(self._read())
            return
        await self._read()

    async def _read(self) -> None:
        async with self._reading:
            if self._is_fresh():  # another request has just read them
                return
            try:
                found = await run_in_thread(self._store.all)
            except LedgerError as error:
                if not self._failing:
                    _log.warning("the keys of this server cannot be read: %s", error)
                self._failing, self._tried_at = True, self._clock()
                return
            self._failing, self._read_at = False, self._clock()
            self._tried_at = self._read_at
            live = [key for key in found if key.revoked_at is None]
            self._keys = {key.digest: key for key in live}
            self._budgets = {key.name: key.budget for key in live if key.budget is not None}
            self._needed = self._needed or bool(found)

    def _is_fresh(self) -> bool:
        return self._tried_at is not None and self._clock() - self._tried_at < self._fresh_s

    def _note(self, key: StoredKey, now: datetime) -> None:
        """Record a use in the database, in the background."""
        before = self._noted.get(key.digest)
        if before is not None and now - before < _NOTED:
            return
        self._noted[key.digest] = now
        self._start(self._write(key, now))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start background work; :meth:`close` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, key: StoredKey, now: datetime) -> None:
        with suppress(LedgerError):  # the ledger logs its own failures
            await run_in_thread(lambda: self._store.used(key, now))
