"""Open connections: bad messages, cancelled readers, queued messages, handlers and reconnection."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from websocket_server import SocketServer, send_events, session_created

from specclient import (
    APIConnectionError,
    APIResponseValidationError,
    AsyncOpenAI,
    BadRequestError,
    OpenAI,
    OpenAIError,
    ReconnectingEvent,
    WebSocketConnectionClosedError,
    WebSocketQueueFullError,
)

pytestmark = pytest.mark.anyio


def client_of(server: SocketServer) -> OpenAI:
    return OpenAI(api_key="k", base_url=f"{server.url}/v1")


def test_a_message_that_is_no_event_is_one_error_and_the_connection_goes_on(
    socket_server: SocketServer,
) -> None:
    bad = ["{", "[1]", '"text"', "", b"\x00\xff", "[" * 100_000]

    def script(connection: Any) -> None:
        for message in bad:
            connection.send(message)
        send_events(connection, {"type": "of.the.future", "new": {"deep": [1]}}, {"no": "type"})

    socket_server.script = script
    with client_of(socket_server) as client, client.realtime.connect(model="m") as connection:
        for message in bad:
            with pytest.raises(APIResponseValidationError, match="no event of realtime") as caught:
                connection.recv()
            assert len(str(caught.value)) < 600, message
        unknown = connection.recv()
        assert (unknown.type, unknown.new.deep) == ("of.the.future", [1])
        assert connection.recv().to_dict() == {"no": "type"}


def test_bytes_of_any_message_can_be_read(socket_server: SocketServer) -> None:
    def script(connection: Any) -> None:
        connection.send("{")
        send_events(connection, session_created())

    socket_server.script = script
    with client_of(socket_server) as client, client.realtime.connect(model="m") as connection:
        assert connection.recv_bytes() == b"{"
        assert connection.parse_event(connection.recv_bytes()).session.model == "gpt-realtime"


def test_an_event_that_cannot_be_sent_is_refused_here(socket_server: SocketServer) -> None:
    socket_server.script = socket_server.read_all
    with client_of(socket_server) as client, client.realtime.connect(model="m") as connection:
        for event in ({"type": "x", "y": object()}, {"type": "x", "y": float("nan")}):
            with pytest.raises(BadRequestError, match="cannot be sent as JSON"):
                connection.send(event)
        with pytest.raises(TypeError, match=r"append\(\) missing a required argument: 'audio'"):
            connection.input_audio_buffer.append()
        with pytest.raises(TypeError, match="'nonsense'"):
            connection.response.create(nonsense=1)


async def test_a_cancelled_reader_loses_no_event(socket_server: SocketServer) -> None:
    go = threading.Event()

    def script(connection: Any) -> None:
        socket_server.read(connection)
        go.wait(10)
        send_events(connection, session_created(), {"type": "conversation.created"})

    socket_server.script = script
    async with (
        AsyncOpenAI(api_key="k", base_url=f"{socket_server.url}/v1") as client,
        client.realtime.connect(model="m") as connection,
    ):
        await connection.session.update(session={})
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(connection.recv(), 0.01)
        go.set()
        assert [event.type async for event in connection] == ["session.created", "conversation.created"]


def test_an_error_without_a_handler_is_raised(socket_server: SocketServer) -> None:
    socket_server.script = lambda connection: send_events(
        connection, {"type": "error", "event_id": "e", "error": {"type": "t", "message": "it failed"}}
    )
    with (
        client_of(socket_server) as client,
        client.realtime.connect(model="m") as connection,
        pytest.raises(OpenAIError, match="no handler: it failed"),
    ):
        connection.dispatch_events()


def test_messages_wait_for_the_connection_up_to_a_size(socket_server: SocketServer) -> None:
    socket_server.script = socket_server.read_all
    with client_of(socket_server) as client:
        manager = client.realtime.connect(model="m", max_queue_size=40)
        manager.send({"type": "session.update"})
        with pytest.raises(WebSocketQueueFullError, match="max_queue_size"):
            manager.send({"type": "session.update"})
        with manager:
            pass
    assert socket_server.last.ended.wait(10)
    assert socket_server.last.messages == ['{"type": "session.update"}']


@pytest.mark.parametrize("how", ["abort", "raise", "attempts"])
def test_reconnecting_ends_with_the_error_of_the_connection(socket_server: SocketServer, how: str) -> None:
    calls: list[ReconnectingEvent] = []

    def reconnecting(event: ReconnectingEvent) -> Any:
        calls.append(event)
        if how == "raise":
            raise RuntimeError("the caller's own failure")
        socket_server.refusals = [(503, {}, b"")]
        return {"abort": True} if how == "abort" else None

    socket_server.script = lambda connection: connection.close(1012)
    with client_of(socket_server) as client:
        manager = client.realtime.connect(
            model="m", on_reconnecting=reconnecting, max_retries=2, initial_delay=0.001
        )
        with manager as connection, pytest.raises(APIConnectionError, match="1012"):
            list(connection)
    assert [event.attempt for event in calls] == ([1, 2] if how == "attempts" else [1])


def test_messages_sent_while_reconnecting_are_sent_afterwards_or_reported(
    socket_server: SocketServer,
) -> None:
    """The handler runs in a thread, so it may use the synchronous connection."""

    def reconnecting(event: ReconnectingEvent) -> Any:
        connection.send({"type": "session.update", "session": {"attempt": event.attempt}})
        return {"abort": True} if len(socket_server.handshakes) == 2 else None

    def script(connection: Any) -> None:
        if len(socket_server.handshakes) == 2:
            socket_server.read(connection)
        connection.close(1012)

    socket_server.script = script
    with client_of(socket_server) as client:
        manager = client.realtime.connect(model="m", on_reconnecting=reconnecting, initial_delay=0.001)
        with manager as connection, pytest.raises(WebSocketConnectionClosedError) as caught:
            list(connection)
    assert socket_server.last.messages == ['{"type": "session.update", "session": {"attempt": 1}}']
    assert caught.value.unsent_messages == ['{"type": "session.update", "session": {"attempt": 2}}']


def test_a_close_ends_the_wait_before_an_attempt(socket_server: SocketServer) -> None:
    waiting = threading.Event()

    def reconnecting(_: ReconnectingEvent) -> None:
        waiting.set()

    socket_server.script = lambda connection: connection.close(1012)
    with client_of(socket_server) as client:
        manager = client.realtime.connect(
            model="m", on_reconnecting=reconnecting, initial_delay=60, max_delay=60
        )
        with manager as connection:
            closer = threading.Thread(target=lambda: (waiting.wait(10), connection.close()))
            closer.start()
            with pytest.raises(APIConnectionError, match="1012"):
                list(connection)
            closer.join()
