"""Turn the keys that are kept into an answer to whether one that is brought may be used, at once.

They are read again, all of them, by the first request that finds them a few seconds old: for so long a key
that was revoked still works in servers that run, and a new one does not yet.
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

#: Seconds for which keys are used as they were read, and, where the database fails, go on being used.
FRESH_S, STALE_S = 2.0, 60.0
#: How long after a use that was noted another one is.
_NOTED = timedelta(minutes=1)


class KeyCache:
    """The keys of a running server; used in one event loop.

    Args:
        store: where they are kept.
        required: whether a key is needed even where none is kept, or that cannot be told.
        clock: seconds, monotonic. ``now``: the time, by which keys expire.
        fresh_s, stale_s: see :data:`FRESH_S`.
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
        self._read_at: float | None = None  # when it last worked
        self._tried_at: float | None = None
        self._failing = False
        self._reading = asyncio.Lock()
        self._noted: dict[str, datetime] = {}
        self._works: set[asyncio.Task[None]] = set()

    async def needed(self) -> bool:
        """Tell whether a request must bring a key: some was made once, or the server was told so."""
        await self._refresh()
        return self._needed

    async def find(self, token: str) -> StoredKey | None:
        """Return the key that a token is, None where it is none, or none any more.

        Raises:
            ProblemError: 503, the keys cannot be read.
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
        """Return the budget that counts a call by the key that it is labelled with."""
        budget = self._budgets.get(scope.tags.get(NAME_TAG, ""))
        return () if budget is None else (budget,)

    async def close(self) -> None:
        """Write what is to be noted, and close the database."""
        while self._works:
            await asyncio.wait(self._works)
        await run_in_thread(self._store.close)

    async def _refresh(self) -> None:
        """Read the keys again where it is time; while that fails, nobody waits for another try."""
        if self._is_fresh():
            return
        if self._failing:
            if not self._reading.locked():
                self._start(self._read())
            return
        await self._read()

    async def _read(self) -> None:
        async with self._reading:
            if self._is_fresh():  # another request has been waiting for the same
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
        """Note a use in the database, in a thread: nobody waits for it."""
        before = self._noted.get(key.digest)
        if before is not None and now - before < _NOTED:
            return
        self._noted[key.digest] = now
        self._start(self._write(key, now))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Have a work done that nobody waits for but :meth:`close`."""
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    async def _write(self, key: StoredKey, now: datetime) -> None:
        with suppress(LedgerError):  # the ledger says itself that it cannot be written
            await run_in_thread(lambda: self._store.used(key, now))
