"""Open connections: events are sent, received, iterated over or dispatched to handlers."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specclient.call.websocket.link import SocketLink
from specclient.call.websocket.meter import SocketMeter
from specclient.call.websocket.send_queue import SendQueue
from specclient.errors import (
    APIError,
    APIResponseValidationError,
    OpenAIError,
    WebSocketConnectionClosedError,
)
from specclient.http_transport.websocket import WebSocketEndedError, WebSocketFailedError
from specclient.resources.base import SyncRunner
from specclient.resources.sockets.handlers import EventHandlers
from specclient.resources.sockets.messages import (
    encode_event,
    event_of_text,
    parse_event,
    sending_namespaces,
)
from specclient.resources.table.sockets import SocketRow
from specclient.types.call import Call

__all__ = ["AsyncSocketConnection", "SocketConnection"]


@dataclass(slots=True)
class _Arrival:
    """A message of the server that its reader has not taken yet.

    Attributes:
        event: the event in it; None if it is none, and then ``error`` says why.
        noting: records what it means for the calls; None if it means nothing.
    """

    data: bytes
    event: Any
    error: APIResponseValidationError | None = None
    noting: asyncio.Task[OpenAIError | None] | None = None


class AsyncSocketConnection(EventHandlers):
    """An open WebSocket. ``async for`` yields the server's events until the connection ends.

    Its other attributes are groups of methods that send one event each, such as ``session.update(…)``.

    Args:
        row: the method that opened it.
        link: the connection.
        queue: messages that wait for a new connection.
        meter: records its calls; None if they are not billed by the response.
    """

    def __init__(self, row: SocketRow, link: SocketLink, queue: SendQueue, meter: SocketMeter | None) -> None:
        super().__init__()
        self._row, self._link, self._queue, self._meter = row, link, queue, meter
        self._arrived: deque[_Arrival] = deque()
        vars(self).update(sending_namespaces(row, self.send))

    @property
    def meta(self) -> Call | None:
        """The record of the newest finished response: cost, usage, timings; None before the first."""
        return None if self._meter is None else self._meter.last

    async def send(self, event: Any) -> None:
        """Send an event, a mapping or an object of OpenAI's types.

        Raises:
            BudgetExceededError: the event requests a response that a budget refuses; it is not sent.
            BadRequestError: the event has no JSON form, or names a model of another provider.
            WebSocketQueueFullError: the connection is being reopened, and too many bytes wait.
            APIConnectionError: the connection is closed.
        """
        await self._send(*encode_event(event))

    async def send_raw(self, data: str | bytes) -> None:
        """Send a message as it is; errors are those of :meth:`send`."""
        await self._send(data, event_of_text(data) if self._meter is not None else {})

    async def recv(self) -> Any:
        """Return the next event. It may be cancelled without losing one.

        Raises:
            APIConnectionError: the connection is closed or broke off; also an error of ``websockets``.
            APIResponseValidationError: the message is no event; the connection goes on.
            BudgetExceededError: the server began a response by itself that a budget refuses. In a Realtime
                session it was asked to cancel the response; the connection goes on.
        """
        arrival = await self._next()
        if arrival.error is not None:
            raise arrival.error
        return arrival.event

    async def recv_bytes(self) -> bytes:
        """Return the next message as bytes, for :meth:`parse_event`; errors are those of :meth:`recv`."""
        return (await self._next()).data

    def parse_event(self, data: str | bytes) -> Any:
        """Return the event in a message.

        Raises:
            APIResponseValidationError: it is no event.
        """
        return parse_event(self._row, data)

    async def close(self, *, code: int = 1000, reason: str = "") -> None:
        """Close the connection."""
        try:
            await self._link.close(code, reason)
        finally:
            if self._meter is not None:
                await self._meter.end()

    async def next_event(self) -> Any:
        """Return the next event, from a new connection if this one broke off and a handler agrees.

        Raises:
            StopAsyncIteration: the server ended the connection without an error.
            WebSocketConnectionClosedError: the connection ended before all messages were sent.
        """
        while True:
            try:
                return await self.recv()
            except (WebSocketEndedError, WebSocketFailedError) as error:
                if await self._link.reconnect(error):
                    continue
                if unsent := self._queue.drain():
                    raise WebSocketConnectionClosedError(
                        "WebSocket connection closed with unsent messages", unsent_messages=unsent
                    ) from error
                if isinstance(error, WebSocketEndedError):
                    raise StopAsyncIteration from None
                raise

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            try:
                event = await self.next_event()
            except StopAsyncIteration:
                return
            yield event

    async def dispatch_events(self) -> None:
        """Call the handlers with each event until the connection ends; awaitable results are awaited.

        Raises:
            OpenAIError: the server sent an error, and there is no handler for it.
        """
        async for event in self:
            for handler in self.handlers_of(event):
                result = handler(event)
                if inspect.isawaitable(result):
                    await result

    async def _send(self, message: str | bytes, event: Mapping[str, Any]) -> None:
        if self._meter is None:
            await self._link.send(message)
            return
        ready, request = await self._meter.begin(event)
        if ready is not event:
            message = json.dumps(ready)
        try:
            await self._link.send(message)
        except BaseException:
            if request is not None:
                await self._meter.drop(request)
            raise

    async def _next(self) -> _Arrival:
        """Return the next message, after its effect on the calls is recorded."""
        if not self._arrived:
            self._arrived.append(await self._receive())
        arrival = self._arrived[0]
        # A cancelled reader leaves the message and its recording to the next one.
        refusal = None if arrival.noting is None else await asyncio.shield(arrival.noting)
        self._arrived.popleft()
        if refusal is not None:
            raise refusal
        return arrival

    async def _receive(self) -> _Arrival:
        try:
            data = await self._link.receive()
        except APIError as error:
            if self._meter is not None:
                await self._meter.end(error)
            raise
        try:
            event = self.parse_event(data)
        except APIResponseValidationError as error:
            return _Arrival(data, None, error)
        if getattr(event, "type", "error") != "error":
            self._link.note_progress()
        noting = None if self._meter is None else self._meter.note(event)
        return _Arrival(
            data, event, noting=None if noting is None else asyncio.create_task(self._noted(noting, event))
        )

    async def _noted(self, noting: Coroutine[Any, Any, OpenAIError | None], event: Any) -> OpenAIError | None:
        refusal = await noting
        if refusal is not None and self._row.path.startswith("/realtime"):
            cancel = {"type": "response.cancel", "response_id": event.response.id}
            await self._link.send(json.dumps(cancel))
        return refusal


class SocketConnection(EventHandlers):
    """An open WebSocket of a synchronous client; see :class:`AsyncSocketConnection`.

    Several threads may use it, one of which receives.

    Args:
        core: the connection.
        runner: runs its coroutines.
    """

    def __init__(self, row: SocketRow, core: AsyncSocketConnection, runner: SyncRunner) -> None:
        super().__init__()
        self._core, self._runner = core, runner
        vars(self).update(sending_namespaces(row, self.send))

    @property
    def meta(self) -> Call | None:
        """The record of the newest finished response: cost, usage, timings; None before the first."""
        return self._core.meta

    def send(self, event: Any) -> None:
        """Send an event; see :meth:`AsyncSocketConnection.send`."""
        self._runner.run(self._core.send, event)

    def send_raw(self, data: str | bytes) -> None:
        """Send a message as it is."""
        self._runner.run(self._core.send_raw, data)

    def recv(self) -> Any:
        """Return the next event; see :meth:`AsyncSocketConnection.recv`."""
        return self._runner.run(self._core.recv)

    def recv_bytes(self) -> bytes:
        """Return the next message as bytes, for :meth:`parse_event`."""
        return self._runner.run(self._core.recv_bytes)

    def parse_event(self, data: str | bytes) -> Any:
        """Return the event in a message; see :meth:`AsyncSocketConnection.parse_event`."""
        return self._core.parse_event(data)

    def close(self, *, code: int = 1000, reason: str = "") -> None:
        """Close the connection."""
        self._runner.run(self._core.close, code=code, reason=reason)

    async def close_core(self) -> None:
        """Close the connection, on the event loop that runs it."""
        await self._core.close()

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                event = self._runner.run(self._core.next_event)
            except StopAsyncIteration:
                return
            yield event

    def dispatch_events(self) -> None:
        """Call the handlers with each event until the connection ends, in the caller's thread."""
        for event in self:
            for handler in self.handlers_of(event):
                handler(event)
