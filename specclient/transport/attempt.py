"""Turn one try into its response: what was sent, over which client, within which limits, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from specclient.errors import APIConnectionError
from specclient.runtime.event_loop import cancel_shield
from specclient.transport import errors
from specclient.transport.clients.adapters import ClientAdapter
from specclient.transport.pacing.pacer import PacingPermit
from specclient.types.wire import Secrets, WireRequest

RETRY_HEADER = "x-stainless-retry-count"
_CLOSE_S = 1.0


class HTTPAttempt:
    """One try, and the response once it has come.

    Attributes:
        request: as sent by this try; its headers hold what ``auth`` gave.
        limits: the time limits in force.
        attempts: the try's number, from 1.
        response: as the link gives it; None before it came.
        turn: its place among the requests to its deployment; None before it was granted.
        headers: of the response, names in lower case.
    """

    __slots__ = ("attempts", "headers", "limits", "link", "request", "response", "turn")

    def __init__(self, link: ClientAdapter, request: WireRequest, limits: Any, attempts: int) -> None:
        self.link = link
        self.request = request
        self.limits = limits
        self.attempts = attempts
        self.response: Any = None
        self.turn: PacingPermit | None = None
        self.headers: dict[str, str] = {}

    @property
    def failed(self) -> tuple[type[BaseException], ...]:
        """The exceptions that mean "this try failed"."""
        return errors.transport_exceptions(self.link.library)

    def take(self, response: Any) -> None:
        self.response = response
        # Straight from the bytes: reading a header by name through the library costs microseconds each time.
        self.headers = {
            name.lower().decode("latin-1"): v.decode("latin-1") for name, v in self.link.raw_headers(response)
        }

    def library(self) -> Any:
        """Return the response as the HTTP library's own object."""
        return self.link.as_library_response(self.response)

    def broken(self, error: BaseException, *, begun: bool = True) -> APIConnectionError:
        return errors.connection_failure(error, self.request, self.limits, begun=begun)

    def secrets(self) -> Secrets:
        return errors.secrets_of(self.request, None if self.response is None else self.library())

    async def read(self) -> bytes:
        """Return the whole body of a streamed response, which also keeps it."""
        try:
            return await self.link.read(self.response)
        except self.failed as error:
            failure = self.broken(error)
        raise failure

    async def read_and_close(self, *, stream: bool = True) -> bytes:
        """Return the whole body; one that was not streamed has been read already."""
        if not stream:
            content: bytes = self.response.content
            return content
        try:
            return await self.read()
        finally:
            await self.close()

    def leave(self) -> None:
        """Let another request have this one's place; safe to call twice."""
        if self.turn is not None:
            self.turn.leave()

    async def close(self) -> None:
        with cancel_shield(), suppress(TimeoutError):  # a cancelled caller must still free its connection
            async with asyncio.timeout(_CLOSE_S):
                await self.link.close(self.response)


def merged_headers(headers: Mapping[str, str], winning: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` with ``winning`` in place of those of the same name, in whatever case."""
    names = {name.lower() for name in winning}
    return {**{name: value for name, value in headers.items() if name.lower() not in names}, **winning}
