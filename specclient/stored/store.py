"""Storage of responses and conversations in tables of the ledger's database.

An object belongs to an owner, and only its owner can find it. Several processes may use one database.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from specclient.ledger.location import locate
from specclient.ledger.store import Execute, LedgerStore, SQLValue
from specclient.runtime.forks import register_fork_reset
from specclient.stored.schema import upgrade
from specclient.stored.space import add_bytes, make_room, remove, remove_expired
from specclient.types.stored_limits import StoredLimits

__all__ = ["ItemPage", "ObjectStore", "StoredResponse"]

T = TypeVar("T")
Item = dict[str, Any]

_FIND = "SELECT body, input FROM stored_objects WHERE id = :id AND owner = :owner AND changed_ms >= :oldest"
_ADD = "INSERT INTO stored_objects VALUES (:id, :owner, :changed, :bytes, :body, :input)"
_ADD_ITEM = "INSERT INTO stored_items VALUES (:conversation, :position, :id, :bytes, :body)"
_GROW = "UPDATE stored_objects SET changed_ms = :changed, bytes = bytes + :bytes WHERE id = :id"
_ITEM = "SELECT position, body FROM stored_items WHERE conversation = :conversation AND id = :id"


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, its input, and the pieces in which it was streamed.

    Attributes:
        response: the response as JSON.
        input: all items that were sent to the model, those of earlier responses included.
        deltas: the pieces in which its output was streamed; None if it was not.
    """

    response: Mapping[str, Any]
    input: Sequence[Item]
    deltas: Sequence[Sequence[int]] | None = None


class ItemPage(NamedTuple):
    """A part of a list of items, and whether there are more."""

    items: list[Item]
    has_more: bool


class ObjectStore:
    """The responses and conversations in one database. Thread-safe; methods block.

    Every method raises LedgerError if the database fails; the message names the database and what to do.
    Methods that add raise OversizeError for an object that alone exceeds the limits.

    Args:
        store: the database; not shared with other objects.
        limits: the maximum age and size of objects.
        now: returns seconds since the epoch.
    """

    def __init__(
        self, store: LedgerStore, limits: StoredLimits, *, now: Callable[[], float] = time.time
    ) -> None:
        self._store, self._limits, self._now = store, limits, now
        self._lock = threading.Lock()
        self._made = False
        register_fork_reset(self)

    @classmethod
    def of(cls, setting: str | None, limits: StoredLimits) -> ObjectStore | None:
        """Return the store in the configured ledger; None if nothing is to be stored, or the ledger is off.

        Raises:
            ConfigurationError: the setting is invalid.
        """
        store = locate(setting) if limits.enabled else None
        return None if store is None else cls(store, limits)

    def reset_after_fork(self) -> None:
        """Drop the connection and the lock, which belong to the parent process."""
        self._store.abandon()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            self._store.close()

    # Responses

    def keep(
        self,
        owner: str,
        kept: StoredResponse | None,
        conversation: str | None = None,
        items: Sequence[Item] = (),
    ) -> None:
        """Store a response, and add items to a conversation, in one transaction.

        Args:
            kept: the response; None for none.
            conversation: the id of the owner's conversation to which the items are added, unless it has been
                deleted meanwhile.
        """

        def write(execute: Execute) -> None:
            if kept is not None:
                body = _text({"response": kept.response, "deltas": kept.deltas})
                self._add(execute, owner, str(kept.response["id"]), body, _text(list(kept.input)))
            if conversation is not None and self._found(execute, owner, conversation):
                self._append(execute, owner, conversation, items)

        self._transact(write)

    def response(self, owner: str, identity: str) -> StoredResponse | None:
        """Return a response; None if the owner has none with this id."""
        found = self._query(_FIND, self._key(owner, identity))
        if not found:
            return None
        body = json.loads(str(found[0][0]))
        return StoredResponse(body["response"], json.loads(str(found[0][1])), body["deltas"])

    def delete(self, owner: str, identity: str) -> bool:
        """Remove a response, or a conversation with its items; return whether there was one."""

        def write(execute: Execute) -> bool:
            sql = "SELECT bytes FROM stored_objects WHERE id = :id AND owner = :owner"
            found = execute(sql, {"id": identity, "owner": owner})
            if found:
                remove(execute, identity, owner, cast("int", found[0][0]))
            return bool(found)

        return self._transact(write)

    # Conversations

    def add_conversation(self, owner: str, conversation: Mapping[str, Any], items: Sequence[Item]) -> None:
        """Store a new conversation with its first items."""

        def write(execute: Execute) -> None:
            identity = str(conversation["id"])
            self._add(execute, owner, identity, _text(conversation), None)
            self._append(execute, owner, identity, items)

        self._transact(write)

    def conversation(self, owner: str, identity: str) -> dict[str, Any] | None:
        """Return a conversation without its items; None if the owner has none with this id."""
        found = self._query(_FIND, self._key(owner, identity))
        return json.loads(str(found[0][0])) if found else None

    def update_conversation(
        self, owner: str, identity: str, metadata: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Replace a conversation's metadata and return it; None if the owner has none with this id."""

        def write(execute: Execute) -> dict[str, Any] | None:
            found = execute(_FIND, self._key(owner, identity))
            if not found:
                return None
            body = {**json.loads(str(found[0][0])), "metadata": metadata}
            text = _text(body)
            execute("UPDATE stored_objects SET body = :body WHERE id = :id", {"body": text, "id": identity})
            self._grow(execute, owner, identity, len(text) - len(str(found[0][0])))
            return body

        return self._transact(write)

    def append(self, owner: str, identity: str, items: Sequence[Item]) -> list[Item] | None:
        """Add items to a conversation and return them with their ids; None without such a conversation."""

        def write(execute: Execute) -> list[Item] | None:
            if not self._found(execute, owner, identity):
                return None
            return self._append(execute, owner, identity, items)

        return self._transact(write)

    def items(
        self, owner: str, identity: str, *, after: str | None = None, limit: int | None, newest_first: bool
    ) -> ItemPage | None:
        """Return a part of a conversation's items; None if there is no such conversation.

        Args:
            after: the id of the item before the first one; None for the start.
            limit: the maximum number of items; None for all.
            newest_first: the order.

        Raises:
            KeyError: the conversation has no item with the id ``after``.
        """
        if self.conversation(owner, identity) is None:
            return None
        params: dict[str, SQLValue] = {"conversation": identity}
        where = ""
        if after is not None:
            found = self._query(_ITEM, {**params, "id": after})
            if not found:
                raise KeyError(after)
            where = f"AND position {'<' if newest_first else '>'} :after"
            params["after"] = found[0][0]
        sql = (
            f"SELECT body FROM stored_items WHERE conversation = :conversation {where} "  # noqa: S608
            f"ORDER BY position {'DESC' if newest_first else 'ASC'}"
        )
        if limit is not None:
            sql, params = f"{sql} LIMIT :limit", {**params, "limit": limit + 1}
        rows = [json.loads(str(body)) for (body,) in self._query(sql, params)]
        return ItemPage(rows[:limit], limit is not None and len(rows) > limit)

    def item(self, owner: str, identity: str, item: str) -> Item | None:
        """Return one item of a conversation; None if there is none."""
        if self.conversation(owner, identity) is None:
            return None
        found = self._query(_ITEM, {"conversation": identity, "id": item})
        return json.loads(str(found[0][1])) if found else None

    def delete_item(self, owner: str, identity: str, item: str) -> bool:
        """Remove one item of a conversation; return whether there was one."""

        def write(execute: Execute) -> bool:
            key: dict[str, SQLValue] = {"conversation": identity, "id": item}
            found = self._found(execute, owner, identity) and execute(_ITEM, key)
            if found:
                execute("DELETE FROM stored_items WHERE conversation = :conversation AND id = :id", key)
                self._grow(execute, owner, identity, -len(str(found[0][1])))
            return bool(found)

        return self._transact(write)

    # Within a transaction

    def _add(self, execute: Execute, owner: str, identity: str, body: str, given: str | None) -> None:
        size = len(body) + len(given or "")
        values: dict[str, SQLValue] = {
            "id": identity,
            "owner": owner,
            "changed": self._now_ms(),
            "bytes": size,
        }
        execute(_ADD, {**values, "body": body, "input": given})
        add_bytes(execute, owner, size)
        make_room(execute, owner, identity, self._limits)

    def _append(self, execute: Execute, owner: str, identity: str, items: Sequence[Item]) -> list[Item]:
        sql = "SELECT MAX(position) FROM stored_items WHERE conversation = :conversation"
        ((last,),) = execute(sql, {"conversation": identity})
        added, size = [], 0
        for position, item in enumerate(items, 0 if last is None else cast("int", last) + 1):
            key: dict[str, SQLValue] = {"conversation": identity, "id": str(item["id"])}
            if execute(_ITEM, key):  # an earlier answer that the caller sent again
                key["id"] = f"{item['id']}_{position}"
            added.append({**item, "id": key["id"]})
            body = _text(added[-1])
            execute(_ADD_ITEM, {**key, "position": position, "bytes": len(body), "body": body})
            size += len(body)
        self._grow(execute, owner, identity, size)
        return added

    def _grow(self, execute: Execute, owner: str, identity: str, size: int) -> None:
        execute(_GROW, {"id": identity, "changed": self._now_ms(), "bytes": size})
        add_bytes(execute, owner, size)
        if size > 0:
            make_room(execute, owner, identity, self._limits)

    def _found(self, execute: Execute, owner: str, identity: str) -> bool:
        return bool(execute(_FIND, self._key(owner, identity)))

    # Access to the database

    def _key(self, owner: str, identity: str) -> dict[str, SQLValue]:
        return {"id": identity, "owner": owner, "oldest": self._now_ms() - self._limits.max_age_ms}

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _transact(self, work: Callable[[Execute], T]) -> T:
        def run(execute: Execute) -> T:
            if not self._made:
                upgrade(execute, self._store.name)
            remove_expired(execute, self._now_ms() - self._limits.max_age_ms)
            return work(execute)

        with self._lock:
            try:
                result = self._store.transact(run)
            finally:
                if "://" not in self._store.name:  # a file is opened fast, and forks and exits find it closed
                    self._store.close()
            self._made = True
            return result

    def _query(self, sql: str, params: Mapping[str, SQLValue]) -> list[tuple[SQLValue, ...]]:
        """Return the rows of a SELECT. Does not create a missing database."""
        if not self._store.exists():
            return []
        if not self._made:
            self._transact(_nothing)
        return list(self._store.query(sql, params))


def _text(value: Any) -> str:
    """Return a value as JSON in ASCII, which every database can store, and whose length is its bytes."""
    return json.dumps(value, separators=(",", ":"))


def _nothing(_: Execute) -> None:
    """Do nothing; the transaction creates missing tables and removes what has expired."""
