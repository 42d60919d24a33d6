"""A usage meter in Redis, shared by the workers of a server on one or more machines.

One Lua script does the work of :class:`~specclient.serving.keys.rate_limits.LocalUsageMeter` atomically, by
Redis's clock. While Redis does not answer, each worker continues with its own counts: the limits then apply
per worker, and one request every :data:`RETRY_S` seconds tries Redis again.

A worker also applies its own counts while Redis answers, so that a key does not get its whole limit again
when Redis restarts and loses its counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import SecretStr

from specclient.errors import ConfigurationError
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.rate_limits import SPAN_S, LimitDecision, LimitUsage, LocalUsageMeter

__all__ = ["RedisUsageMeter"]

_log = logging.getLogger("specclient")

#: Time limit of a command in seconds, and seconds until the next command after a failure.
TIMEOUT_S, RETRY_S = 1.0, 5.0
_CONNECTIONS = 16
#: Seconds by which a use may expire later in the counts of this process than in Redis.
_TOLERANCE_S = 3

# KEYS: hashes of used requests and of used tokens by second. ARGV: the window in seconds, then limit (-1:
# none) and amount of each. Returns the second of the reservation (-1: refused), then for each the used
# amount, the milliseconds until the whole limit is available, and the milliseconds until the amount fits
# (-1: never).
_TAKE = """
local at = redis.call('TIME')
local now = tonumber(at[1]) + tonumber(at[2]) / 1000000
local span, slot = tonumber(ARGV[1]), tonumber(at[1])
local result, fits = {slot}, true
for i = 1, 2 do
  local limit, wanted = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local used, newest, slots = 0, false, {}
  if limit >= 0 then
    local found = redis.call('HGETALL', KEYS[i])
    for k = 1, #found, 2 do
      local second, amount = tonumber(found[k]), tonumber(found[k + 1])
      if second <= now - span then
        redis.call('HDEL', KEYS[i], found[k])
      elseif second > now + 1 and amount > 0 then -- the clock was set back
        redis.call('HDEL', KEYS[i], found[k])
        redis.call('HINCRBY', KEYS[i], slot, amount)
        used = used + amount
        slots[#slots + 1] = {slot, amount}
        if not newest or slot > newest then newest = slot end
      elseif amount > 0 then
        used = used + amount
        slots[#slots + 1] = {second, amount}
        if not newest or second > newest then newest = second end
      end
    end
  end
  local wait, over = 0, used + wanted - limit
  if limit >= 0 and wanted > 0 and over > 0 then
    wait, fits = -1, false
    if wanted <= limit then
      table.sort(slots, function(a, b) return a[1] < b[1] end)
      for _, each in ipairs(slots) do
        over = over - each[2]
        if over <= 0 then
          wait = math.ceil((each[1] + span - now) * 1000)
          break
        end
      end
    end
  end
  result[#result + 1] = used
  result[#result + 1] = newest and math.ceil((newest + span - now) * 1000) or 0
  result[#result + 1] = wait
end
if not fits then
  result[1] = -1
  return result
end
for i = 1, 2 do
  local limit, wanted = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  if limit >= 0 and wanted > 0 then
    redis.call('HINCRBY', KEYS[i], slot, wanted)
    redis.call('EXPIRE', KEYS[i], span + 1)
    result[3 * i - 1] = result[3 * i - 1] + wanted
    result[3 * i] = math.ceil((slot + span - now) * 1000)
  end
end
return result
"""

# KEYS: a hash of used requests or tokens. ARGV: the second, the amount, the window. Expired seconds stay
# deleted.
_CORRECT = """
local second, span = tonumber(ARGV[1]), tonumber(ARGV[3])
if second <= tonumber(redis.call('TIME')[1]) - span then return 0 end
if redis.call('HINCRBY', KEYS[1], second, ARGV[2]) <= 0 then redis.call('HDEL', KEYS[1], second) end
redis.call('EXPIRE', KEYS[1], span + 1)
return 1
"""


class _SharedSlot(int):
    """The second of a reservation in Redis.

    Attributes:
        own: the second of the same reservation in the counts of this process.
    """

    own: int


class RedisUsageMeter:
    """Counts the use of keys in Redis; used in one event loop.

    Args:
        url: URL of the server, with its password: ``redis://…``, ``rediss://…`` or ``unix://…``.
        local: counts the same use in this process, for times when Redis does not answer.
        clock: returns monotonic seconds.
        timeout_s: see :data:`TIMEOUT_S`.
        retry_s: see :data:`RETRY_S`.

    Raises:
        ConfigurationError: the URL is invalid, or the package redis is missing.
    """

    def __init__(
        self,
        url: SecretStr,
        local: LocalUsageMeter | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = TIMEOUT_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._redis, self._failures = _connected(url, timeout_s)
        self._local = local or LocalUsageMeter()
        self._clock, self._timeout_s, self._retry_s = clock, timeout_s, retry_s
        self._take = self._redis.register_script(_TAKE)
        self._correct = self._redis.register_script(_CORRECT)
        self._unavailable_until: float | None = None

    async def reserve(self, key: StoredKey, requests: int, tokens: int) -> LimitDecision:
        """See :class:`~specclient.serving.keys.rate_limits.UsageMeter`."""
        limits = [-1 if each is None else each for each in (key.requests_per_minute, key.tokens_per_minute)]
        arguments = (SPAN_S, limits[0], requests, limits[1], tokens)
        result = await self._execute(lambda: self._take(_names(key), arguments))
        if result is None:
            return self._local.reserve_now(key, requests, tokens)
        slot = None
        if result[0] >= 0:
            if self._local.exceeds(key, requests, tokens, SPAN_S - _TOLERANCE_S):  # Redis has lost its counts
                await self._take_back(key, result[0], requests, tokens)
                return self._local.reserve_now(key, requests, tokens)
            slot = _SharedSlot(result[0])
            slot.own = self._local.count(key, requests, tokens)
        uses = [
            LimitUsage(
                limit, result[i], result[i + 1] / 1000, None if result[i + 2] < 0 else result[i + 2] / 1000
            )
            if limit >= 0
            else None
            for limit, i in zip(limits, (1, 4), strict=True)
        ]
        return LimitDecision(uses[0], uses[1], slot)

    async def adjust(self, key: StoredKey, slot: int, tokens: int) -> None:
        """See :class:`~specclient.serving.keys.rate_limits.UsageMeter`."""
        if not isinstance(slot, _SharedSlot):  # reserved while Redis did not answer
            await self._local.adjust(key, slot, tokens)
            return
        await self._local.adjust(key, slot.own, tokens)
        await self._execute(lambda: self._correct(_names(key)[1:], (int(slot), tokens, SPAN_S)))

    async def _take_back(self, key: StoredKey, slot: int, requests: int, tokens: int) -> None:
        for name, amount in zip(_names(key), (requests, tokens), strict=True):
            if amount:
                await self._execute(partial(self._correct, (name,), (slot, -amount, SPAN_S)))

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def _execute(self, command: Callable[[], Any]) -> Any:
        """Run a command; return None if Redis does not answer."""
        if self._unavailable_until is not None and self._clock() < self._unavailable_until:
            return None
        if self._unavailable_until is not None:  # one request tries; the others do not wait for it
            self._unavailable_until = self._clock() + 2 * self._timeout_s
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                answer = await command()
        except self._failures as error:
            if self._unavailable_until is None:
                _log.warning(
                    "Redis does not answer (%s); until it does, rate limits of keys apply per worker",
                    type(error).__name__,
                )
            self._unavailable_until = self._clock() + self._retry_s
            return None
        if self._unavailable_until is not None:
            self._unavailable_until = None
            _log.warning("Redis answers again; the workers share rate limits")
        return answer


def _names(key: StoredKey) -> list[str]:
    """Return the Redis keys of a key's counts; the hash tag keeps both on one node of a cluster."""
    return [f"specclient:rate:{{{key.digest[:32]}}}:{unit}" for unit in ("requests", "tokens")]


def _connected(url: SecretStr, timeout_s: float) -> tuple[Any, tuple[type[BaseException], ...]]:
    """Return a client, which connects on first use, and the exceptions that it raises."""
    try:
        from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415 - an extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "server.redis_url is set, but the package redis is not installed: pip install 'specclient[redis]'"
        ) from None
    try:
        pool = BlockingConnectionPool.from_url(
            url.get_secret_value(),
            max_connections=_CONNECTIONS,
            timeout=timeout_s,
            retry=Retry(NoBackoff(), 1),  # for an idle connection that was closed
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
        )
    except ValueError:
        raise ConfigurationError(
            "server.redis_url is not the URL of a Redis server; write redis://HOST:6379/0, rediss:// or unix://"
        ) from None
    return Redis.from_pool(pool), (RedisError, OSError, TimeoutError)
