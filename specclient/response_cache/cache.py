"""The response cache: finds and keeps answers in a store without ever failing a call.

A store that fails, or does not answer in time, is reported once in the log and then left alone for
:data:`RETRY_S`; calls go on without it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from specclient.errors import ConfigurationError
from specclient.response_cache.location import answer_store
from specclient.response_cache.store import CACHE_HINT, AnswerStore, NewAnswer
from specclient.response_cache.threads import StoreThreads
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.runtime.time_limit import TimeLimit
from specclient.types.cache_options import CacheLimits

__all__ = ["PATIENCE_S", "RETRY_S", "ResponseCache"]

_log = logging.getLogger("specclient")

T = TypeVar("T")

#: Seconds that a call waits at most for the store.
PATIENCE_S = 2.5
#: Seconds for which a store that has failed is left alone.
RETRY_S = 10.0
#: Used answers that are noted until the next one is stored.
_MOST_USED = 4096


class ResponseCache:
    """The answers of one store. Safe to use from any thread and event loop.

    The store is used in threads of its own, so that no event loop waits for a disk or a server.

    Args:
        setting: see :func:`specclient.response_cache.location.answer_store`; read on first use.
        limits: limits on age and size; with 0 entries or bytes, nothing is kept.
        shared: whether all owners share the answers, see :meth:`owner`.
        random: whether answers to calls with random sampling are kept, for calls that do not say so.
        across_processes: whether equal calls of several processes at the same time are made once, too.
        clock: returns monotonic seconds.
        now: returns seconds since the epoch.
        patience_s, retry_s: see :data:`PATIENCE_S` and :data:`RETRY_S`.
    """

    def __init__(
        self,
        setting: str | None,
        limits: CacheLimits,
        *,
        shared: bool = False,
        random: bool = False,
        across_processes: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        patience_s: float = PATIENCE_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._setting = setting
        self.limits = limits
        self.shared, self.random, self.across_processes = shared, random, across_processes
        self._clock, self._now = clock, now
        self._patience_s, self._retry_s = patience_s, retry_s
        self._rests_until: float | None = None
        self._warned = self._warned_of_damage = False
        self._store: AnswerStore | None = None
        self._reset()
        register_fork_reset(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()  # guards the making of the store
        self._threads = StoreThreads(self._close_store)
        if self._store is not None:
            self._threads.most = self._store.threads
        self._used: dict[str, int] = {}
        self._holder = os.urandom(8).hex()  # of the claims of this process

    def reset_after_fork(self) -> None:
        """Drop the threads and connections, which belong to the parent process."""
        if self._store is not None:
            self._store.abandon()
        self._reset()

    @property
    def enabled(self) -> bool:
        """Whether the limits allow any answer."""
        return self.limits.max_entries > 0 and self.limits.max_bytes > 0

    def owner(self, owner: str) -> str:
        """Return the owner whose answers a call may use: its own, or a common one if answers are shared."""
        return "shared" if self.shared else f"owner {owner}"

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970, as answers are dated."""
        return int(self._now() * 1000)

    async def find(self, key: str, max_age_s: float | None = None) -> bytes | None:
        """Return the answer of a key; None if there is none, it is too old, or the store fails.

        Args:
            max_age_s: seconds; None for the limit, which is never exceeded.

        Raises:
            ConfigurationError: the setting names no store.
        """
        age_ms = self.limits.max_age_ms
        if max_age_s is not None:
            age_ms = min(age_ms, int(min(max_age_s, 1e9) * 1000))
        oldest_ms = self.now_ms() - age_ms
        body = await self._run(lambda store: store.find(key, oldest_ms))
        if body is not None and len(self._used) < _MOST_USED:
            self._used[key] = self.now_ms()
        return body

    async def keep(self, key: str, body: bytes, made_ms: int) -> None:
        """Store an answer; one that is too large is not stored."""
        if len(body) > self.limits.max_entry_bytes:
            return
        used, self._used = self._used, {}
        answer = NewAnswer(key, made_ms, body)
        await self._run(lambda store: store.put(answer, list(used.items())))

    async def claim(self, key: str, lease_s: float) -> bool:
        """Claim the call of a key; return False if another process has claimed it, True if that is unknown.

        Args:
            lease_s: seconds after which the claim ends.
        """
        return await self._run(lambda store: store.claim(key, self._holder, lease_s)) is not False

    def renew(self, key: str, lease_s: float) -> None:
        """Renew a claim of this process."""
        self._threads.begin(lambda: self._opened().claim(key, self._holder, lease_s))

    def release(self, key: str) -> None:
        """End a claim of this process."""
        self._threads.begin(lambda: self._opened().release(key, self._holder))

    def drop_damaged(self, key: str, reason: str) -> None:
        """Remove an answer that cannot be read; the first one is logged."""
        if not self._warned_of_damage:
            self._warned_of_damage = True
            _log.warning(
                "an answer in the response cache %s is damaged and was removed: %s. The call was made as if "
                "there were none; further ones are not logged",
                self.location,
                reason,
            )
        self._threads.begin(lambda: self._opened().remove(key))

    @property
    def location(self) -> str:
        """The file or the URL without its password; empty before the first use."""
        return "" if self._store is None else self._store.name

    def close(self) -> None:
        """Close the connections; a later use opens them again."""
        self._threads.close()
        self._close_store()

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    async def _run(self, work: Callable[[AnswerStore], T]) -> T | None:
        """Return the result of ``work`` in a thread; None if the store fails, or is left alone."""
        if self._rests_until is not None:
            if self._clock() < self._rests_until:
                return None
            self._rests_until = None
        try:
            found = self._threads.run(lambda: work(self._store or self._opened()))
        except RuntimeError:  # no thread starts at the interpreter's exit
            return None
        try:
            with TimeLimit(self._patience_s):
                return await found
        except TimeoutError:
            trouble = f"the response cache {self.location} has not answered for {self._patience_s:g} s"
            trouble = f"{trouble}; {CACHE_HINT}"
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001 - no error of a store or a driver may break a call
            trouble = str(error) or repr(error)
        self._rests_until = self._clock() + self._retry_s
        if not self._warned:
            self._warned = True
            _log.warning("%s. Calls go on without the cache; further failures are not logged", trouble)
        return None

    def _opened(self) -> AnswerStore:
        """Return the store; made on first use, in a thread, as that of a server is imported."""
        with self._lock:
            if self._store is None:
                with import_lock:
                    self._store = answer_store(self._setting, self.limits, self._now)
                self._threads.most = self._store.threads
            return self._store
