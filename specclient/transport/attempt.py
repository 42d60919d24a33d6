"""One HTTP attempt: its request, client, time limits and response."""

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
    """One HTTP attempt, and its response once received.

    An attempt of failover is something else: it is one route, and may take several HTTP attempts.

    Attributes:
        adapter: the client that sends it.
        request: the request as sent; its headers include those of ``auth``.
        limits: the time limits in force.
        attempts: the attempt's number, from 1.
        response: the adapter's response; None before it was received.
        permit: the pacer's permit; None before it was granted.
        headers: the response's headers, names in lower case.
    """

    __slots__ = ("adapter", "attempts", "headers", "limits", "permit", "request", "response")

    def __init__(self, adapter: ClientAdapter, request: WireRequest, limits: Any, attempts: int) -> None:
        self.adapter = adapter
        self.request = request
        self.limits = limits
        self.attempts = attempts
        self.response: Any = None
        self.permit: PacingPermit | None = None
        self.headers: dict[str, str] = {}

    @property
    def failed(self) -> tuple[type[BaseException], ...]:
        """The exceptions that mean the attempt failed."""
        return errors.transport_exceptions(self.adapter.library)

    def take(self, response: Any) -> None:
        """Store the response and decode its headers."""
        self.response = response
        # From the bytes: looking up a header by name in the library's object costs microseconds each time.
        self.headers = {
            name.lower().decode("latin-1"): v.decode("latin-1")
            for name, v in self.adapter.raw_headers(response)
        }

    def library(self) -> Any:
        """Return the response as the HTTP library's own object."""
        return self.adapter.as_library_response(self.response)

    def broken(self, error: BaseException, *, begun: bool = True) -> APIConnectionError:
        """Return the error for a failed attempt; see :func:`errors.connection_failure`."""
        return errors.connection_failure(error, self.request, self.limits, begun=begun)

    def secrets(self) -> Secrets:
        """Return the secrets of the request and of what the user's client has added to it."""
        return errors.secrets_of(self.request, None if self.response is None else self.library())

    async def read(self) -> bytes:
        """Return the whole body of a streamed response. The response keeps it, too."""
        try:
            return await self.adapter.read(self.response)
        except self.failed as error:
            failure = self.broken(error)
        raise failure

    async def read_and_close(self, *, stream: bool = True) -> bytes:
        """Return the whole body and close the response. Without ``stream`` the body has been read already."""
        if not stream:
            content: bytes = self.response.content
            return content
        try:
            return await self.read()
        finally:
            await self.close()

    def leave(self) -> None:
        """Return the pacer's permit; safe to call twice."""
        if self.permit is not None:
            self.permit.leave()

    async def close(self) -> None:
        """Close the response, also if the caller is being cancelled; gives up after 1 s."""
        with cancel_shield(), suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self.adapter.close(self.response)


def merged_headers(headers: Mapping[str, str], winning: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` updated with ``winning``. Names are compared without regard to case."""
    names = {name.lower() for name in winning}
    return {**{name: value for name, value in headers.items() if name.lower() not in names}, **winning}
