"""Connections that are not open yet: context managers that open and close them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from specclient.call.pipeline import Pipeline
from specclient.call.websocket.link import ReconnectPolicy, SocketLink
from specclient.call.websocket.meter import SocketMeter
from specclient.call.websocket.methods import METERED_SOCKETS
from specclient.call.websocket.opening import handshake, open_at, socket_endpoint
from specclient.call.websocket.send_queue import SendQueue
from specclient.http_transport.websocket import ClientConnection
from specclient.resources.base import SyncRunner
from specclient.resources.sockets.connections import AsyncSocketConnection, SocketConnection
from specclient.resources.sockets.handlers import EventHandlers
from specclient.resources.sockets.messages import encode_event
from specclient.resources.table.sockets import SocketRow
from specclient.runtime.event_loop import check_asyncio, run_in_thread
from specclient.types.api_method import ApiMethod
from specclient.types.params import is_given
from specclient.types.request import PerCallOptions
from specclient.types.websocket_reconnection import ReconnectingEvent

__all__ = ["AsyncSocketManager", "SocketManager"]

#: ``max_queue_size`` of connections that do not reconnect, which queue only what is sent before they open.
_QUEUE_BYTES = 2**20


class _Opener(EventHandlers):
    """A connection that is not open yet: what both kinds of context managers share.

    Args:
        pipeline: of the client.
        row: the ``connect`` method.
        given: its arguments.
    """

    def __init__(self, pipeline: Pipeline, row: SocketRow, given: Mapping[str, Any]) -> None:
        super().__init__()
        for name in row.places:
            if not given[name]:
                raise ValueError(f"Expected a non-empty value for `{name}` but received {given[name]!r}")
        self._pipeline, self._row, self._given = pipeline, row, given
        self._queue = SendQueue(given.get("max_queue_size", _QUEUE_BYTES))

    def send(self, event: Any) -> None:
        """Keep an event that is sent as soon as the connection is open.

        Raises:
            WebSocketQueueFullError: too many bytes wait.
        """
        self._queue.put(encode_event(event)[0])

    async def _opened(self, handler: Callable[[ReconnectingEvent], Any] | None) -> AsyncSocketConnection:
        """Open the connection and send the events that wait."""
        check_asyncio()
        given, row = self._given, self._row
        model = given.get("model")
        model = model if isinstance(model, str) else ""
        endpoint, inner = socket_endpoint(self._pipeline, model)
        options = PerCallOptions(tags=given.get("tags") or {}, session=given.get("session"))
        params = {
            name: given[name] for name in row.params if name not in row.places and is_given(given[name])
        }
        if inner:
            params["model"] = inner
        method = ApiMethod(name=row.name, verb="GET", path=row.path, headers=row.headers)

        async def open_socket(query: Mapping[str, Any], headers: Mapping[str, Any]) -> ClientConnection:
            added = replace(options, query=query, headers=headers)
            places = {name: str(given[name]) for name in row.places}
            wire = handshake(endpoint, method, params, added, path_params=places)
            return await open_at(self._pipeline, wire, given["websocket_connection_options"])

        names = ("max_retries", "initial_delay", "max_delay")
        policy = ReconnectPolicy(handler, **{name: given[name] for name in names if name in given})
        link = SocketLink(
            open_socket,
            query=given["extra_query"],
            headers=given["extra_headers"],
            policy=policy,
            queue=self._queue,
        )
        metered = METERED_SOCKETS.get(row.name)
        meter = None
        if metered is not None:
            hears = is_given(given.get("call_id")) and bool(given.get("call_id"))
            meter = SocketMeter(self._pipeline, metered, endpoint, model, options, hears=hears)
        await link.open()
        connection = AsyncSocketConnection(row, link, self._queue, meter)
        try:
            while (message := self._queue.take()) is not None:
                await connection.send_raw(message)
        except BaseException:
            await connection.close()
            raise
        return connection


class AsyncSocketManager(_Opener):
    """Opens a WebSocket in an ``async with`` block, or by ``await manager.enter()``, and closes it."""

    _connection: AsyncSocketConnection | None = None

    async def __aenter__(self) -> AsyncSocketConnection:
        """Open the connection.

        Raises:
            APIStatusError: the server refused it; the class is that of the status.
            APIConnectionError: the server cannot be reached, or did not answer in time.
        """
        self._connection = connection = await self._opened(self._given.get("on_reconnecting"))
        connection.take_handlers(self)
        return connection

    enter = __aenter__

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await _closed(self._connection.close, error)


class SocketManager(_Opener):
    """Opens a WebSocket in a ``with`` block, or by ``manager.enter()``, and closes it."""

    _connection: SocketConnection | None = None

    def __init__(
        self, pipeline: Pipeline, row: SocketRow, given: Mapping[str, Any], runner: SyncRunner
    ) -> None:
        super().__init__(pipeline, row, given)
        self._runner = runner

    def __enter__(self) -> SocketConnection:
        """Open the connection; see :meth:`AsyncSocketManager.__aenter__`."""
        core = self._runner.run(self._opened, _in_thread(self._given.get("on_reconnecting")))
        self._connection = connection = SocketConnection(self._row, core, self._runner)
        connection.take_handlers(self)
        return connection

    enter = __enter__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._runner.run(_closed, self._connection.close_core, error)


async def _closed(close: Callable[[], Awaitable[None]], error: BaseException | None) -> None:
    """Close a connection; an error in doing so is not raised in place of the block's own."""
    try:
        await close()
    except Exception:
        if error is None:
            raise


def _in_thread(
    handler: Callable[[ReconnectingEvent], Any] | None,
) -> Callable[[ReconnectingEvent], Any] | None:
    """Return a handler that calls the user's in a thread, where it may use the synchronous client."""
    if handler is None:
        return None

    async def called(event: ReconnectingEvent) -> Any:
        result = await run_in_thread(lambda: handler(event))
        return await result if inspect.isawaitable(result) else result

    return called
