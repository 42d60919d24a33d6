"""The stores of answers: SQLite, PostgreSQL and Redis, with their limits, and after a killed writer."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from redis_server import RedisServer

from specclient.errors import ConfigurationError
from specclient.response_cache.answer import CachedAnswer
from specclient.response_cache.location import answer_store
from specclient.response_cache.sqlite import SQLiteAnswers
from specclient.response_cache.store import AnswerStore, CacheStoreError, NewAnswer, StoreContents
from specclient.types.cache_options import CacheLimits

Made = Callable[..., AnswerStore]


class Clock:
    """A clock that tests set, in seconds; the stores date answers in milliseconds."""

    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s

    @property
    def ms(self) -> int:
        return int(self.now_s * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def make(request, tmp_path: Path, clock: Clock) -> Iterator[Made]:
    """Return a function that returns the store of one empty database with some limits."""
    made: list[AnswerStore] = []
    server = None
    if request.param == "sqlite":
        setting = str(tmp_path / "folder" / "cache.sqlite3")
    elif request.param == "postgresql":
        setting = request.getfixturevalue("postgres_url")
    else:
        server = RedisServer(tmp_path)
        server.start()
        setting = server.url.get_secret_value()

    def store(**limits) -> AnswerStore:
        made.append(answer_store(setting, CacheLimits(**limits), clock))
        return made[-1]

    yield store
    for each in made:
        each.close()
    if server is not None:
        server.stop()


def keys(store: AnswerStore, *names: str) -> list[str]:
    return [name for name in names if store.find(name, 0) is not None]


def test_an_answer_is_found_by_its_key_until_it_is_too_old(make: Made, clock: Clock):
    store = make()
    assert store.find("a", 0) is None
    store.put(NewAnswer("a", clock.ms, b"\x00one\xff"))
    assert store.find("a", clock.ms) == b"\x00one\xff"
    assert store.find("a", clock.ms + 1) is None
    assert store.find("b", 0) is None
    assert make().find("a", 0) == b"\x00one\xff"


def test_an_answer_replaces_that_of_its_key(make: Made, clock: Clock):
    store = make()
    store.put(NewAnswer("a", clock.ms, b"1" * 100))
    store.put(NewAnswer("a", clock.ms + 1, b"22"))
    assert store.find("a", 0) == b"22"
    assert store.contents() == StoreContents(
        entries=1, bytes=2, oldest_ms=clock.ms + 1, newest_ms=clock.ms + 1
    )


def test_the_least_recently_used_answers_go_beyond_the_number_of_entries(make: Made, clock: Clock):
    store = make(max_entries=3)
    used: list[tuple[str, int]] = []
    for name in "abc":
        clock.now_s += 1
        store.put(NewAnswer(name, clock.ms, name.encode()))
    clock.now_s += 1
    assert store.find("a", 0) == b"a"
    used.append(("a", clock.ms))
    clock.now_s += 1
    store.put(NewAnswer("d", clock.ms, b"d"), used)
    assert keys(store, *"abcd") == ["a", "c", "d"]
    assert store.contents().entries == 3


def test_the_least_recently_used_answers_go_beyond_the_number_of_bytes(make: Made, clock: Clock):
    store = make(max_bytes=100)
    for name in "abcd":
        clock.now_s += 1
        store.put(NewAnswer(name, clock.ms, name.encode() * 40))
    assert keys(store, *"abcd") == ["c", "d"]
    assert store.contents().bytes == 80
    store.put(NewAnswer("e", clock.ms + 1, b"e" * 90))
    assert keys(store, *"abcde") == ["e"]


def test_answers_that_are_too_old_are_removed(make: Made, clock: Clock):
    store = make(max_age_s=10)
    store.put(NewAnswer("a", clock.ms, b"a"))
    clock.now_s += 11
    store.put(NewAnswer("b", clock.ms, b"b"))
    assert keys(store, "a", "b") == ["b"]
    assert store.contents().entries == 1


def test_answers_are_removed_one_by_one_and_all(make: Made, clock: Clock):
    store = make()
    for name in "abc":
        store.put(NewAnswer(name, clock.ms, name.encode()))
    store.remove("b")
    store.remove("none")
    assert keys(store, *"abc") == ["a", "c"]
    assert store.contents().bytes == 2
    assert store.clear() == 2
    assert store.clear() == 0
    assert store.contents() == StoreContents()
    store.put(NewAnswer("a", clock.ms, b"a"))
    assert store.contents().entries == 1


def test_stores_of_one_database_share_the_answers(make: Made, clock: Clock):
    one, other = make(max_entries=2), make(max_entries=2)
    for number in range(6):
        clock.now_s += 1
        (one, other)[number % 2].put(NewAnswer(str(number), clock.ms, b"x"))
    assert keys(one, *"012345") == keys(other, *"012345") == ["4", "5"]


def test_a_call_is_claimed_by_one_holder_until_its_claim_ends(make: Made, clock: Clock):
    one, other = make(), make()
    assert one.claim("a", "me", 60)
    assert one.claim("a", "me", 60)  # renewed
    assert not other.claim("a", "you", 60)
    assert other.claim("b", "you", 60)
    other.release("a", "you")  # not its own
    assert not other.claim("a", "you", 60)
    one.release("a", "me")
    assert other.claim("a", "you", 60)
    other.put(NewAnswer("a", clock.ms, b"a"))  # ends the claim
    assert one.claim("a", "me", 0.05)
    clock.now_s += 0.1
    time.sleep(0.1)  # by the clock of Redis
    assert other.claim("a", "you", 60)


def test_one_of_many_gets_a_claim(make: Made):
    stores = [make() for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        claimed = list(threads.map(lambda number: stores[number].claim("a", str(number), 60), range(6)))
    assert sorted(claimed) == [False] * 5 + [True]


# The file


def test_a_file_is_readable_for_its_owner_only_and_its_space_is_given_back(tmp_path: Path, clock: Clock):
    path = tmp_path / "new" / "cache.sqlite3"
    store = SQLiteAnswers(str(path), CacheLimits())
    assert store.find("a", 0) is None
    assert store.contents() == StoreContents()
    assert store.clear() == 0
    assert not path.exists()  # reading makes no file
    for number in range(20):
        store.put(NewAnswer(str(number), clock.ms, b"x" * 50_000))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    store.clear()
    store.close()
    assert path.stat().st_size < 100_000


def _make_other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)").close()


@pytest.mark.parametrize(
    ("make_file", "why"),
    [
        (lambda path: path.write_bytes(b"no database " * 500), "file is not a database"),
        (_make_other_database, "another program's"),
        (lambda path: path.mkdir(), "unable to open|Is a directory"),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path, make_file, why: str):
    path = tmp_path / "cache.sqlite3"
    made = make_file(path)
    del made
    before = path.read_bytes() if path.is_file() else None
    store = SQLiteAnswers(str(path), CacheLimits())
    with pytest.raises(CacheStoreError, match=rf"{path}.*({why}).*SPECCLIENT_CACHE"):
        store.put(NewAnswer("a", 1, b"a"))
    with pytest.raises(CacheStoreError, match=why):
        store.find("a", 0)
    store.close()
    if before is not None and b"no database" in before:
        assert path.read_bytes() == before


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path, clock: Clock):
    path = tmp_path / "cache.sqlite3"
    store = SQLiteAnswers(str(path), CacheLimits())
    for number in range(50):
        store.put(NewAnswer(str(number), clock.ms, b"x" * 4000))
    store.close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with pytest.raises(CacheStoreError, match="cannot read the response cache"):
        any(store.find(str(number), 0) for number in range(50, -1, -1))
    store.close()


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path, clock: Clock):
    path = tmp_path / "cache.sqlite3"
    store = SQLiteAnswers(str(path), CacheLimits())
    store.put(NewAnswer("a", clock.ms, b"a"))
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=9")
    with pytest.raises(CacheStoreError, match="a newer specclient made it"):
        store.find("a", 0)


def test_a_locked_file_is_an_error_after_a_second(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("specclient.response_cache.sqlite.BUSY_S", 0.05)
    path = tmp_path / "cache.sqlite3"
    store = SQLiteAnswers(str(path), CacheLimits())
    store.put(NewAnswer("a", clock.ms, b"a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CacheStoreError, match="database is locked"):
            store.put(NewAnswer("b", clock.ms, b"b"))
        assert store.find("a", 0) == b"a"  # readers do not wait for a writer
    store.put(NewAnswer("b", clock.ms, b"b"))
    assert store.find("b", 0) == b"b"
    store.close()


#: Writes answers until it is killed, and prints the number of each that is stored.
WRITER = """
import sys, time
from specclient.response_cache.answer import CachedAnswer
from specclient.response_cache.location import answer_store
from specclient.response_cache.store import NewAnswer
from specclient.types.cache_options import CacheLimits

store = answer_store(sys.argv[1], CacheLimits())
for number in range(10**6):
    answer = CachedAnswer(
        parts=[b"%d" % number] * 50_000, made_ms=int(time.time() * 1000), provider="p", model="m", route="p/m"
    )
    store.put(NewAnswer(str(number % 7), answer.made_ms, answer.encode()))
    print(number, flush=True)
"""


@pytest.mark.parametrize("pause_s", [0.0, 0.013, 0.029])
def test_a_killed_process_leaves_no_part_of_an_answer(make: Made, pause_s: float, tmp_path: Path):
    store = make()
    setting = getattr(store, "_url", store.name)
    if store.name.startswith("postgresql"):
        setting = store._url.set(drivername="postgresql").render_as_string(hide_password=False)
    command = [sys.executable, "-c", WRITER, str(setting)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        written = [int(writer.stdout.readline()) for _ in range(9)][-1]
        time.sleep(pause_s)
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
    last = int(rest[-1]) if rest else written
    found = {name: store.find(name, 0) for name in "0123456"}
    decoded = {name: CachedAnswer.decode(body) for name, body in found.items() if body is not None}
    assert len(decoded) == 7
    numbers = [int(answer.parts[0]) for answer in decoded.values()]
    assert max(numbers) in (last, last + 1)  # what was acknowledged is there, and perhaps the next one
    assert all(set(answer.parts) == {answer.parts[0]} for answer in decoded.values())
    contents = store.contents()
    assert (contents.entries, contents.bytes) == (7, sum(len(body or b"") for body in found.values()))
    if isinstance(store, SQLiteAnswers):
        with closing(sqlite3.connect(store.name)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Settings


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("mysql://me:secret@host/db", "neither a path nor a URL of a PostgreSQL or Redis server"),
        ("postgresql:me:secret@host/db", "neither a path nor a URL"),
        ("redis:secret@host", "neither a path nor a URL"),
        ("redis://host:port/0", "is not the URL of a Redis server"),
        (" ", "it must be a path or a URL"),
    ],
)
def test_a_setting_that_names_no_store_is_refused_without_its_password(setting: str, named: str):
    with pytest.raises(ConfigurationError, match=named) as refused:
        answer_store(setting, CacheLimits())
    assert "secret" not in str(refused.value)


def test_the_default_is_a_file_in_the_users_data_folder(clean_home: Path):
    assert answer_store(None, CacheLimits()).name == str(clean_home / "specclient" / "cache.sqlite3")
    assert answer_store("~/c.db", CacheLimits()).name == str(clean_home / "c.db")
    assert answer_store("sqlite:////tmp/c.db", CacheLimits()).name == "/tmp/c.db"


def test_names_show_no_password(postgres_url: str):
    store = answer_store("postgresql://me:hunter2@127.0.0.1:1/db", CacheLimits())
    assert "hunter2" not in store.name
    with pytest.raises(CacheStoreError, match="cannot read the response cache") as failed:
        store.find("a", 0)
    assert "hunter2" not in str(failed.value)
    redis = answer_store("redis://:hunter2@127.0.0.1:1/0", CacheLimits())
    with pytest.raises(CacheStoreError, match="cannot write the response cache") as failed:
        redis.put(NewAnswer("a", 1, b"a"))
    assert "hunter2" not in str(failed.value)
