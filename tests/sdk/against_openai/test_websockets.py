"""WebSockets beside the OpenAI client: the same handshake, the same messages, the same events in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from both_clients import Side
from websocket_server import (
    SPOKEN_USAGE,
    SocketServer,
    realtime_response,
    response_events,
    send_events,
    session_created,
)

import specclient

#: Of the OpenAI client's way to open a synchronous connection, in newer versions of websockets.
pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")

#: Headers that differ by library.
_OWN = ("user-agent", "x-stainless", "sec-websocket-key", "content-type", "host")
LIBRARIES = (openai, specclient)
Scenario = Callable[[Side], Any]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def run(
    server: SocketServer, scenario: Scenario, lib: Any, *, is_async: bool, **options: Any
) -> dict[str, Any]:
    """Return what a library sent and got in a scenario."""
    side = Side(lib, is_async, server.url, options, [])
    try:
        result = scenario(side)
    finally:
        side.close()
    shake = server.last
    assert shake.ended.wait(10)
    headers = {name: value for name, value in shake.headers.items() if not name.startswith(_OWN)}
    return {
        "path": shake.path,
        "query": shake.query,
        "headers": headers,
        "messages": shake.messages,
        "closed": shake.closed,
        "result": result,
    }


def same(server: SocketServer, scenario: Scenario, *, is_async: bool, **options: Any) -> dict[str, Any]:
    theirs, ours = (run(server, scenario, lib, is_async=is_async, **options) for lib in LIBRARIES)
    assert ours == theirs
    return ours


def shape(event: Any) -> tuple[str, Any]:
    """Return the class of an event and its JSON."""
    return type(event).__name__, event.to_dict()


def test_a_realtime_conversation_is_the_same(socket_server: SocketServer, is_async: bool) -> None:
    def script(socket: Any) -> None:
        send_events(socket, session_created())
        for _ in range(9):
            socket_server.read(socket)
        send_events(socket, *realtime_response("r1", usage=SPOKEN_USAGE))

    def scenario(side: Side) -> Any:
        manager = side.client.realtime.connect(
            model="gpt-realtime", extra_query={"a": "b"}, extra_headers={"x-own": "c"}
        )
        with side.within(manager) as connection:
            side.get(
                connection.session.update(session={"type": "realtime", "instructions": "é"}, event_id="1")
            )
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
            side.get(connection.conversation.item.create(item=item, previous_item_id="root"))
            side.get(connection.conversation.item.truncate(audio_end_ms=3, content_index=0, item_id="i"))
            side.get(connection.input_audio_buffer.append(audio="AAAA"))
            side.get(connection.input_audio_buffer.commit())
            side.get(connection.output_audio_buffer.clear())
            side.get(connection.response.cancel(response_id="r0"))
            side.get(connection.send({"type": "input_audio_buffer.clear", "event_id": None}))
            side.get(connection.response.create(response={"output_modalities": ["audio"]}))
            events = side.items(connection)
            return [shape(event) for event in events]

    socket_server.script = script
    outcome = same(socket_server, scenario, is_async=is_async)
    assert outcome["path"] == "/v1/realtime"
    assert outcome["query"] == {"model": "gpt-realtime", "a": "b"}
    assert len(outcome["messages"]) == 9
    assert [name for name, _ in outcome["result"]][-1] == "ResponseDoneEvent"
    assert outcome["closed"] == (1000, "")


def test_responses_over_a_websocket_are_the_same(socket_server: SocketServer, is_async: bool) -> None:
    def script(socket: Any) -> None:
        for number in range(2):
            socket_server.read(socket)
            send_events(socket, *response_events(f"resp_{number}"))

    def scenario(side: Side) -> Any:
        found = []
        with side.within(side.client.responses.connect(extra_headers={"x-own": "c"})) as connection:
            for text in ("first", "second"):
                side.get(connection.response.create(model="gpt-4.1", input=text, max_output_tokens=20))
                found += [side.get(connection.recv()) for _ in range(3)]
        for event in found:  # one class may be a subclass of the other library's
            names = {cls.__name__ for cls in type(event).__mro__}
            assert names & {"ResponseCreatedEvent", "ResponseTextDeltaEvent", "ResponseCompletedEvent"}
        return [event.to_dict() for event in found] + [found[-1].response.output_text]

    socket_server.script = script
    outcome = same(socket_server, scenario, is_async=is_async)
    assert (outcome["path"], outcome["result"][-1]) == ("/v1/responses", "Hello")
    assert json.loads(outcome["messages"][1])["input"] == "second"


@pytest.mark.parametrize(
    ("connect", "arguments", "path", "method", "given"),
    [
        ("beta.realtime", {"model": "m"}, "/v1/realtime", "transcription_session.update", {"session": {}}),
        ("beta.responses", {}, "/v1/responses", "response.steer", {"input": [], "previous_response_id": "r"}),
        ("live", {}, "/v1/live/sessions", "session.start", {"session": {"model": "m"}}),
        ("live.forks", {"session_id": "s 1"}, "/v1/live/sessions/s%201/fork", "response.create", {}),
        (
            "live.sideband",
            {"session_id": "s", "graceful_close": True},
            "/v1/live/sessions/s/attach",
            "transport.dtmf.send",
            {"event": "1"},
        ),
        ("realtime.translations", {"model": "m"}, "/v1/realtime/translations", "session.close", {}),
    ],
)
def test_every_other_connection_is_the_same(
    socket_server: SocketServer, connect: str, arguments: Any, path: str, method: str, given: Any
) -> None:
    def scenario(side: Side) -> Any:
        resource = side.client
        for name in connect.split("."):
            resource = getattr(resource, name)
        with side.within(resource.connect(**arguments)) as connection:
            function = connection
            for name in method.split("."):
                function = getattr(function, name)
            side.get(function(**given))
            return connection.recv_bytes()

    def script(socket: Any) -> None:
        socket_server.read(socket)
        send_events(socket, {"type": "session.started"})

    socket_server.script = script
    options = {
        "websocket_base_url": f"{socket_server.ws_url}/v1"
    }  # beta.realtime of theirs asks for TLS otherwise
    outcome = same(socket_server, scenario, is_async=False, **options)
    assert outcome["path"] == path
    assert outcome["result"] == b'{"type": "session.started"}'


def test_events_are_dispatched_to_the_same_handlers(socket_server: SocketServer, is_async: bool) -> None:
    def scenario(side: Side) -> Any:
        called: list[tuple[str, str]] = []
        manager = side.client.realtime.connect(model="gpt-realtime")
        manager.send({"type": "session.update", "session": {"type": "realtime"}})  # waits for the connection
        manager.on("session.created", lambda event: called.append(("before", event.type)))
        with side.within(manager) as connection:
            connection.once("event", lambda event: called.append(("once", event.type)))

            @connection.on("event")
            def every(event: Any) -> None:
                called.append(("every", event.type))

            connection.on("response.done", print).off("response.done", print)
            side.get(connection.dispatch_events())
        return called

    def script(socket: Any) -> None:
        socket_server.read(socket)
        send_events(socket, session_created(), {"type": "conversation.created"})

    socket_server.script = script
    outcome = same(socket_server, scenario, is_async=is_async)
    assert outcome["result"][0] == ("before", "session.created")


def test_a_connection_that_broke_off_is_replaced_in_the_same_way(
    socket_server: SocketServer, is_async: bool
) -> None:
    def scenario(side: Side) -> Any:
        seen: list[Any] = []

        def reconnecting(event: Any) -> Any:
            seen.append((event.attempt, event.max_attempts, event.close_code, dict(event.extra_query)))
            return {"extra_query": {"resumed": "yes"}}

        manager = side.client.realtime.connect(
            model="gpt-realtime", on_reconnecting=reconnecting, initial_delay=0.001, max_retries=3
        )
        with side.within(manager) as connection:
            events = [event.type for event in side.items(connection)]
        return seen, events, [shake.query for shake in socket_server.handshakes[-2:]]

    def script(socket: Any) -> None:
        if "resumed" in socket.shake.query:
            send_events(socket, {"type": "conversation.created"})
            return
        send_events(socket, session_created())
        socket.close(1012, "restart")

    socket_server.script = script
    outcome = same(socket_server, scenario, is_async=is_async)
    seen, events, queries = outcome["result"]
    assert seen == [(1, 3, 1012, {})]
    assert events == ["session.created", "conversation.created"]
    assert queries == [{"model": "gpt-realtime"}, {"model": "gpt-realtime", "resumed": "yes"}]


def test_an_azure_resource_is_asked_for_its_deployment(socket_server: SocketServer, is_async: bool) -> None:
    def scenario(side: Side) -> Any:
        client = side.make(
            "AzureOpenAI",
            api_key="azure-key",
            azure_endpoint="https://mine.openai.azure.com",
            api_version="2025-01-01",
            websocket_base_url=f"{socket_server.ws_url}/openai",
        )
        with side.within(client.realtime.connect(model="my-deployment")) as connection:
            return side.get(connection.recv_bytes())

    socket_server.script = lambda socket: send_events(socket, session_created())
    outcome = same(socket_server, scenario, is_async=is_async)
    assert outcome["query"] == {"api-version": "2025-01-01", "deployment": "my-deployment"}
    assert outcome["headers"]["api-key"] == "azure-key"
    assert "authorization" not in outcome["headers"]
