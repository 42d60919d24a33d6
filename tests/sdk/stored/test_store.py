"""The store of responses and conversations: owners, limits and the sums that they are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specclient.errors import LedgerError
from specclient.ledger.sqlite import SQLiteStore
from specclient.stored.space import OversizeError
from specclient.stored.store import ObjectStore, StoredResponse
from specclient.types.stored_limits import StoredLimits

DAY_S = 86_400


class Clock:
    now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


def made(file: Path, clock: Clock | None = None, **limits: Any) -> ObjectStore:
    return ObjectStore(SQLiteStore(str(file)), StoredLimits(**limits), now=clock or Clock())


def response(name: str, text: str = "") -> StoredResponse:
    return StoredResponse(
        {"id": f"resp_local_{name}", "output": [], "text": text}, [{"id": "msg_1"}], [(0, 0, 0)]
    )


def test_an_object_is_found_by_its_owner_alone(tmp_path: Path) -> None:
    store = made(tmp_path / "l.sqlite3")
    assert store.response("ann", "resp_local_1") is None
    assert not (tmp_path / "l.sqlite3").exists()
    store.keep("ann", response("1"))
    store.add_conversation("ann", {"id": "conv_local_1", "metadata": {}}, [{"id": "msg_1"}])
    for owner in ("", "bob"):
        assert store.response(owner, "resp_local_1") is None
        assert store.conversation(owner, "conv_local_1") is None
        assert store.items(owner, "conv_local_1", limit=None, newest_first=False) is None
        assert store.item(owner, "conv_local_1", "msg_1") is None
        assert store.update_conversation(owner, "conv_local_1", {}) is None
        assert store.append(owner, "conv_local_1", [{"id": "msg_2"}]) is None
        assert not store.delete_item(owner, "conv_local_1", "msg_1")
        assert not store.delete(owner, "resp_local_1")
        store.keep(owner, None, "conv_local_1", [{"id": "msg_3"}])
    found = store.items("ann", "conv_local_1", limit=None, newest_first=False)
    assert found is not None
    assert found.items == [{"id": "msg_1"}]
    kept = store.response("ann", "resp_local_1")
    assert kept == StoredResponse(response("1").response, [{"id": "msg_1"}], [[0, 0, 0]])


def test_what_is_older_than_the_limit_is_not_found_and_then_removed(tmp_path: Path) -> None:
    clock = Clock()
    store = made(tmp_path / "l.sqlite3", clock, max_age_days=30)
    store.keep("", response("old"))
    store.add_conversation("", {"id": "conv_local_1"}, [])
    clock.now += 29 * DAY_S
    assert store.response("", "resp_local_old") is not None
    store.append("", "conv_local_1", [{"id": "msg_1"}])  # goes on
    clock.now += 2 * DAY_S
    assert store.response("", "resp_local_old") is None
    assert store.conversation("", "conv_local_1") is not None
    store.keep("", response("new"))
    assert ids(tmp_path / "l.sqlite3") == {"conv_local_1", "resp_local_new"}
    assert size(tmp_path / "l.sqlite3") == total(tmp_path / "l.sqlite3")


def test_the_oldest_go_first_beyond_the_size_of_a_key_and_of_all(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "l.sqlite3"
    store = made(file, clock, max_bytes=2500, max_bytes_per_key=1500)
    for number in range(4):
        clock.now += 1
        store.keep("ann", response(f"a{number}", "x" * 400))
    assert ids(file) == {"resp_local_a1", "resp_local_a2", "resp_local_a3"}  # of ann alone
    for number in range(3):
        clock.now += 1
        store.keep("bob", response(f"b{number}", "x" * 400))
    kept = ids(file)
    assert "resp_local_a1" not in kept  # the oldest of all
    assert {"resp_local_a3", "resp_local_b0", "resp_local_b1", "resp_local_b2"} <= kept
    assert size(file) == total(file) <= 2500
    with pytest.raises(OversizeError):
        store.keep("ann", response("big", "x" * 1600))
    assert ids(file) == kept  # nothing is lost for what cannot be stored


def test_a_conversation_grows_and_shrinks_in_the_sums(tmp_path: Path) -> None:
    file = tmp_path / "l.sqlite3"
    store = made(file)
    store.add_conversation("", {"id": "conv_local_1", "metadata": {}}, [{"id": "msg_1"}, {"id": "msg_2"}])
    added = store.append("", "conv_local_1", [{"id": "msg_1", "text": "again"}])
    assert added is not None
    assert added[0]["id"] != "msg_1"  # an id is used once
    assert store.delete_item("", "conv_local_1", "msg_2")
    assert store.update_conversation("", "conv_local_1", {"a": "b"}) == {
        "id": "conv_local_1",
        "metadata": {"a": "b"},
    }
    assert size(file) == total(file)
    assert store.delete("", "conv_local_1")
    assert size(file) == total(file) == 0


def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "l.sqlite3"))
    made(tmp_path / "l.sqlite3").keep("", response("1"))
    store.transact(lambda execute: execute("UPDATE stored_schema SET version = 99"))
    store.close()
    with pytest.raises(LedgerError, match="schema version 99"):
        made(tmp_path / "l.sqlite3").response("", "resp_local_1")


def ids(file: Path) -> set[str]:
    return {str(row[0]) for row in SQLiteStore(str(file)).query("SELECT id FROM stored_objects")}


def size(file: Path) -> Any:
    """Return the sum that the limits are compared with."""
    return next(SQLiteStore(str(file)).query("SELECT SUM(bytes) FROM stored_sizes"))[0]


def total(file: Path) -> int:
    """Return the bytes that there are."""
    store = SQLiteStore(str(file))
    bodies = store.query("SELECT LENGTH(body) + LENGTH(COALESCE(input, '')) FROM stored_objects")
    items = store.query("SELECT LENGTH(body) FROM stored_items")
    return sum(int(str(row[0])) for rows in (bodies, items) for row in rows)
