"""The store of answers in Redis, which several machines may share. The extra ``redis`` installs its client.

An answer is a text that Redis removes when it is too old. A sorted set orders the keys by their last use, and
a hash has the size and the time of each; both may name answers that Redis has removed, until a script meets
them. All names have one hash tag, so that they are on one node of a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from specclient.errors import ConfigurationError
from specclient.response_cache.store import CACHE_HINT, CacheStoreError, NewAnswer, StoreContents
from specclient.runtime.masked_urls import mask_url_passwords
from specclient.types.cache_options import CacheLimits

__all__ = ["RedisAnswers"]

_PREFIX = "specclient:{cache}:"
_ANSWER, _CLAIMED = f"{_PREFIX}answer:", f"{_PREFIX}claim:"
_USED, _MADE, _SIZES, _TOTAL = (f"{_PREFIX}{name}" for name in ("used", "made", "sizes", "total"))
_TIMEOUT_S = 1.0
#: Answers that a command names at once.
_PAGE = 500

# KEYS: used, made, sizes, total. `forget` removes what is noted of one answer.
_FORGET = """
local function forget(key)
  local size = tonumber(redis.call('HGET', KEYS[3], key) or '0')
  redis.call('HDEL', KEYS[3], key)
  redis.call('ZREM', KEYS[1], key)
  redis.call('ZREM', KEYS[2], key)
  redis.call('DECRBY', KEYS[4], size)
end
"""

# KEYS: as above, then the answer. ARGV: its key, the time of the oldest that may be used, the time now.
_FIND = (
    _FORGET
    + """
local body = redis.call('GET', KEYS[5])
if not body then
  if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then forget(ARGV[1]) end
  return false
end
local made = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or '0')
if made < tonumber(ARGV[2]) then return false end
redis.call('ZADD', KEYS[1], 'XX', ARGV[3], ARGV[1])
return body
"""
)

# KEYS: as above, then the answer and its claim. ARGV: its key, its body, when it was made, the time now, the
# maximum age in ms, the maxima of answers and bytes, and the prefix of answers.
_PUT = (
    _FORGET
    + """
local now, age = tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then forget(ARGV[1]) end
redis.call('SET', KEYS[5], ARGV[2], 'PX', age)
redis.call('DEL', KEYS[6])
redis.call('HSET', KEYS[3], ARGV[1], #ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
redis.call('INCRBY', KEYS[4], #ARGV[2])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - age, 'LIMIT', 0, 100)) do
  redis.call('DEL', ARGV[8] .. key)
  forget(key)
end
while redis.call('ZCARD', KEYS[1]) > 1 and (redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[6])
    or tonumber(redis.call('GET', KEYS[4]) or '0') > tonumber(ARGV[7])) do
  local first = redis.call('ZRANGE', KEYS[1], 0, 1)
  local key = first[1] == ARGV[1] and first[2] or first[1]
  redis.call('DEL', ARGV[8] .. key)
  forget(key)
end
return 1
"""
)

# KEYS: as above, then the answer. ARGV: its key.
_REMOVE = (
    _FORGET
    + """
redis.call('DEL', KEYS[5])
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then forget(ARGV[1]) end
return 1
"""
)

# KEYS: the claim. ARGV: the holder, and for a claim its milliseconds.
_CLAIM = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
_NAMES = (_USED, _MADE, _SIZES, _TOTAL)


class RedisAnswers:
    """The answers in one Redis database; see :class:`~specclient.response_cache.store.AnswerStore`.

    Args:
        url: of the server, with its password: ``redis://…``, ``rediss://…`` or ``unix://…``.
        limits: limits on age and size.
        now: returns seconds since the epoch.

    Raises:
        ConfigurationError: the URL is invalid, or the package redis is missing.
    """

    threads = 4

    def __init__(self, url: str, limits: CacheLimits, *, now: Callable[[], float] = time.time) -> None:
        #: The URL without its password.
        self.name = mask_url_passwords(url)
        self._url, self._limits, self._now = url, limits, now
        self._redis, self._failures = _connected(url)
        script = self._redis.register_script
        self._find, self._put, self._remove = map(script, (_FIND, _PUT, _REMOVE))
        self._claim, self._release = map(script, (_CLAIM, _RELEASE))

    def exists(self) -> bool:
        """Return True: whether there is an answer is known only when it is read."""
        return True

    def find(self, key: str, oldest_ms: int) -> bytes | None:
        """Return the answer of a key that was made at this time or later; None if there is none."""
        with self._errors("read"):
            arguments = (key, oldest_ms, int(self._now() * 1000))
            found: bytes | None = self._find((*_NAMES, _ANSWER + key), arguments)
            return found

    def put(self, answer: NewAnswer, used: Collection[tuple[str, int]] = ()) -> None:  # noqa: ARG002 - noted by `find`
        """Store an answer by one script, and keep the limits."""
        limits = self._limits
        arguments = (
            answer.key,
            answer.body,
            answer.made_ms,
            int(self._now() * 1000),
            limits.max_age_ms,
            limits.max_entries,
            limits.max_bytes,
            _ANSWER,
        )
        with self._errors("write"):
            self._put((*_NAMES, _ANSWER + answer.key, _CLAIMED + answer.key), arguments)

    def remove(self, key: str) -> None:
        """Remove an answer."""
        with self._errors("write"):
            self._remove((*_NAMES, _ANSWER + key), (key,))

    def claim(self, key: str, holder: str, lease_s: float) -> bool:
        """Claim the call of a key for some seconds; return False if another holder has claimed it."""
        with self._errors("write"):
            return bool(self._claim((_CLAIMED + key,), (holder, int(lease_s * 1000))))

    def release(self, key: str, holder: str) -> None:
        """End a holder's claim."""
        with self._errors("write"):
            self._release((_CLAIMED + key,), (holder,))

    def contents(self) -> StoreContents:
        """Return what Redis holds."""
        with self._errors("read"):
            oldest = self._redis.zrange(_MADE, 0, 0, withscores=True)
            newest = self._redis.zrange(_MADE, -1, -1, withscores=True)
            return StoreContents(
                entries=self._redis.zcard(_USED),
                bytes=int(self._redis.get(_TOTAL) or 0),
                oldest_ms=int(oldest[0][1]) if oldest else None,
                newest_ms=int(newest[0][1]) if newest else None,
            )

    def clear(self) -> int:
        """Remove all answers; return their number."""
        removed = 0
        with self._errors("write"):
            while keys := self._redis.zrange(_USED, 0, _PAGE - 1):
                for key in keys:
                    self._remove((*_NAMES, _ANSWER + key.decode()), (key,))
                removed += len(keys)
            self._redis.delete(*_NAMES)
        return removed

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def abandon(self) -> None:
        """Do nothing: the client itself connects anew in a forked process."""

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            why = type(error).__name__  # its text may quote the URL
        else:
            return
        raise CacheStoreError(f"cannot {what} the response cache {self.name}: {why}; {CACHE_HINT}")


def _connected(url: str) -> tuple[Any, tuple[type[BaseException], ...]]:
    """Return a client, which connects on first use, and the exceptions that it raises."""
    try:
        from redis import Redis  # noqa: PLC0415 - an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "cache.store names a Redis server, but the package redis is not installed: "
            "pip install 'specclient[redis]'"
        ) from None
    try:
        client = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1),  # for an idle connection that was closed
        )
    except ValueError:
        raise ConfigurationError(
            "cache.store is not the URL of a Redis server; write redis://HOST:6379/0, rediss:// or unix://"
        ) from None
    return client, (RedisError, OSError)
