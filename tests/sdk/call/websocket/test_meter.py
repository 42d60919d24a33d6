"""The calls of a WebSocket in the ledger: exact costs, budgets, responses that fail or break off."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from websocket_server import (
    SPOKEN_USAGE,
    SocketServer,
    realtime_response,
    response_events,
    send_events,
    session_created,
)

from specclient import (
    APIConnectionError,
    BadRequestError,
    Budget,
    BudgetExceededError,
    NotFoundError,
    OpenAI,
)

#: The cost of SPOKEN_USAGE with gpt-realtime, by kind.
SPOKEN = {
    "input": Decimal("0.0016"),  # 400 of text at $4
    "cached_input": Decimal("0.00008"),  # 200 of text at $0.40
    "audio_input": Decimal("0.0032"),  # 100 that were not cached, at $32
    "cached_audio_input": Decimal("0.00012"),  # 300 at $0.40
    "output": Decimal("0.0008"),  # 50 of text at $16
    "audio_output": Decimal("0.0096"),  # 150 at $64
}


def client_of(server: SocketServer, **options: Any) -> OpenAI:
    """Return a client of OpenAI's own provider, whose prices are known, with its WebSockets on the server."""
    return OpenAI(api_key="k", websocket_base_url=f"{server.ws_url}/v1", **options)


def test_a_spoken_response_costs_what_the_catalogue_says(socket_server: SocketServer) -> None:
    def script(socket: Any) -> None:
        send_events(socket, session_created())
        socket_server.read(socket)
        send_events(socket, *realtime_response("r1", usage=SPOKEN_USAGE))

    socket_server.script = script
    with client_of(socket_server) as client:
        with client.realtime.connect(model="gpt-realtime", tags={"team": "a"}, session="s1") as connection:
            connection.response.create(response={"metadata": {"topic": "b"}})
            assert [event.type for event in connection][-1] == "response.done"
            call = connection.meta
        client.ledger.flush()
        [row] = client.ledger.rows()
    assert call is not None
    assert (dict(call.cost.by_kind), call.cost.estimated) == (SPOKEN, False)
    assert call.cost.total == Decimal("0.0154")
    assert (row.id, row.operation, row.route, row.status) == (
        call.id,
        "realtime",
        "openai/gpt-realtime",
        "ok",
    )
    assert (row.cost_nano, row.prompt_tokens, row.completion_tokens) == (15_400_000, 1000, 200)
    assert (row.tags, row.metadata, row.session) == ({"team": "a"}, {"topic": "b"}, "s1")
    assert row.ttft_s is not None


def test_a_response_without_a_price_or_usage_has_an_unknown_cost(socket_server: SocketServer) -> None:
    def script(socket: Any) -> None:
        send_events(socket, session_created("own"))
        send_events(socket, *realtime_response("r1", usage=SPOKEN_USAGE))
        send_events(socket, *realtime_response("r2"))

    socket_server.script = script
    with client_of(socket_server) as client:
        with client.realtime.connect(call_id="call") as connection:  # the server names the model
            list(connection)
        client.ledger.flush()
        priced, unused = client.ledger.rows()
    assert [row.model for row in (priced, unused)] == ["own", "own"]
    assert (priced.prompt_tokens, priced.cost_nano) == (1000, None)
    assert (unused.prompt_tokens, unused.cost_nano) == (None, None)


def test_the_last_event_of_a_response_has_the_record_of_its_call(socket_server: SocketServer) -> None:
    def script(socket: Any) -> None:
        socket_server.read(socket)
        send_events(socket, *response_events("resp_1", model="gpt-4.1-2025-04-14"))

    socket_server.script = script
    with client_of(socket_server) as client:
        with client.responses.connect() as connection:
            connection.response.create(model="openai/gpt-4.1", input="hi")
            last = list(connection)[-1]
        client.ledger.flush()
        [row] = client.ledger.rows()
    assert '"model": "gpt-4.1"' in str(socket_server.last.messages[0])  # as the provider names it
    assert last.response.meta.cost.total == Decimal("0.0022")  # 600 at $2, 400 cached at $0.50, 100 at $8
    assert (row.operation, row.model, row.served_model) == (
        "response",
        "openai/gpt-4.1",
        "gpt-4.1-2025-04-14",
    )


def test_a_budget_refuses_a_response_before_it_is_requested(socket_server: SocketServer) -> None:
    def script(socket: Any) -> None:
        send_events(socket, session_created())
        socket_server.read_all(socket)

    socket_server.script = script
    with (
        client_of(socket_server, budgets=[Budget(name="cents", usd="0.01")]) as client,
        client.realtime.connect(model="gpt-realtime") as connection,
    ):
        connection.input_audio_buffer.append(audio="AAAA")
        with pytest.raises(BudgetExceededError, match="cents"):
            connection.response.create()
        connection.input_audio_buffer.clear()  # the connection goes on
    assert socket_server.last.ended.wait(10)
    assert len(socket_server.last.messages) == 2
    assert not any("response.create" in str(message) for message in socket_server.last.messages)


def test_a_response_that_the_server_began_is_cancelled_if_a_budget_refuses_it(
    socket_server: SocketServer,
) -> None:
    """As after speech: the server begins the response by itself."""
    begun, _, done = realtime_response("r9", status="cancelled", usage=SPOKEN_USAGE)

    def script(socket: Any) -> None:
        send_events(socket, session_created(), begun)
        assert socket_server.read(socket) == {"type": "response.cancel", "response_id": "r9"}
        send_events(socket, done)

    socket_server.script = script
    with client_of(socket_server, budgets=[Budget(name="cents", usd="0.01")]) as client:
        with client.realtime.connect(model="gpt-realtime") as connection:
            assert connection.recv().type == "session.created"
            with pytest.raises(BudgetExceededError, match="cents"):
                connection.recv()
            assert connection.recv().type == "response.done"
        budgets = client.core.shared.budgets
        assert budgets is not None
        [standing] = budgets.standings()
    assert standing.spent == 15_400_000  # it is counted all the same
    assert standing.reserved == 0


def test_a_budget_reserves_and_settles_what_a_response_costs(socket_server: SocketServer) -> None:
    reserved: list[int] = []

    def script(socket: Any) -> None:
        socket_server.read(socket)
        reserved.extend(standing.reserved for standing in client.core.shared.budgets.standings())  # type: ignore[union-attr]
        send_events(socket, *realtime_response("r1", usage=SPOKEN_USAGE))

    socket_server.script = script
    with client_of(socket_server, budgets=[Budget(name="dollars", usd="5")]) as client:
        with client.realtime.connect(model="gpt-realtime") as connection:
            connection.response.create(response={"max_output_tokens": 100, "output_modalities": ["text"]})
            list(connection)
        [standing] = client.core.shared.budgets.standings()  # type: ignore[union-attr]
    assert reserved == [32_000 * 4_000 + 100 * 16_000]  # the whole context as text at $4, 100 tokens at $16
    assert (standing.spent, standing.reserved) == (15_400_000, 0)


def test_a_request_that_the_server_refuses_costs_nothing(socket_server: SocketServer) -> None:
    def script(socket: Any) -> None:
        event_id = socket_server.read(socket)["event_id"]
        other = {
            "type": "error",
            "event_id": "e",
            "error": {"type": "x", "message": "m", "event_id": "other"},
        }
        own = {"type": "error", "event_id": "e", "error": {"type": "x", "message": "m", "event_id": event_id}}
        send_events(socket, other, own)

    socket_server.script = script
    with client_of(socket_server) as client, client.realtime.connect(model="gpt-realtime") as connection:
        connection.response.create(event_id="mine")
        assert connection.recv().error.event_id == "other"
        assert connection.meta is None  # it was about something else
        assert connection.recv().error.event_id == "mine"
        call = connection.meta
    assert call is not None
    assert (call.status, call.cost.total, call.cost.source) == ("error", 0, "refused")


@pytest.mark.parametrize(("begun", "closed_by"), [(False, "server"), (True, "server"), (True, "caller")])
def test_a_response_that_breaks_off_is_recorded_with_an_unknown_cost(
    socket_server: SocketServer, begun: bool, closed_by: str
) -> None:
    def script(socket: Any) -> None:
        socket_server.read(socket)
        send_events(socket, *realtime_response("r1")[: 2 if begun else 0], {"type": "session.updated"})
        if closed_by == "server":
            socket.socket.close()
        socket_server.read_all(socket)

    socket_server.script = script
    with client_of(socket_server) as client:
        with client.realtime.connect(model="gpt-realtime") as connection:
            connection.response.create()
            for _ in range(3 if begun else 1):
                connection.recv()
            if closed_by == "server":
                with pytest.raises(APIConnectionError, match="broke off"):
                    connection.recv()
        client.ledger.flush()
        [row] = client.ledger.rows()
    assert row.status == ("error" if closed_by == "server" else "cancelled")
    assert row.cost_nano is None


def test_the_transcription_of_speech_is_a_call_of_its_own(socket_server: SocketServer) -> None:
    usage = {"type": "tokens", "input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    transcribed = {
        "type": "conversation.item.input_audio_transcription.completed",
        "event_id": "e", "item_id": "i", "content_index": 0, "transcript": "hello", "usage": usage,
    }  # fmt: skip

    def script(socket: Any) -> None:
        audio = {"input": {"transcription": {"model": "gpt-4o-transcribe"}}}
        send_events(socket, session_created(audio=audio), transcribed)

    socket_server.script = script
    with client_of(socket_server) as client:
        with client.realtime.connect(model="gpt-realtime") as connection:
            list(connection)
        client.ledger.flush()
        [row] = client.ledger.rows()
    assert (row.operation, row.model) == ("realtime_transcription", "gpt-4o-transcribe")
    assert (row.prompt_tokens, row.cost_nano) == (100, 100 * 2500 + 20 * 10_000)


def test_models_without_websockets_are_refused(socket_server: SocketServer) -> None:
    socket_server.script = socket_server.read_all
    with client_of(socket_server) as client:
        with pytest.raises(NotFoundError, match="'anthropic' has no API over WebSockets"):
            client.realtime.connect(model="anthropic/claude-sonnet-4-5").enter()
        with pytest.raises(BadRequestError, match="'auto'"):
            client.realtime.connect(model="auto").enter()
        with (
            client.responses.connect() as connection,
            pytest.raises(BadRequestError, match=r"of provider 'groq', and this WebSocket .* 'openai'"),
        ):
            connection.response.create(model="groq/llama-3.3-70b-versatile", input="x")
