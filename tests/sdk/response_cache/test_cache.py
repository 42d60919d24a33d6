"""The response cache: it never fails a call, and reports a store that fails once."""

from __future__ import annotations

import os
import sqlite3
import threading
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from specclient.errors import ConfigurationError
from specclient.response_cache.cache import ResponseCache
from specclient.types.cache_options import CacheLimits

pytestmark = pytest.mark.anyio


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "cache.sqlite3")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "specclient"]


async def test_an_answer_is_kept_and_found_by_another_cache(file: str):
    one, other = ResponseCache(file, CacheLimits()), ResponseCache(file, CacheLimits())
    assert await one.find("a") is None
    await one.keep("a", b"answer", one.now_ms())
    assert await other.find("a") == b"answer"
    one.close()
    assert await one.find("a") == b"answer"  # a closed cache opens again
    one.close()
    other.close()


async def test_a_call_may_ask_for_a_younger_answer_but_not_for_an_older_one(file: str):
    now = [1000.0]
    cache = ResponseCache(file, CacheLimits(max_age_s=60), now=lambda: now[0])
    await cache.keep("a", b"answer", cache.now_ms())
    now[0] += 30
    assert await cache.find("a", 31) == b"answer"
    assert await cache.find("a", 29) is None
    assert await cache.find("a", 10**9) == b"answer"
    now[0] += 31
    assert await cache.find("a", 10**9) is None
    cache.close()


async def test_an_answer_above_an_eighth_of_the_bytes_is_not_kept(file: str):
    cache = ResponseCache(file, CacheLimits(max_bytes=800))
    await cache.keep("small", b"x" * 100, cache.now_ms())
    await cache.keep("large", b"x" * 101, cache.now_ms())
    assert (await cache.find("small"), await cache.find("large")) == (b"x" * 100, None)
    cache.close()


async def test_use_keeps_an_answer_longer(file: str):
    now = [1000.0]
    cache = ResponseCache(file, CacheLimits(max_entries=2), now=lambda: now[0])
    for name in ("a", "b"):
        await cache.keep(name, b"x", cache.now_ms())
        now[0] += 1
    await cache.find("a")
    now[0] += 1
    await cache.keep("c", b"x", cache.now_ms())
    assert [name for name in "abc" if await cache.find(name)] == ["a", "c"]
    cache.close()


@pytest.mark.parametrize("trouble", ["garbage", "folder is a file", "not writable"])
async def test_a_store_that_fails_is_reported_once_and_left_alone(
    trouble: str, file: str, caplog: pytest.LogCaptureFixture
):
    path = Path(file)
    if trouble == "garbage":
        path.write_bytes(b"garbage" * 1000)
    elif trouble == "folder is a file":
        path.write_text("x")
        file = f"{file}/cache.sqlite3"
    else:  # not even root may write there
        file = "/proc/specclient/cache.sqlite3"
    now = [0.0]
    cache = ResponseCache(file, CacheLimits(), clock=lambda: now[0])
    for _ in range(3):
        assert await cache.find("a") is None
        await cache.keep("a", b"x", cache.now_ms())
        now[0] += 100
    (warning,) = logged(caplog)
    assert file in warning
    assert "Calls go on without the cache" in warning
    assert "SPECCLIENT_CACHE" in warning
    cache.close()


async def test_a_failed_store_is_tried_again_after_a_while(file: str, caplog: pytest.LogCaptureFixture):
    Path(file).write_bytes(b"garbage" * 1000)
    now = [0.0]
    cache = ResponseCache(file, CacheLimits(), clock=lambda: now[0], retry_s=10)
    await cache.keep("a", b"x", cache.now_ms())
    Path(file).unlink()
    await cache.keep("a", b"x", cache.now_ms())
    assert not Path(file).exists()  # it is left alone
    now[0] += 10
    await cache.keep("a", b"x", cache.now_ms())
    assert await cache.find("a") == b"x"
    assert len(logged(caplog)) == 1
    cache.close()


async def test_a_store_that_does_not_answer_is_not_waited_for(file: str, caplog: pytest.LogCaptureFixture):
    cache = ResponseCache(file, CacheLimits(), patience_s=0.05)
    await cache.keep("a", b"x", cache.now_ms())
    go_on = threading.Event()
    cache._threads.begin(lambda: go_on.wait(20))  # in the only thread that uses the file
    assert await cache.find("a") is None
    assert "has not answered for 0.05 s" in logged(caplog)[0]
    go_on.set()
    cache.close()


async def test_a_damaged_answer_is_removed_and_reported_once(file: str, caplog: pytest.LogCaptureFixture):
    cache = ResponseCache(file, CacheLimits())
    for name in ("a", "b"):
        await cache.keep(name, b"x", cache.now_ms())
        cache.drop_damaged(name, "its checksum is wrong")
    cache.close()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM cached_answers").fetchone() == (0,)
    (warning,) = logged(caplog)
    assert "damaged and was removed: its checksum is wrong" in warning


async def test_a_setting_that_names_no_store_is_an_error():
    cache = ResponseCache("mysql://host/db", CacheLimits())
    with pytest.raises(ConfigurationError, match=r"cache\.store 'mysql://host/db'"):
        await cache.find("a")
    cache.close()


async def test_owners_share_answers_only_if_the_cache_is_shared(file: str):
    private, shared = ResponseCache(file, CacheLimits()), ResponseCache(file, CacheLimits(), shared=True)
    assert private.owner("a") != private.owner("b")
    assert private.owner("") != private.owner("shared")
    assert shared.owner("a") == shared.owner("b")


def test_limits_of_zero_switch_the_cache_off(file: str):
    assert not ResponseCache(file, CacheLimits(max_bytes=0)).enabled
    assert not ResponseCache(file, CacheLimits(max_entries=0)).enabled


async def test_a_forked_child_uses_the_store_by_itself(file: str, caplog: pytest.LogCaptureFixture):
    cache = ResponseCache(file, CacheLimits())
    await cache.keep("a", b"x", cache.now_ms())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the process has several threads
        child = os.fork()
    if child == 0:  # pragma: no cover
        import asyncio

        async def use() -> bool:
            found = await cache.find("a")
            await cache.keep("b", b"y", cache.now_ms())
            return found == b"x"

        loop = asyncio.new_event_loop()
        asyncio._set_running_loop(None)
        os._exit(0 if loop.run_until_complete(use()) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert await cache.find("b") == b"y"
    assert logged(caplog) == []
    cache.close()
