"""The interface of a store of answers, implemented by :mod:`.sqlite`, :mod:`.postgres` and :mod:`.redis`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from specclient.errors import SpecClientError

__all__ = ["CACHE_HINT", "AnswerStore", "CacheStoreError", "NewAnswer", "StoreContents"]

#: The advice at the end of every error message about a store.
CACHE_HINT = "set store under [cache] to another file or URL, or SPECCLIENT_CACHE"


class CacheStoreError(SpecClientError):
    """A store of answers failed; the message names it and what to do. Calls go on without the cache."""


class NewAnswer(NamedTuple):
    """An answer to store.

    Attributes:
        key: the digest of the request, in hexadecimal.
        made_ms: when the answer was made, in milliseconds since 1970.
        body: the encoded answer.
    """

    key: str
    made_ms: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContents:
    """The content of a store.

    Attributes:
        entries: the number of answers; ``bytes``: their size.
        oldest_ms, newest_ms: when the oldest and the newest was made, in milliseconds since 1970; None
            without any.
    """

    entries: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


class AnswerStore(Protocol):
    """A store of answers. Opens nothing until it is first used.

    The methods block, and may be called by one thread at a time, unless the store says otherwise. They raise
    CacheStoreError for any failure.

    Attributes:
        threads: the number of threads that may use the store at once.
    """

    threads: int

    @property
    def name(self) -> str:
        """The file or URL, without a password."""
        ...

    def exists(self) -> bool:
        """Return whether there may be something to read, without creating anything."""
        ...

    def find(self, key: str, oldest_ms: int) -> bytes | None:
        """Return the answer of a key that was made at this time or later; None if there is none."""
        ...

    def put(self, answer: NewAnswer, used: Collection[tuple[str, int]] = ()) -> None:
        """Store an answer in place of an earlier one of its key, in one transaction.

        Answers that are too old are removed, then the least recently used ones beyond the limits.

        Args:
            used: keys of answers that have been used since the last call, with the time in milliseconds.
        """
        ...

    def remove(self, key: str) -> None:
        """Remove an answer."""
        ...

    def claim(self, key: str, holder: str, lease_s: float) -> bool:
        """Claim the call of a key for some seconds; return False if another holder has claimed it.

        A holder's own claim is renewed. A claim also ends when an answer of its key is stored.
        """
        ...

    def release(self, key: str, holder: str) -> None:
        """End a holder's claim."""
        ...

    def contents(self) -> StoreContents:
        """Return what the store holds."""
        ...

    def clear(self) -> int:
        """Remove all answers; return their number."""
        ...

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        ...

    def abandon(self) -> None:
        """Drop the connections inherited through ``fork`` without using them: they belong to the parent."""
        ...
