"""The caller's WebSocket: a new connection replaces one that broke off."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from websockets.exceptions import ConnectionClosed

from specclient.call.websocket.send_queue import SendQueue
from specclient.errors import APIError
from specclient.http_transport.websocket import ABNORMAL, ClientConnection, close_code, closed_error
from specclient.runtime.backoff import doubled
from specclient.types.websocket_reconnection import (
    ReconnectingEvent,
    ReconnectingOverrides,
    is_recoverable_close,
)

__all__ = ["ReconnectHandler", "ReconnectPolicy", "SocketLink"]

_log = logging.getLogger("specclient")

ReconnectHandler = Callable[[ReconnectingEvent], "ReconnectingOverrides | None"]
#: Opens a connection with a query and headers.
OpenSocket = Callable[[Mapping[str, Any], Mapping[str, Any]], Awaitable[ClientConnection]]


@dataclass(frozen=True, slots=True)
class ReconnectPolicy:
    """When and how often a connection is replaced.

    Attributes:
        handler: called before each attempt; may return a coroutine. Without one, no attempt is made.
        max_retries: attempts in a row without a message of the server other than an error.
        initial_delay, max_delay: seconds before the first attempt, doubled for each further one up to the
            maximum; a random quarter at most is subtracted.
    """

    handler: Callable[[ReconnectingEvent], Any] | None = None
    max_retries: int = 5
    initial_delay: float = 0.5
    max_delay: float = 8.0

    def delay(self, attempt: int, dice: random.Random) -> float:
        """Return the seconds before an attempt; ``attempt`` counts from 1."""
        longest = doubled(self.initial_delay, attempt - 1, self.max_delay)
        return longest * (0.75 + dice.random() * 0.25)


class SocketLink:
    """A WebSocket that may be replaced by a new one.

    Args:
        open_socket: opens a connection.
        query, headers: the caller's additions, which a handler may replace.
        policy: when the connection is replaced.
        queue: messages that wait for a connection.
        dice: the random part of the delays.
    """

    def __init__(
        self,
        open_socket: OpenSocket,
        *,
        query: Mapping[str, Any],
        headers: Mapping[str, Any],
        policy: ReconnectPolicy,
        queue: SendQueue,
        dice: random.Random | None = None,
    ) -> None:
        self._open_socket = open_socket
        self._query, self._headers = query, headers
        self._policy, self._queue = policy, queue
        self._dice = dice or random.Random()
        self._socket: ClientConnection | None = None
        self._attempts = 0  # since the last message that was no error
        self._reconnecting = False
        self._closed = asyncio.Event()

    @property
    def socket(self) -> ClientConnection:
        """The connection that is open now, or was the last."""
        assert self._socket is not None
        return self._socket

    async def open(self) -> None:
        """Open the first connection; errors are those of ``open_socket``."""
        self._socket = await self._open_socket(self._query, self._headers)

    async def send(self, message: str | bytes) -> None:
        """Send a message, or keep it while a new connection is opened.

        Raises:
            WebSocketQueueFullError: too many bytes wait for the new connection.
            APIConnectionError: the connection is closed.
        """
        if self._reconnecting and not self._closed.is_set():
            self._queue.put(message)
            return
        try:
            await self.socket.send(message)
        except ConnectionClosed as error:
            raise closed_error(error) from error

    async def receive(self) -> bytes:
        """Return the next message. It may be cancelled without losing one.

        Raises:
            APIConnectionError: the connection is closed; its cause is the error of ``websockets``.
            ResponseTooLargeError: a message is longer than the limit.
        """
        try:
            return await self.socket.recv(decode=False)
        except ConnectionClosed as error:
            raise closed_error(error) from error

    def note_progress(self) -> None:
        """Note a message of the server other than an error; resets the number of attempts."""
        self._attempts = 0

    async def reconnect(self, error: APIError) -> bool:
        """Open a new connection after the last one was closed; return whether that succeeded."""
        cause = error.__cause__
        if self._policy.handler is None or self._closed.is_set() or not isinstance(cause, ConnectionClosed):
            return False
        code = close_code(cause)
        if not is_recoverable_close(code):
            return False
        self._reconnecting = True
        try:
            while self._attempts < self._policy.max_retries:
                self._attempts += 1
                if not await self._agreed(code):
                    return False
                try:
                    self._socket = await self._open_socket(self._query, self._headers)
                    await self.flush()
                except Exception as failure:  # noqa: BLE001 - counts as an attempt, whatever went wrong
                    _log.debug("reconnecting failed: %s", type(failure).__name__)
                    code = _code_of(failure, code)
                    if not is_recoverable_close(code):
                        return False
                    continue
                if self._closed.is_set():
                    await self.socket.close()
                    return False
                return True
            return False
        finally:
            self._reconnecting = False

    async def flush(self) -> None:
        """Send the messages that wait; one whose sending fails is lost, as for any other message."""
        while (message := self._queue.take()) is not None:
            await self.socket.send(message)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection, and end an attempt to reconnect."""
        self._closed.set()
        if self._socket is not None:
            await self._socket.close(code, reason)

    async def _agreed(self, code: int) -> bool:
        """Ask the handler and wait; return whether the attempt is made."""
        policy = self._policy
        delay = policy.delay(self._attempts, self._dice)
        event = ReconnectingEvent(self._attempts, policy.max_retries, delay, code, self._query, self._headers)
        assert policy.handler is not None
        try:
            changes = policy.handler(event)
            if inspect.isawaitable(changes):
                changes = await changes
        except Exception:  # noqa: BLE001 - the caller's; the connection's own error is raised instead
            _log.warning(
                "the on_reconnecting handler failed, so the connection is not reopened", exc_info=True
            )
            return False
        changes = changes or {}
        if changes.get("abort"):
            return False
        self._query = changes.get("extra_query", self._query)
        self._headers = changes.get("extra_headers", self._headers)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), delay)
        return not self._closed.is_set()


def _code_of(failure: Exception, before: int) -> int:
    """Return the close code of a connection that ended at once; the one before if it was never open."""
    if isinstance(failure, ConnectionClosed):
        return ABNORMAL if failure.rcvd is None else failure.rcvd.code
    return before
