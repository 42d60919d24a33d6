"""The space that stored objects take: sums by owner, and the removal of the oldest beyond the limits.

All functions run within a transaction that excludes other writers.
"""

from __future__ import annotations

from typing import cast

from specclient.ledger.store import Execute, SQLValue
from specclient.types.stored_limits import StoredLimits

__all__ = ["OversizeError", "add_bytes", "make_room", "remove", "remove_expired"]

#: Objects that are looked up at once.
_PAGE = 100
_ADD = (
    "INSERT INTO stored_sizes VALUES (:owner, :bytes) "
    "ON CONFLICT (owner) DO UPDATE SET bytes = stored_sizes.bytes + :bytes"
)
_OLDEST = (
    "SELECT id, owner, bytes FROM stored_objects WHERE id <> :kept {where} "
    "ORDER BY changed_ms, id LIMIT :page"
)


class OversizeError(Exception):
    """An object is larger than the limit of its owner, or of the database."""


def add_bytes(execute: Execute, owner: str, count: int) -> None:
    """Add bytes to the sum of an owner; a negative number removes them."""
    execute(_ADD, {"owner": owner, "bytes": count})


def remove(execute: Execute, identity: str, owner: str, size: int) -> None:
    """Remove an object with its items.

    Args:
        identity: its id.
        owner: its owner.
        size: its bytes, those of its items included.
    """
    execute("DELETE FROM stored_items WHERE conversation = :id", {"id": identity})
    execute("DELETE FROM stored_objects WHERE id = :id", {"id": identity})
    add_bytes(execute, owner, -size)


def remove_expired(execute: Execute, oldest_ms: int) -> None:
    """Remove the objects that were last changed before an instant, in milliseconds since 1970."""
    sql = "SELECT id, owner, bytes FROM stored_objects WHERE changed_ms < :oldest LIMIT :page"
    while found := execute(sql, {"oldest": oldest_ms, "page": _PAGE}):
        for identity, owner, size in found:
            remove(execute, str(identity), str(owner), cast("int", size))


def make_room(execute: Execute, owner: str, kept: str, limits: StoredLimits) -> None:
    """Remove the oldest objects until the limits are kept: first the owner's, then all owners'.

    Args:
        owner: the owner of the object that was written.
        kept: its id; it is not removed.

    Raises:
        OversizeError: the object alone exceeds a limit.
    """
    found = execute("SELECT bytes FROM stored_sizes WHERE owner = :owner", {"owner": owner})
    _shrink(execute, _excess(found, limits.max_bytes_per_key), kept, owner)
    found = execute("SELECT SUM(bytes) FROM stored_sizes")
    _shrink(execute, _excess(found, limits.max_bytes), kept)


def _excess(found: list[tuple[SQLValue, ...]], limit: int) -> int:
    return cast("int", found[0][0] or 0) - limit if found else 0


def _shrink(execute: Execute, excess: int, kept: str, owner: str | None = None) -> None:
    """Remove the oldest objects, of one owner or of all, until this many bytes are freed."""
    sql = _OLDEST.format(where="" if owner is None else "AND owner = :owner")
    params: dict[str, SQLValue] = {"kept": kept, "page": _PAGE}
    params |= {} if owner is None else {"owner": owner}
    while excess > 0:
        page = execute(sql, params)
        if not page:
            raise OversizeError
        for identity, whose, size in page:
            remove(execute, str(identity), str(whose), cast("int", size))
            excess -= cast("int", size)
            if excess <= 0:
                break
