"""WebSockets through the gateway: unchanged, with the keys, models, budgets and limits of the server."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest
import websockets
from gateway_server import Served, wait_until
from websocket_server import (
    SPOKEN_USAGE,
    SocketServer,
    realtime_response,
    response_events,
    send_events,
    session_created,
)
from websockets.sync.client import connect

import specclient
from specclient.config import Settings
from specclient.ledger.sqlite import SQLiteStore
from specclient.serving import Limits
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.key import new_key, new_token
from specclient.serving.keys.store import KeyStore

pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")

Serve = Callable[..., Served]


@pytest.fixture
def serve(socket_server: SocketServer, tmp_path: Path) -> Iterator[Serve]:
    """Start gateways to ``socket_server``, which is the provider ``mine`` with OpenAI's prices."""
    running: list[Served] = []

    def start(*, keyed: bool = False, **options: Any) -> Served:
        mine = {"base_url": f"{socket_server.url}/v1", "api_key": "sk-upstream", "models": ["gpt-realtime"]}
        price = {"input": 4, "output": 16}
        tables = {
            "default_provider": "mine",
            "ledger": str(tmp_path / "ledger.db"),
            "providers": {"mine": mine},
            "prices": {"mine/gpt-realtime": price, "mine/gpt-4.1": price},
        }
        keys = KeyCache(KeyStore(SQLiteStore(str(tmp_path / "ledger.db"))), fresh_s=0.0) if keyed else None
        served = Served(Settings.model_validate(tables), keys=keys, **options)
        running.append(served.__enter__())
        return served

    yield start
    for served in running:
        served.stop()


def make_key(tmp_path: Path, **granted: Any) -> str:
    token = new_token()
    KeyStore(SQLiteStore(str(tmp_path / "ledger.db"))).add(
        new_key(f"key-{token[-8:]}", token, datetime.now(UTC), **granted)
    )
    return token


def rows(served: Served) -> list[Any]:
    served.client.ledger.flush()
    return served.client.ledger.rows()


def opened(served: Served, path: str = "/v1/realtime?model=gpt-realtime", **options: Any) -> Any:
    """Return a connection by the ``websockets`` library."""
    return connect(f"ws://127.0.0.1:{served.port}{path}", **options)


@pytest.mark.parametrize("lib", [openai, specclient])
def test_a_conversation_passes_through_unchanged(socket_server: SocketServer, serve: Serve, lib: Any) -> None:
    def script(socket: Any) -> None:
        send_events(socket, session_created())
        socket_server.read(socket)
        socket_server.read(socket)
        send_events(socket, *realtime_response("r1", usage=SPOKEN_USAGE), {"type": "of.the.future"})

    socket_server.script = script
    served = serve()
    seen = {}
    for url in (f"{socket_server.url}/v1", served.base_url):
        client = lib.OpenAI(api_key="sk-caller", base_url=url)
        with client.realtime.connect(model="gpt-realtime", extra_query={"intent": "x"}) as connection:
            connection.session.update(session={"type": "realtime", "instructions": "é"})
            connection.response.create(event_id="mine")
            seen[url] = [connection.recv_bytes() for _ in range(5)]
        client.close()
        shake = socket_server.handshakes[-1]
        assert shake.ended.wait(10)
        seen[url] += [shake.path, shake.query, shake.messages, shake.closed]
    direct, through = seen.values()
    assert through == direct
    assert socket_server.last.headers["authorization"] == "Bearer sk-upstream"  # not the caller's
    assert wait_until(lambda: rows(served))
    row = next(row for row in rows(served) if row.provider == "mine")
    assert (row.operation, row.model, row.status) == ("realtime", "gpt-realtime", "ok")
    assert (row.prompt_tokens, row.completion_tokens, row.cost_nano) == (1000, 200, 7_200_000)


def test_responses_go_to_the_provider_of_their_model(socket_server: SocketServer, serve: Serve) -> None:
    def script(socket: Any) -> None:
        while True:
            socket_server.read(socket)
            send_events(socket, *response_events("resp_1"))

    socket_server.script = script
    served = serve()
    with (
        specclient.OpenAI(api_key="k", base_url=served.base_url, ledger="off") as client,
        client.responses.connect() as connection,
    ):
        connection.send({"type": "response.steer"})  # before there is a provider
        early = connection.recv()
        assert (early.type, early.status, early.error["param"]) == ("error", 400, "type")
        connection.response.create(model="mine/gpt-4.1", input="a")
        assert [connection.recv().type for _ in range(3)][-1] == "response.completed"
        connection.response.create(model="elsewhere/m", input="a")
        refused = connection.recv()
        assert (refused.status, "elsewhere" in refused.error["message"]) == (404, True)
        connection.response.create(model="gpt-4.1", input="b")
        assert [connection.recv().type for _ in range(3)][-1] == "response.completed"
    assert [json.loads(message)["model"] for message in socket_server.last.messages] == ["gpt-4.1", "gpt-4.1"]
    assert wait_until(lambda: len(rows(served)) == 2)
    assert {row.operation for row in rows(served)} == {"response"}


def test_a_key_is_required_and_limits_the_models(
    socket_server: SocketServer, serve: Serve, tmp_path: Path
) -> None:
    socket_server.script = socket_server.read_all
    token = make_key(tmp_path, models=("mine/gpt-realtime",))
    served = serve(keyed=True)

    def status(path: str, **options: Any) -> tuple[int, str]:
        with pytest.raises(websockets.InvalidStatus) as caught, opened(served, path, **options):
            pass
        answer = caught.value.response
        return answer.status_code, json.loads(answer.body or b"")["error"]["code"]

    own = {"authorization": f"Bearer {token}"}
    realtime = "/v1/realtime?model="
    assert status(f"{realtime}gpt-realtime") == (401, "invalid_api_key")
    assert status(f"{realtime}gpt-realtime", additional_headers={"authorization": "Bearer no"})[0] == 401
    assert status(f"{realtime}other", additional_headers=own) == (404, "model_not_found")
    assert status("/v1/realtime", additional_headers=own)[0] == 400
    assert status(f"{realtime}gpt-realtime&model=other", additional_headers=own)[0] == 400
    assert status(f"{realtime}gpt-realtime&call_id=c", additional_headers=own) == (403, "not_permitted")
    assert status("/v1/models", additional_headers=own)[0] == 404
    assert not socket_server.handshakes
    browser = ["realtime", f"openai-insecure-api-key.{token}"]
    with opened(served, f"{realtime}gpt-realtime", subprotocols=browser) as socket:
        assert socket.subprotocol == "realtime"
        transcription = {"model": "whisper-1"}
        settings = {"type": "realtime", "audio": {"input": {"transcription": transcription}}}
        socket.send(json.dumps({"type": "session.update", "event_id": "e1", "session": settings}))
        error = json.loads(socket.recv(timeout=10))["error"]
        assert (error["code"], error["event_id"]) == ("model_not_found", "e1")


def test_a_keys_budget_and_rate_limit_hold_for_each_response(
    socket_server: SocketServer, serve: Serve, tmp_path: Path
) -> None:
    def script(socket: Any) -> None:
        while True:
            socket_server.read(socket)
            send_events(socket, *realtime_response("r1", usage=SPOKEN_USAGE))

    socket_server.script = script
    poor = make_key(tmp_path, usd=Decimal("0.000001"))
    served = serve(keyed=True)
    create = json.dumps({"type": "response.create", "event_id": "e1"})
    with opened(served, additional_headers={"authorization": f"Bearer {poor}"}) as socket:
        socket.send(create)
        error = json.loads(socket.recv(timeout=10))["error"]
        assert (error["code"], error["event_id"]) == ("insufficient_quota", "e1")
    assert not socket_server.last.messages
    slow = make_key(tmp_path, requests_per_minute=1)
    with opened(served, additional_headers={"authorization": f"Bearer {slow}"}) as socket:
        socket.send(create)
        assert [json.loads(socket.recv(timeout=10))["type"] for _ in range(3)][-1] == "response.done"
        socket.send(create)
        error = json.loads(socket.recv(timeout=10))["error"]
        assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert wait_until(lambda: len([row for row in rows(served) if row.status == "ok"]) == 1)


@pytest.mark.parametrize(
    ("settings", "response", "limit"),
    [
        (None, None, 4096),
        (None, {"max_output_tokens": "inf"}, 4096),
        (None, {"max_output_tokens": 7}, 7),
        ({"max_output_tokens": 5}, {"instructions": "x"}, 5),  # the provider may have refused the settings
    ],
)
def test_a_response_of_a_session_is_sent_with_the_limit_that_is_reserved(
    socket_server: SocketServer,
    serve: Serve,
    tmp_path: Path,
    settings: dict[str, Any] | None,
    response: dict[str, Any] | None,
    limit: int,
) -> None:
    socket_server.script = socket_server.read_all
    key = make_key(tmp_path, usd=Decimal(100))
    path = "/v1/realtime?model=gpt-realtime"
    served = serve(keyed=True)
    with opened(served, path, additional_headers={"authorization": f"Bearer {key}"}) as socket:
        if settings is not None:
            socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime", **settings}}))
        event = {"type": "response.create", **({} if response is None else {"response": response})}
        socket.send(json.dumps(event))
        assert wait_until(lambda: len(socket_server.last.messages) == 1 + (settings is not None))
    sent = json.loads(socket_server.last.messages[-1])
    assert sent == {"type": "response.create", "response": {**(response or {}), "max_output_tokens": limit}}


def test_a_response_of_the_responses_api_is_sent_with_the_limit_that_is_reserved(
    socket_server: SocketServer, serve: Serve, tmp_path: Path
) -> None:
    socket_server.script = socket_server.read_all
    key = make_key(tmp_path, usd=Decimal(100))
    served = serve(keyed=True)
    with opened(served, "/v1/responses", additional_headers={"authorization": f"Bearer {key}"}) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "gpt-4.1", "input": "x"}))
        assert wait_until(lambda: len(socket_server.last.messages) == 1)
    sent = json.loads(socket_server.last.messages[-1])
    assert sent == {"type": "response.create", "model": "gpt-4.1", "input": "x", "max_output_tokens": 4096}


@pytest.mark.parametrize(
    "session",
    [
        {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}},
        {"input_audio_transcription": {"model": "whisper-1"}},
    ],
)
def test_a_key_with_a_budget_may_not_have_speech_transcribed_by_the_way(
    socket_server: SocketServer, serve: Serve, tmp_path: Path, session: dict[str, Any]
) -> None:
    """Transcriptions are billed for any amount of speech, and known only afterwards."""
    socket_server.script = socket_server.read_all
    key = make_key(tmp_path, usd=Decimal(100))
    served = serve(keyed=True)
    with opened(served, additional_headers={"authorization": f"Bearer {key}"}) as socket:
        socket.send(json.dumps({"type": "session.update", "event_id": "e1", "session": session}))
        error = json.loads(socket.recv(timeout=10))["error"]
        assert (error["code"], error["event_id"]) == ("not_permitted", "e1")
    assert not socket_server.last.messages


def test_bad_messages_are_answered_and_the_connection_goes_on(
    socket_server: SocketServer, serve: Serve
) -> None:
    socket_server.script = socket_server.read_all
    served = serve()
    with opened(served) as socket:
        for message in ("{", "[1]", "", b"\x00\xff", '{"a":' * 5000, '"text"'):
            socket.send(message)
            error = json.loads(socket.recv(timeout=10))
            assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error"), message
        socket.send('{"type": "of.the.future"}')
    assert socket_server.last.ended.wait(10)
    assert socket_server.last.messages == ['{"type": "of.the.future"}']


@pytest.mark.parametrize(
    ("code", "reason", "seen"), [(1000, "", 1000), (1012, "restart", 1012), (4001, "x", 4001)]
)
def test_the_providers_close_is_passed_on(
    socket_server: SocketServer, serve: Serve, code: int, reason: str, seen: int
) -> None:
    socket_server.script = lambda socket: socket.close(code, reason)
    with opened(serve()) as socket, pytest.raises(websockets.ConnectionClosed) as caught:
        socket.recv(timeout=10)
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (seen, reason)


def test_a_provider_that_breaks_off_is_an_internal_error(socket_server: SocketServer, serve: Serve) -> None:
    def script(socket: Any) -> None:
        socket_server.read(socket)
        send_events(socket, *realtime_response("r1")[:2])
        socket.socket.close()

    socket_server.script = script
    served = serve()
    with opened(served) as socket:
        socket.send('{"type": "response.create"}')
        kinds = [json.loads(socket.recv(timeout=10))["type"] for _ in range(2)]
        assert kinds == ["response.created", "response.output_text.delta"]
        with pytest.raises(websockets.ConnectionClosedError, match="1011"):
            socket.recv(timeout=10)
    assert wait_until(lambda: rows(served))
    [row] = rows(served)
    assert (row.status, row.cost_nano) == ("error", None)


def test_the_clients_close_is_passed_on_and_the_call_is_cancelled(
    socket_server: SocketServer, serve: Serve
) -> None:
    def script(socket: Any) -> None:
        socket_server.read(socket)
        send_events(socket, *realtime_response("r1")[:1])
        socket_server.read_all(socket)

    socket_server.script = script
    served = serve()
    with opened(served) as socket:
        socket.send('{"type": "response.create"}')
        socket.recv(timeout=10)
        socket.close(4002, "enough")
    assert socket_server.last.ended.wait(10)
    assert socket_server.last.closed is not None
    assert socket_server.last.closed[0] == 4002
    assert wait_until(lambda: rows(served))
    assert rows(served)[0].status == "cancelled"


@pytest.mark.parametrize("status", [401, 429])
def test_a_providers_refusal_of_the_handshake_is_passed_on(
    socket_server: SocketServer, serve: Serve, status: int
) -> None:
    body = b'{"error": {"message": "not today", "code": "the_code"}}'
    socket_server.refusals = [(status, {"content-type": "application/json", "retry-after": "7"}, body)]
    with pytest.raises(websockets.InvalidStatus) as caught, opened(serve()):
        pass
    answer = caught.value.response
    assert answer.status_code == status
    assert json.loads(answer.body or b"")["error"]["code"] == "the_code"


def test_the_number_of_connections_and_the_size_of_messages_are_limited(
    socket_server: SocketServer, serve: Serve
) -> None:
    socket_server.script = socket_server.read_all
    served = serve(limits=Limits(sockets=1, message_bytes=1000, grace_s=5))
    with opened(served) as socket:
        with pytest.raises(websockets.InvalidStatus) as caught, opened(served):
            pass
        assert caught.value.response.status_code == 429
        socket.send('{"type": "' + "x" * 2000 + '"}')
        with pytest.raises(websockets.ConnectionClosedError, match="1009"):
            socket.recv(timeout=10)
    assert wait_until(lambda: not served.service.log.live)
    with opened(served):  # there is room again
        pass


def test_a_client_that_does_not_read_holds_the_provider_back(
    socket_server: SocketServer, serve: Serve
) -> None:
    sent = 0
    stuck = threading.Event()
    event = {"type": "response.output_audio.delta", "response_id": "r", "delta": "A" * 200_000}

    def script(socket: Any) -> None:
        nonlocal sent
        socket.socket.settimeout(1.0)
        try:
            for sent in range(400):  # 80 MB  # noqa: B007
                send_events(socket, event)
        except Exception:  # noqa: BLE001 - the socket takes no more
            stuck.set()

    socket_server.script = script
    with opened(serve(), max_queue=1, max_size=None) as socket:
        assert stuck.wait(20)
        assert sent < 200
        assert json.loads(socket.recv(timeout=10))["delta"] == event["delta"]


def test_a_server_that_stops_closes_its_connections(socket_server: SocketServer, serve: Serve) -> None:
    socket_server.script = socket_server.read_all
    served = serve()
    with opened(served) as socket:
        socket.send('{"type": "session.update"}')
        assert wait_until(lambda: socket_server.handshakes and socket_server.last.messages)
        served.stop()
        with pytest.raises(websockets.ConnectionClosed, match="1012"):
            socket.recv(timeout=10)
    assert socket_server.last.ended.wait(10)


@pytest.mark.parametrize("cut", [0, 30, 60, 75])
def test_a_handshake_may_have_its_headers_in_any_order_and_packets(
    socket_server: SocketServer, serve: Serve, cut: int
) -> None:
    socket_server.script = socket_server.read_all
    head = (
        b"GET /v1/responses HTTP/1.1\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Host: 127.0.0.1\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nUpgrade: websocket\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", serve().port), timeout=10) as connection:
        if cut:
            connection.sendall(head[:cut])
            time.sleep(0.05)
        connection.sendall(head[cut:])
        assert connection.recv(100).startswith(b"HTTP/1.1 101")


def test_a_request_with_a_body_is_no_handshake(serve: Serve) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", serve().port, timeout=10)
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", b"{}", headers)
    assert connection.getresponse().status == 400
    connection.close()


def test_a_refused_handshake_is_not_logged_as_a_failure(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(websockets.InvalidStatus), opened(serve(), "/v1/realtime?model=elsewhere/m"):
        pass
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_other_upgrades_are_ignored_as_before(serve: Serve) -> None:
    import http.client

    served = serve()
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request("GET", "/health", headers={"Upgrade": "h2c", "Connection": "Upgrade"})
    assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()
    with pytest.raises(websockets.InvalidStatus), opened(served, "/v1/chat/completions"):
        pass
