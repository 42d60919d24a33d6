"""What is no HTTP, keys in any script, and what of the extension is ours alone."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest
from gateway_server import Served, upstream_settings
from loopback_server import OpenAIServer, reply

ASK = {"model": "m-large", "messages": [{"role": "user", "content": "x"}]}


def _sent(served: Served, data: bytes) -> tuple[bytes, dict[str, str], bytes]:
    """Return the status line, the headers and the body that come back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        sock.sendall(data)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    headers = dict(line.decode().lower().split(": ", 1) for line in lines)
    return status, headers, body


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a client that speaks TLS
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nhost: example.org\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: many\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_told_so_in_openais_shape(gateway: Served, data: bytes) -> None:
    status, headers, body = _sent(gateway, data)
    assert status == b"HTTP/1.1 400 Bad Request"
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(body)
    assert json.loads(body)["error"]["code"] == "invalid_http"


def test_an_error_does_not_repeat_a_path_without_end(gateway: Served) -> None:
    _, _, body = _sent(
        gateway, b"GET /" + b"a" * 30_000 + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    assert len(body) < 500


def test_what_an_upstream_says_is_not_logged(
    openai_server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    openai_server.script(*[reply(500, {"error": {"message": "cannot parse: my secret prompt"}})] * 9)
    with Served(upstream_settings(openai_server), max_retries=0) as served:
        answer = httpx.post(f"{served.base_url}/chat/completions", json=ASK)
    assert (answer.status_code, "my secret prompt" in answer.text) == (500, True)
    assert "my secret prompt" not in caplog.text


def test_a_key_may_be_of_any_script(openai_server: OpenAIServer) -> None:
    with Served(upstream_settings(openai_server), key="clé☃") as served:
        for key, status in (("clé☃", 200), ("cle", 401), ("clé", 401)):
            headers = {"authorization": f"Bearer {key}".encode()}
            assert httpx.get(f"{served.base_url}/models", headers=headers).status_code == status


def test_an_origin_that_is_no_url_is_refused(gateway: Served) -> None:
    for origin in ("http://[", "http://[::1"):
        assert httpx.get(f"{gateway.base_url}/models", headers={"origin": origin}).status_code == 403


def test_the_log_says_where_a_request_failed_and_not_what_it_said(
    gateway: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise LookupError("my secret prompt")

    monkeypatch.setattr(gateway.service.catalogue, "check", broken)
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json=ASK)
    assert answer.status_code == 500
    (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
    number = answer.headers["x-request-id"]
    assert record.message.startswith(f"{number} failed: LookupError at sdk/serving/test_edges.py:")
    assert "< specclient/serving/app.py:" in record.message
    assert "secret" not in caplog.text


@pytest.mark.parametrize("model", ["m-large\nspecclient: all is well", "m-large\x00", "m" * 513])
@pytest.mark.parametrize("path", ["/chat/completions", "/images/generations"])
def test_a_model_that_can_be_no_name_is_refused(
    gateway: Served, openai_server: OpenAIServer, path: str, model: str
) -> None:
    answer = httpx.post(gateway.base_url + path, json={**ASK, "prompt": "x", "model": model})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    assert openai_server.requests == []


@pytest.mark.parametrize("ours", [{"drop_params": True}, {"drop_params": None}, {"meta": False}, {}])
def test_what_is_for_this_server_does_not_go_on(
    gateway: Served, openai_server: OpenAIServer, ours: dict[str, Any]
) -> None:
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json={**ASK, "specclient": ours})
    assert answer.status_code == 200
    assert openai_server.requests[-1].json == ASK


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("strategy", ["prediction", "prefill", "remote"])
def test_a_strategy_without_what_it_needs_is_the_clients_mistake(
    openai_server: OpenAIServer, strategy: str, stream: bool
) -> None:
    mine = {
        "base_url": openai_server.base_url,
        "models": ["m-large"],
        "capabilities": {"prefill": "assistant"},
    }
    with Served(upstream_settings(openai_server, providers={"mine": {**mine, "api_key": "sk-up"}})) as served:
        body = {**ASK, "stream": stream, "specclient": {"strategy": strategy}}
        answer = httpx.post(f"{served.base_url}/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["param"] in ("strategy", "messages")
    assert openai_server.requests == []


def test_a_stream_that_is_no_boolean_is_refused_where_requests_pass(gateway: Served) -> None:
    body = {"model": "m-large", "prompt": "x", "stream": "false"}
    answer = httpx.post(f"{gateway.base_url}/images/generations", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream")
