"""Turn a Redis server into what the workers of a server, on one machine or many, count their keys' use in.

One script does all that :class:`~specclient.serving.keys.rate_limits.LocalUsageMeter` does, at once and by
Redis's own
clock, so that workers cannot come between each other. Where Redis does not answer, every worker goes on with
what it has counted itself: limits then hold for each, and no request is refused because of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from pydantic import SecretStr

from specclient.errors import ConfigurationError
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.rate_limits import SPAN_S, LimitDecision, LimitUsage, LocalUsageMeter

__all__ = ["RedisUsageMeter"]

_log = logging.getLogger("specclient")

#: Seconds that Redis has to answer, and for which it is left alone when it has not.
TIMEOUT_S, RETRY_S = 1.0, 5.0
_CONNECTIONS = 16

# KEYS: what is used in requests and in tokens, hashes of amounts by second. ARGV: span, then limit (-1: none)
# and amount of each. Returns the second taken in (-1: refused), then of each what is used, and the
# milliseconds until nothing of it counts and until the amount fits (-1: never).
_TAKE = """
local at = redis.call('TIME')
local now = tonumber(at[1]) + tonumber(at[2]) / 1000000
local span, slot = tonumber(ARGV[1]), tonumber(at[1])
local told, fits = {slot}, true
for i = 1, 2 do
  local limit, asked = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local used, newest, slots = 0, false, {}
  if limit >= 0 then
    local found = redis.call('HGETALL', KEYS[i])
    for k = 1, #found, 2 do
      local second, amount = tonumber(found[k]), tonumber(found[k + 1])
      if second <= now - span then
        redis.call('HDEL', KEYS[i], found[k])
      elseif amount > 0 then
        used = used + amount
        slots[#slots + 1] = {second, amount}
        if not newest or second > newest then newest = second end
      end
    end
  end
  local wait, over = 0, used + asked - limit
  if limit >= 0 and asked > 0 and over > 0 then
    wait, fits = -1, false
    if asked <= limit then
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
  told[#told + 1] = used
  told[#told + 1] = newest and math.ceil((newest + span - now) * 1000) or 0
  told[#told + 1] = wait
end
if not fits then
  told[1] = -1
  return told
end
for i = 1, 2 do
  local limit, asked = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  if limit >= 0 and asked > 0 then
    redis.call('HINCRBY', KEYS[i], slot, asked)
    redis.call('EXPIRE', KEYS[i], span + 1)
    told[3 * i - 1] = told[3 * i - 1] + asked
    told[3 * i] = math.ceil((slot + span - now) * 1000)
  end
end
return told
"""

# KEYS: what is used. ARGV: the second, the amount, the span. What counts no more is not brought back.
_CORRECT = """
local second, span = tonumber(ARGV[1]), tonumber(ARGV[3])
if second <= tonumber(redis.call('TIME')[1]) - span then return 0 end
if redis.call('HINCRBY', KEYS[1], second, ARGV[2]) <= 0 then redis.call('HDEL', KEYS[1], second) end
redis.call('EXPIRE', KEYS[1], span + 1)
return 1
"""


class RedisUsageMeter:
    """Counts what keys use in Redis; used in one event loop.

    Args:
        url: of the server, which may hold a password: ``redis://…``, ``rediss://…`` or ``unix://…``.
        local: counts beside it, and alone where Redis does not answer.
        clock: seconds, monotonic.
        timeout_s, retry_s: see :data:`TIMEOUT_S`.

    Raises:
        ConfigurationError: no such URL, or the package that speaks to Redis is missing.
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
        self._local = local or LocalUsageMeter(
            time.time
        )  # as Redis, which tells in what second it has counted
        self._clock, self._timeout_s, self._retry_s = clock, timeout_s, retry_s
        self._take = self._redis.register_script(_TAKE)
        self._correct = self._redis.register_script(_CORRECT)
        self._away_until: float | None = None

    async def take(self, key: StoredKey, requests: int, tokens: int) -> LimitDecision:
        """See :class:`~specclient.serving.keys.rate_limits.UsageMeter`."""
        limits = [-1 if each is None else each for each in (key.requests_per_minute, key.tokens_per_minute)]
        asked = (SPAN_S, limits[0], requests, limits[1], tokens)
        told = await self._answer(lambda: self._take(_names(key), asked))
        if told is None:
            return self._local.taken(key, requests, tokens)
        if told[0] >= 0:
            self._local.taken(key, requests, tokens)  # to go on from, should Redis go away
        uses = [
            LimitUsage(limit, told[i], told[i + 1] / 1000, None if told[i + 2] < 0 else told[i + 2] / 1000)
            if limit >= 0
            else None
            for limit, i in zip(limits, (1, 4), strict=True)
        ]
        return LimitDecision(uses[0], uses[1], told[0] if told[0] >= 0 else None)

    async def correct(self, key: StoredKey, slot: int, tokens: int) -> None:
        """See :class:`~specclient.serving.keys.rate_limits.UsageMeter`."""
        await self._local.correct(key, slot, tokens)
        await self._answer(lambda: self._correct(_names(key)[1:], (slot, tokens, SPAN_S)))

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def _answer(self, ask: Callable[[], Any]) -> Any:
        """Return what Redis answers, None where it does not."""
        if self._away_until is not None and self._clock() < self._away_until:
            return None
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                answer = await ask()
        except self._failures as error:
            if self._away_until is None:
                _log.warning(
                    "Redis does not answer (%s): until it does, each worker limits its keys by itself",
                    type(error).__name__,
                )
            self._away_until = self._clock() + self._retry_s
            return None
        if self._away_until is not None:
            self._away_until = None
            _log.warning("Redis answers again: the workers' limits are shared")
        return answer


def _names(key: StoredKey) -> list[str]:
    """Return the names of a key's counts in Redis, both on one server of a cluster."""
    return [f"specclient:rate:{{{key.digest[:32]}}}:{unit}" for unit in ("requests", "tokens")]


def _connected(url: SecretStr, timeout_s: float) -> tuple[Any, tuple[type[BaseException], ...]]:
    """Return a client, which connects when it is first used, and the errors by which it fails."""
    try:
        from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415 - an extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "server.redis_url is set, and the package redis is not installed: pip install 'specclient[redis]'"
        ) from None
    try:
        pool = BlockingConnectionPool.from_url(
            url.get_secret_value(),
            max_connections=_CONNECTIONS,
            timeout=timeout_s,
            retry=Retry(NoBackoff(), 1),  # for a connection that was closed while it lay idle
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
        )
    except ValueError:
        raise ConfigurationError(
            "server.redis_url is no URL of a Redis server; write redis://HOST:6379/0, rediss:// or unix://"
        ) from None
    return Redis.from_pool(pool), (RedisError, OSError, TimeoutError)
