"""An answer as the cache keeps it: its bodies, and what the record of a later call needs of the first one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic_core import from_json, to_json

__all__ = ["CachedAnswer"]

#: The beginning of every encoded answer: a name, and the version of the format.
_MAGIC = b"SPCA1"
_DIGEST_BYTES = 16
_HEAD = len(_MAGIC) + _DIGEST_BYTES + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """One complete answer.

    Attributes:
        parts: the body of a whole answer, or the JSON of each chunk or event of a stream, in order.
        made_ms: when it was made, in milliseconds since 1970.
        provider, model, route: of the destination that made it, as in ``Decision``.
        dialect: the name of the wire dialect of ``parts``.
        received: whether a whole body is the provider's own, and not made from a decoded answer.
        request_id: the provider's id of the request.
        served_model: the model that the answer names.
        cost_nano: what it cost in nano-dollars; None if that is not known.
        counts: as in ``Call``.
    """

    parts: Sequence[bytes] = field(repr=False)
    made_ms: int
    provider: str
    model: str
    route: str
    dialect: str = "openai"
    received: bool = False
    request_id: str | None = None
    served_model: str | None = None
    cost_nano: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the answer as bytes, with a checksum over all of them."""
        facts = {name: getattr(self, name) for name in _FACTS}
        facts["counts"] = dict(self.counts)
        head = to_json([facts, [len(part) for part in self.parts]])
        rest = b"".join((len(head).to_bytes(4, "big"), head, *self.parts))
        return _MAGIC + _digest(rest) + rest

    @classmethod
    def decode(cls, content: bytes) -> CachedAnswer:
        """Return the answer in some bytes.

        Raises:
            ValueError: they are not a whole answer; the message says why.
        """
        if content[: len(_MAGIC)] != _MAGIC or len(content) < _HEAD:
            raise ValueError("it is not in the format of this version")
        rest = content[len(_MAGIC) + _DIGEST_BYTES :]
        if content[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES] != _digest(rest):
            raise ValueError("its checksum is wrong")
        end = 4 + int.from_bytes(rest[:4], "big")
        try:
            facts, sizes = from_json(rest[4:end])
            parts: list[bytes] = []
            for size in sizes:
                parts.append(rest[end : end + size])
                end += size
            return cls(parts=parts, **facts)
        except (TypeError, ValueError) as error:
            raise ValueError(f"its fields cannot be read ({type(error).__name__})") from None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_DIGEST_BYTES]


#: The fields that are encoded by their names.
_FACTS = tuple(name for name in CachedAnswer.__slots__ if name not in ("parts", "counts"))
