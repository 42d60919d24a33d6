"""Server keys in a PostgreSQL ledger: the same table and rules as in a file."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal

import pytest

pytest.importorskip("starlette", reason="the extra `server` is not installed")

from specclient.errors import ConfigurationError
from specclient.ledger.ledger import Ledger
from specclient.serving.keys.key import new_key, new_token
from specclient.serving.keys.store import KeyStore


def _store(url: str) -> KeyStore:
    found = KeyStore.of(url)
    assert found is not None
    return found


def test_keys_are_stored_with_the_ledger(postgres_url: str, make_call) -> None:
    ledger = Ledger(postgres_url)
    ledger.submit(make_call("c1"))
    ledger.close()
    now, token, store = datetime.now(UTC), new_token(), _store(postgres_url)
    key = new_key(
        "alice", token, now, usd=Decimal("1.5"), period="day", models=["openai/*"], tags={"team": "web"}
    )
    assert store.all() == []
    store.add(key)
    assert store.all() == [key]
    with pytest.raises(ConfigurationError, match="revoke it first"):
        store.add(new_key("alice", new_token(), now))
    store.used(key, now)
    assert store.revoke(token, now).name == "alice"
    other = _store(postgres_url)
    (found,) = other.all()
    assert (found.used_at, found.revoked_at) == (now, now)
    other.close()
    store.close()
    ledger = Ledger(postgres_url)
    assert [row.id for row in ledger.rows()] == ["c1"]
    ledger.close()


def test_only_one_of_concurrent_keys_with_the_same_name_is_added(postgres_url: str) -> None:
    made: list[bool] = []

    def make() -> None:
        store = _store(postgres_url)
        try:
            store.add(new_key("alice", new_token(), datetime.now(UTC)))
        except ConfigurationError:
            made.append(False)
        else:
            made.append(True)
        finally:
            store.close()

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 5 + [True]
