"""Server keys: creation, limits, storage, revocation, and the cache of a running server."""

from __future__ import annotations

import dataclasses
import logging
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from specclient.errors import ConfigurationError, LedgerError
from specclient.ledger.sqlite import SQLiteStore
from specclient.openai_http.errors import ServingError
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.key import PREFIX, StoredKey, digest_of, new_key, new_token
from specclient.serving.keys.store import KeyStore
from specclient.types.budget import BudgetScope

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.sqlite3"


@pytest.fixture
def store(file: Path):
    found = KeyStore(SQLiteStore(str(file)))
    yield found
    found.close()


def _made(name: str = "alice", **granted) -> tuple[str, StoredKey]:
    token = new_token()
    return token, new_key(name, token, AT, **granted)


def test_keys_are_unique_and_have_256_random_bits() -> None:
    tokens = {new_token() for _ in range(200)}
    assert len(tokens) == 200
    assert {len(token) - len(PREFIX) for token in tokens} == {43}  # 43 characters of 6 bits


def test_a_stored_key_is_read_back_unchanged(store: KeyStore) -> None:
    granted = {
        "expires_at": AT + timedelta(days=1),
        "usd": Decimal("1.25"),
        "period": "day",
        "requests_per_minute": 5,
        "tokens_per_minute": 900,
        "models": ["openai/*", "local/demo"],
        "tags": {"team": "web"},
    }
    _, key = _made(**granted)
    store.add(key)
    (found,) = store.all()
    assert found == key
    assert found.budget is not None
    assert (found.budget.usd, found.budget.period, found.budget.tag) == (Decimal("1.25"), "day", "key=alice")
    assert found.labels == {"team": "web", "key": "alice"}


def test_the_token_is_not_stored_in_the_database(store: KeyStore, file: Path) -> None:
    token, key = _made(models=["m"])
    store.add(key)
    store.revoke(token, AT)
    store.used(key, AT)
    held = b"".join(path.read_bytes() for path in file.parent.glob("keys.sqlite3*"))
    assert key.digest.encode() in held, "the database's bytes were not read"
    assert token.encode() not in held
    assert token[len(key.prefix) :].encode() not in held
    assert token not in repr(key)
    assert key.digest not in repr(key)


@pytest.mark.parametrize(
    ("granted", "message"),
    [
        ({"name": ""}, "1 to 64 letters"),
        ({"name": "a b"}, "'a b'"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"requests_per_minute": 0}, "requests per minute is 0"),
        ({"tokens_per_minute": -1}, "tokens per minute is -1"),
        ({"expires_at": AT}, "in the past"),
        ({"tags": {"key": "bob"}}, "cannot be set"),
        ({"models": [""]}, "'openai/\\*'"),
        ({"usd": Decimal(0)}, "above 0"),
    ],
)
def test_an_invalid_limit_is_named(granted: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _made(**granted)


def test_a_name_can_be_reused_after_its_key_is_revoked(store: KeyStore) -> None:
    _, first = _made()
    _, second = _made()
    store.add(first)
    with pytest.raises(ConfigurationError, match="revoke it first"):
        store.add(second)
    assert store.revoke("alice", AT).prefix == first.prefix
    store.add(second)
    assert sorted(key.status(AT) for key in store.all()) == ["active", "revoked"]
    with pytest.raises(ConfigurationError, match="the keys are: alice"):
        store.revoke("bob", AT)


def test_a_key_is_revoked_by_name_prefix_or_token_and_errors_omit_the_token(store: KeyStore) -> None:
    token, key = _made()
    _, another = _made("bob")
    store.add(key)
    store.add(another)
    with pytest.raises(ConfigurationError, match="no key has the name or prefix"):
        store.revoke(PREFIX, AT)
    stranger = new_token()
    with pytest.raises(ConfigurationError) as caught:
        store.revoke(stranger, AT)
    assert stranger[12:] not in str(caught.value)
    assert store.revoke(another.prefix, AT).name == "bob"
    assert store.revoke(token, AT).name == "alice"


def test_only_one_of_concurrent_keys_with_the_same_name_is_added(file: Path, store: KeyStore) -> None:
    stores = [KeyStore(SQLiteStore(str(file))) for _ in range(8)]
    refused: list[str] = []

    def add(own: KeyStore) -> None:
        try:
            own.add(_made()[1])
        except ConfigurationError as error:
            refused.append(str(error))
        finally:
            own.close()

    threads = [threading.Thread(target=add, args=(own,)) for own in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert len(store.all()) == 1


def test_a_table_of_a_newer_schema_version_is_not_changed(store: KeyStore, file: Path) -> None:
    store.add(_made()[1])
    database, newer = SQLiteStore(str(file)), KeyStore(SQLiteStore(str(file)))
    with closing(database), closing(newer):
        database.transact(lambda execute: execute("UPDATE server_keys_schema SET version = 99"))
        with pytest.raises(LedgerError, match=r"schema version 99.*upgrade specclient"):
            newer.add(_made("bob")[1])


def test_listing_keys_does_not_create_a_missing_ledger(store: KeyStore, file: Path) -> None:
    assert store.all() == []
    assert not file.exists()


def test_a_keys_models_are_matched_by_patterns() -> None:
    key = _made(models=["openai/gpt-4*", "local/demo"])[1]
    assert key.allows(["openai/gpt-4.1"])
    assert key.allows(["x", "local/demo"])
    assert not key.allows(["openai/gpt-5"])
    assert not key.allows(["local/demo-target"])
    assert _made()[1].allows(["anything"])


class _Time:
    """A clock set by the test, and its wall-clock time."""

    def __init__(self) -> None:
        self.at = 0.0

    def clock(self) -> float:
        return self.at

    def now(self) -> datetime:
        return AT + timedelta(seconds=self.at)


@pytest.mark.anyio
async def test_a_running_server_notices_new_expired_and_revoked_keys_within_seconds(store: KeyStore) -> None:
    time = _Time()
    cache = KeyCache(store, clock=time.clock, now=time.now, fresh_s=2.0)
    assert not await cache.needed()
    token, key = _made(usd=Decimal(1), expires_at=AT + timedelta(seconds=10))
    store.add(key)
    assert await cache.find(token) is None, "the cache is not refreshed yet"
    time.at = 2.0
    assert await cache.needed()
    assert (await cache.find(token)).name == "alice"
    assert await cache.find(token[:-1]) is None
    assert [each.name for each in cache.budgets(BudgetScope("p", (), {"key": "alice"}, None))] == [
        "key alice"
    ]
    assert cache.budgets(BudgetScope("p", (), {"key": "bob"}, None)) == ()
    time.at = 11.0
    assert await cache.find(token) is None, "it has expired"
    time.at = 3.0
    assert await cache.find(token) is not None
    store.revoke("alice", AT)
    time.at = 14.0
    assert await cache.find(token) is None
    assert await cache.needed(), "a server that had a key requires one from then on"
    later = KeyCache(store, clock=time.clock, now=time.now)
    assert await later.needed(), "so does a server started after the last key was revoked"
    store.add(_made()[1])
    time.at = 20.0
    await cache.needed()
    assert cache.budgets(BudgetScope("p", (), {"key": "alice"}, None)) == (), (
        "the new key of that name has no budget"
    )
    await cache.close()


@pytest.mark.anyio
async def test_the_last_use_is_stored_once_a_minute(store: KeyStore) -> None:
    time = _Time()
    token, key = _made()
    store.add(key)
    cache = KeyCache(store, clock=time.clock, now=time.now)
    for at in (5.0, 30.0, 64.0):
        time.at = at
        await cache.find(token)
    await cache.close()
    assert store.all()[0].used_at == AT + timedelta(seconds=5)
    time.at = 66.0
    await cache.find(token)
    await cache.close()
    assert store.all()[0].used_at == AT + timedelta(seconds=66)


@pytest.mark.anyio
async def test_cached_keys_stay_valid_for_five_minutes_while_the_database_fails(
    store: KeyStore, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    time = _Time()
    token, key = _made()
    store.add(key)
    store.used(key, AT + timedelta(days=9))
    cache = KeyCache(store, clock=time.clock, now=time.now)
    assert await cache.find(token)
    store.close()
    for path in file.parent.glob("keys.sqlite3*"):
        path.unlink()
    file.mkdir()
    with caplog.at_level(logging.WARNING, "specclient"):
        for at in (5.0, 30.0, 299.0):
            time.at = at
            assert await cache.find(token)
        with pytest.raises(ServingError, match="cannot be read"):
            await cache.find(_made("bob")[0])
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the keys of this server cannot be read"
    ]
    time.at = 301.0
    with pytest.raises(ServingError) as caught:
        await cache.find(token)
    assert (caught.value.status, caught.value.code) == (503, "keys_unavailable")
    assert await cache.needed()
    await cache.close()
    file.rmdir()
    time.at = 900.0
    assert await cache.find(token) is None, "read again, from a database that lacks the key"
    await cache.close()


@pytest.mark.anyio
@pytest.mark.parametrize("damage", ["models = '['", "created_at = 'x'", "budget_nano = 1, period = 'x'"])
async def test_a_damaged_key_does_not_open_the_server(store: KeyStore, file: Path, damage: str) -> None:
    token, key = _made()
    store.add(key)
    with closing(SQLiteStore(str(file))) as database:
        database.transact(lambda execute: execute(f"UPDATE server_keys SET {damage}"))
    with pytest.raises(LedgerError, match="is damaged"):
        store.all()
    cache = KeyCache(store)
    assert await cache.needed()
    with pytest.raises(ServingError) as caught:
        await cache.find(token)
    assert caught.value.status == 503
    await cache.close()


def test_the_digest_is_sha_256_and_a_record_does_not_contain_the_token() -> None:
    token, key = _made()
    assert digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert key.digest == digest_of(token)
    shown = dataclasses.asdict(key)
    assert [name for name, value in shown.items() if value == token] == []
    assert token.startswith(key.prefix)
    assert len(key.prefix) == len(PREFIX) + 6
