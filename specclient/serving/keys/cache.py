"""The stored keys in memory, refreshed every few seconds.

The first request that finds the keys older than :data:`FRESH_S` reads all of them again. Until then, running
servers accept a revoked key and refuse a new one.

While the database fails or takes longer than :data:`WAIT_S`, requests do not wait for it: the keys that were
read last are accepted for :data:`STALE_S`, and the server answers 503 for every other key, which may be new.
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
from specclient.openai_http.errors import ServingError
from specclient.runtime.event_loop import run_in_thread
from specclient.serving.keys.key import NAME_TAG, StoredKey, digest_of
from specclient.serving.keys.store import DamagedKeyError, KeyStore
from specclient.types.budget import Budget, BudgetScope

__all__ = ["KeyCache"]

_log = logging.getLogger("specclient")

#: Seconds until keys are read again, and until they are unusable if the database fails.
FRESH_S, STALE_S = 2.0, 300.0
#: Seconds that a request waits at most for the keys.
WAIT_S = 2.0
#: Seconds after which a client may try again while the keys cannot be read.
_RETRY_S = 5
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
        wait_s: see :data:`WAIT_S`.
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
        wait_s: float = WAIT_S,
    ) -> None:
        self._store, self._clock, self._now = store, clock, now
        self._fresh_s, self._stale_s, self._wait_s = fresh_s, stale_s, wait_s
        self._keys: Mapping[str, StoredKey] = {}
        self._budgets: Mapping[str, Budget] = {}
        self._needed = required
        self._read_at: float | None = None  # begin of the last successful read
        self._tried_at: float | None = None  # end of the last read
        self._failing = False  # the last read failed or was late
        self._reading: asyncio.Task[None] | None = None
        self._noted: dict[str, datetime] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def needed(self) -> bool:
        """Return whether requests require a key: one was stored once, or ``required`` is set.

        Raises:
            ServingError: 503, this is not known, because the database is a server that has not answered yet.
        """
        await self._refresh()
        if self._read_at is None and not self._needed and self._store.is_remote:
            raise _unavailable()
        return self._needed

    async def find(self, token: str) -> StoredKey | None:
        """Return the active key of a token; None if there is none.

        Raises:
            ServingError: 503, the keys cannot be read, and the token is unknown or was read too long ago.
        """
        await self._refresh()
        if self._is_stale():
            raise _unavailable()
        key = self._keys.get(digest_of(token))
        if key is None and self._failing:  # it may be new
            raise _unavailable()
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
        """Read the keys again if they are due; after a failure in the background, while some are usable."""
        if self._is_fresh():
            return
        if self._reading is None:
            self._reading = self._start(self._read())
        if self._failing and not self._is_stale():
            return
        _, late = await asyncio.wait([self._reading], timeout=self._wait_s)
        if late:
            self._fail(f"the database {self._store.name} has not answered for {self._wait_s:g} s")

    async def _read(self) -> None:
        begun = self._clock()
        try:
            found = await run_in_thread(self._store.all)
        except LedgerError as error:
            self._needed = self._needed or isinstance(error, DamagedKeyError)  # a key was stored
            self._fail(str(error))
        else:
            self._failing = self._clock() - begun > self._wait_s
            self._read_at = begun
            live = [key for key in found if key.revoked_at is None]
            self._keys = {key.digest: key for key in live}
            self._budgets = {key.name: key.budget for key in live if key.budget is not None}
            self._needed = self._needed or bool(found)
        finally:
            self._tried_at, self._reading = self._clock(), None

    def _fail(self, why: str) -> None:
        if not self._failing:
            _log.warning("the keys of this server cannot be read: %s", why)
        self._failing = True

    def _is_stale(self) -> bool:
        return self._read_at is None or self._clock() - self._read_at > self._stale_s

    def _is_fresh(self) -> bool:
        return self._tried_at is not None and self._clock() - self._tried_at < self._fresh_s

    def _note(self, key: StoredKey, now: datetime) -> None:
        """Record a use in the database, in the background."""
        before = self._noted.get(key.digest)
        if self._failing or (before is not None and now - before < _NOTED):
            return
        self._noted[key.digest] = now
        self._start(self._write(key, now))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start background work; :meth:`close` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write(self, key: StoredKey, now: datetime) -> None:
        with suppress(LedgerError):  # the ledger logs its own failures
            await run_in_thread(lambda: self._store.used(key, now))


def _unavailable() -> ServingError:
    return ServingError(
        503,
        "the keys of this server cannot be read; its log says why",
        code="keys_unavailable",
        headers={"retry-after": str(_RETRY_S)},
    )
