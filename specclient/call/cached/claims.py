"""Claims of calls in the store: equal calls of several processes at the same time are made once, too.

The process that makes a call claims its key for some seconds, and renews the claim while the call runs.
Others look for the answer meanwhile. If the process dies, or its caller does not read the stream, the claim
ends, and another process makes the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from specclient.response_cache.cache import ResponseCache

__all__ = ["LEASE_S", "Claim", "claimed_or_found"]

#: Seconds after which a claim ends unless it is renewed.
LEASE_S = 10.0
#: Seconds between two looks for another process's answer: the first, and the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.25


class Claim:
    """A claim of this process, which is renewed until :meth:`end`.

    Args:
        cache: its store holds the claim.
        key: the key of the call.
        is_stalled: whether the call waits for a caller that does not read; it is then not renewed.
    """

    def __init__(self, cache: ResponseCache, key: str, is_stalled: Callable[[], bool]) -> None:
        self._cache, self._key, self._is_stalled = cache, key, is_stalled
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LEASE_S / 3, self._renew)

    def end(self) -> None:
        """End the claim, so that another process may make the call."""
        self._timer.cancel()
        self._cache.release(self._key)

    def _renew(self) -> None:
        if not self._is_stalled():
            self._cache.renew(self._key, LEASE_S)
            self._timer = self._loop.call_later(LEASE_S / 3, self._renew)


async def claimed_or_found(
    cache: ResponseCache,
    key: str,
    max_age_s: float | None,
    *,
    patience_s: float,
    clock: Callable[[], float],
    is_stalled: Callable[[], bool],
) -> tuple[Claim | None, bytes | None]:
    """Claim a call that is about to be made, or wait for the answer of the process that makes it.

    Args:
        max_age_s: as in :meth:`ResponseCache.find`.
        patience_s: seconds to wait at most; the call is then made without a claim.
        clock: monotonic seconds.
        is_stalled: see :class:`Claim`.

    Returns:
        The claim, None without one; and the answer, None if this process makes the call.
    """
    ends, pause_s = clock() + patience_s, _FIRST_PAUSE_S
    while not await cache.claim(key, LEASE_S):
        left_s = ends - clock()
        if left_s <= 0:
            return None, None
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        if (body := await cache.find(key, max_age_s)) is not None:
            return None, body
    claim = Claim(cache, key, is_stalled)
    try:
        # Another process may have stored its answer, and so ended its claim, since the last look.
        body = await cache.find(key, max_age_s)
    except BaseException:
        claim.end()
        raise
    if body is not None:
        claim.end()
        return None, body
    return claim, None
