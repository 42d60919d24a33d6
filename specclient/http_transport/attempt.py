"""One HTTP attempt: its request, client, time limits and response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from specclient.errors import APIConnectionError, APIError
from specclient.http_transport import errors
from specclient.http_transport.body_limits import MAX_ERROR_BODY_BYTES, BodyReader
from specclient.http_transport.clients.adapters import ClientAdapter
from specclient.http_transport.clients.timeouts import AnswerTimeoutError, TimeoutSeconds
from specclient.http_transport.pacing.pacer import PacingPermit
from specclient.runtime.event_loop import cancel_shield
from specclient.runtime.time_limit import TimeLimit
from specclient.types.limit import ResponseLimits
from specclient.types.wire import Secrets, WireRequest

RETRY_HEADER = "x-stainless-retry-count"
_CLOSE_S = 1.0


class HTTPAttempt:
    """One HTTP attempt, and its response once received.

    Not to be confused with an attempt of failover, which is one route and may take several HTTP attempts.

    Attributes:
        adapter: the client that sends it.
        request: the request as sent, as returned by ``authorize``.
        limits: the time limits in force.
        response_limits: the limits on the size of the response.
        attempts: the attempt's number, from 1.
        response: the adapter's response; None before it was received.
        permit: the pacer's permit; None before it was granted.
        headers: the response's headers, names in lower case.
    """

    __slots__ = (
        "adapter",
        "attempts",
        "headers",
        "limits",
        "permit",
        "request",
        "response",
        "response_limits",
    )

    def __init__(
        self,
        adapter: ClientAdapter,
        request: WireRequest,
        limits: TimeoutSeconds,
        attempts: int,
        response_limits: ResponseLimits,
    ) -> None:
        self.adapter = adapter
        self.request = request
        self.limits = limits
        self.response_limits = response_limits
        self.attempts = attempts
        self.response: Any = None
        self.permit: PacingPermit | None = None
        self.headers: dict[str, str] = {}

    @property
    def failed(self) -> tuple[type[BaseException], ...]:
        """The exceptions that mean the attempt failed."""
        return errors.transport_exceptions(self.adapter.library)

    def take(self, response: Any) -> None:
        """Store the response and its headers."""
        self.response = response
        self.headers = self.adapter.fields(response)

    def library(self) -> Any:
        """Return the response as the HTTP library's own object."""
        return self.adapter.as_library_response(self.response)

    def broken(self, error: BaseException, *, begun: bool = True) -> APIConnectionError:
        """Return the error for a failed attempt; see :func:`errors.connection_failure`."""
        return errors.connection_failure(error, self.request, self.limits, begun=begun)

    def secrets(self) -> Secrets:
        """Return the secrets of the request, including those that the user's client has added."""
        return errors.secrets_of(self.request, None if self.response is None else self.library())

    def complete(self, error: APIError) -> None:
        """Complete an error that a dialect found in the response: its attempts, its request, no secrets."""
        secrets = self.secrets()
        error.attempts = self.attempts
        if error.request is None and self.response is not None:
            error.request = errors.shown_request(self.library(), self.request, secrets)
        secrets.clean(error)

    async def open(self, headers: Mapping[str, str]) -> None:
        """Send the request and store the response, whose body is unread.

        Raises:
            one of :attr:`failed`: there is no response; :meth:`broken` makes the error.
        """
        request = self.request
        content = request.content
        seconds: float | None = None
        if request.files is None and (content is None or isinstance(content, bytes)):
            seconds = self.limits.until_headers(0 if content is None else len(content))
        limit = TimeLimit(seconds)  # None for a file, which may take any time to send
        try:
            with limit:
                response = await self.adapter.open(request, headers, self.limits)
        except TimeoutError:
            if seconds is None or not limit.expired:
                raise
        else:
            self.take(response)
            return
        raise AnswerTimeoutError("did not complete the headers of its answer", seconds)

    async def read(self, *, cut_at: int | None = None) -> bytes:
        """Return the whole body. The response keeps it, too. After a failure the response is closed.

        Args:
            cut_at: bytes after which the rest of the body is dropped; None for the whole body.
        """
        seconds = self.limits.body
        limit = TimeLimit(seconds)
        try:
            with limit:
                return await self.adapter.read(
                    self.response, BodyReader(self.response_limits, seconds, cut_at=cut_at)
                )
        except self.failed as error:
            if seconds is not None and limit.expired:
                failure = self.broken(AnswerTimeoutError("did not complete its answer", seconds))
            else:
                failure = self.broken(error)
        except BaseException:
            await self.close()
            raise
        await self.close()
        raise failure

    async def read_error(self) -> bytes:
        """Return the beginning of the body of an error response, and close the response."""
        content = await self.read(cut_at=MAX_ERROR_BODY_BYTES)
        if len(content) >= MAX_ERROR_BODY_BYTES:
            await self.close()
        return content

    async def read_and_close(self) -> bytes:
        """Return the whole body and close the response."""
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
