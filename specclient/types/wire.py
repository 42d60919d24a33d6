"""What crosses the network: a request ready to send, and an answer as received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class WireRequest:
    """An HTTP request, complete; made by a provider's ``encode``, sent by the transport.

    Attributes:
        deployment: what rate limits and holds are kept by: ``provider/model``.
        timeout: seconds, the transport's own timeout object, or None for the client's.
        max_retries: None for the client's.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # carries the key
    content: bytes | None = None
    deployment: str = ""
    timeout: Any = None
    max_retries: int | None = None


@dataclass(frozen=True, slots=True)
class WireReply:
    """A whole answer with a status below 400.

    Attributes:
        headers: names in lower case.
        attempts: tries it took, the first included.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    attempts: int = 1

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        return self.headers.get("x-request-id") or self.headers.get("request-id")
