"""Redis, which counts the use of keys with rate limits, is stopped, restarted and made slow under load."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from gateway_server import wait_until
from keyed_server import KeyedServer
from loopback_server import OpenAIServer
from redis_server import RedisServer
from slow_proxy import SlowProxy

pytest.importorskip("redis", reason="the extra `redis` is not installed")

from specclient.serving.keys.redis_meter import RedisUsageMeter

#: Seconds that a command waits for Redis, and that pass before the next command after a failure.
TIMEOUT_S, RETRY_S = 0.5, 1.0


class Workers:
    """Two servers that share keys and Redis as two worker processes do, with a proxy in front of Redis."""

    def __init__(self, folder: Path, upstream: OpenAIServer) -> None:
        self._folder, self._upstream = folder, upstream

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.redis = self._stack.enter_context(RedisServer(self._folder))
        self.proxy = self._stack.enter_context(SlowProxy(self.redis.port))
        url = self.redis.url_at(self.proxy.port)
        self.homes = []
        for _ in range(2):
            meter = RedisUsageMeter(url, timeout_s=TIMEOUT_S, retry_s=RETRY_S)
            home = KeyedServer(self._upstream, self._folder / "keys.sqlite3", meter=meter)
            self._stack.enter_context(home.served)
            self._stack.callback(home.store.close)
            self.homes.append(home)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def make(self, name: str, **limits: Any) -> str:
        return self.homes[0].make(name, **limits)

    def ask(self, key: str, number: int) -> tuple[int, float]:
        """Send a request to one of the workers; return its status and its time in seconds."""
        begun = time.monotonic()
        response: httpx.Response = self.homes[number % 2].ask(key)
        if response.status_code == 429:
            assert response.json()["error"]["code"] == "rate_limit_exceeded"
            assert int(response.headers["retry-after"]) <= 61
        return response.status_code, time.monotonic() - begun

    def ask_many(self, key: str, count: int) -> Counter[int]:
        """Send requests to both workers at once; return their statuses."""
        with ThreadPoolExecutor(8) as threads:
            return Counter(status for status, _ in threads.map(lambda n: self.ask(key, n), range(count)))


@pytest.fixture
def workers(tmp_path: Path, openai_server: OpenAIServer) -> Iterator[Workers]:
    with Workers(tmp_path, openai_server) as running:
        yield running


def test_each_worker_applies_the_limit_while_redis_is_stopped(workers: Workers) -> None:
    key = workers.make("alice", requests_per_minute=10)
    assert workers.ask_many(key, 4) == {200: 4}
    workers.redis.stop()
    counts = workers.ask_many(key, 40)
    assert set(counts) == {200, 429}
    assert counts[200] == 16, "each of the two workers serves 10 in all"
    workers.redis.start()
    time.sleep(RETRY_S + 0.2)
    assert workers.ask_many(key, 12) == {429: 12}, "a restarted Redis, which is empty, gave the limit again"


def test_a_limit_that_no_outage_disturbed_holds_for_both_workers(workers: Workers) -> None:
    first, later = (workers.make(name, requests_per_minute=10) for name in ("first", "later"))
    assert workers.ask_many(first, 4) == {200: 4}
    workers.redis.stop()
    assert workers.ask_many(first, 4) == {200: 4}
    workers.redis.start()
    time.sleep(RETRY_S + 0.2)
    workers.ask_many(first, 2)  # finds that Redis answers
    assert workers.ask_many(later, 30) == {200: 10, 429: 20}


class _Callers:
    """Clients that keep sending requests with a key; a context manager."""

    def __init__(self, workers: Workers, key: str, number: int) -> None:
        self._workers, self._key = workers, key
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(number)]
        self.times: list[tuple[int, float]] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client still waits"

    def _run(self, number: int) -> None:
        while not self._ended.is_set():
            self.times.append(self._workers.ask(self._key, number))
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("times", "seconds"), [(1, 1.5), pytest.param(8, 6.0, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
def test_no_request_waits_long_for_redis(workers: Workers, times: int, seconds: float) -> None:
    key = workers.make("busy", requests_per_minute=1_000_000, tokens_per_minute=1_000_000_000)
    assert workers.ask_many(key, 4) == {200: 4}
    with _Callers(workers, key, 8) as callers:
        for _ in range(times):
            workers.proxy.delay_s = 0.1
            time.sleep(seconds)
            workers.proxy.delay_s = 0.0
            workers.proxy.stall()
            before = len(callers.times)
            time.sleep(seconds + 4 * TIMEOUT_S)
            assert len(callers.times) > before + 16, "requests wait until Redis answers again"
            workers.proxy.go_on()
            workers.redis.stop()
            time.sleep(seconds)
            workers.redis.start()
            time.sleep(RETRY_S)
        before = len(callers.times)
        assert wait_until(lambda: len(callers.times) > before + 16)
    assert {status for status, _ in callers.times} == {200}
    slowest = max(seconds for _, seconds in callers.times)
    assert slowest < 4 * TIMEOUT_S + 3, "a request waited for Redis before its call and after it"
