"""The memory of request bodies: bounded for a server process, and for each key.

A body is held from its first byte until its request has been served. Without a bound, clients that send many
large bodies slowly could take any amount of memory before one is admitted.
"""

from __future__ import annotations

from collections import Counter

from specclient.openai_http.errors import ServingError
from specclient.serving.admission import RETRY_AFTER_S

__all__ = ["BodyHold", "BodyMemory", "no_room"]

#: Bytes of a body that are not counted, because a connection buffers them anyway.
FREE_BYTES = 64 * 2**10


class BodyMemory:
    """Counts the bytes of the bodies that a process holds.

    Args:
        most: bytes that all bodies may take together; one key may have half of them.

    Attributes:
        held: bytes that are held now.
    """

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0
        self._by_key: Counter[str] = Counter()

    def take(self, size: int, key: str | None) -> bool:
        """Hold further bytes; return whether there was room.

        Args:
            size: bytes.
            key: the name of the request's key; None for the operator's.
        """
        if self.held + size > self._most:
            return False
        if key is not None:
            if self._by_key[key] + size > self._most // 2:
                return False
            self._by_key[key] += size
        self.held += size
        return True

    def give_back(self, size: int, key: str | None) -> None:
        """Release bytes."""
        self.held -= size
        if key is not None:
            self._by_key[key] -= size
            if not self._by_key[key]:
                del self._by_key[key]


class BodyHold:
    """The bytes of one request's body.

    Args:
        memory: of the process.
        key: the name of the request's key; None for the operator's.
    """

    __slots__ = ("_key", "_memory", "_size", "_taken")

    def __init__(self, memory: BodyMemory, key: str | None) -> None:
        self._memory, self._key, self._size, self._taken = memory, key, 0, 0

    def grow(self, size: int) -> bool:
        """Hold further bytes; return whether there was room. Without room, nothing is held any more."""
        self._size += size
        more = self._size - FREE_BYTES - self._taken
        if more <= 0:
            return True
        if self._memory.take(more, self._key):
            self._taken += more
            return True
        self.release()
        return False

    def release(self) -> None:
        """Release the bytes."""
        taken, self._taken = self._taken, 0
        if taken:
            self._memory.give_back(taken, self._key)


def no_room() -> ServingError:
    """Return the error for a body without room."""
    return ServingError(
        429,
        "the server is busy: the bodies of requests in progress take all the memory for them; try again in "
        f"{RETRY_AFTER_S} s",
        code="server_busy",
        headers={"retry-after": str(RETRY_AFTER_S)},
    )
