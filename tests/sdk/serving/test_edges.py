"""Edge cases: invalid HTTP, non-ASCII keys, log contents, and fields that only this server reads."""

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
    """Send bytes; return the status line, headers and body received until the server closes."""
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
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS handshake
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nhost: example.org\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: many\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_invalid_http_gets_openais_error_object(gateway: Served, data: bytes) -> None:
    status, headers, body = _sent(gateway, data)
    assert status == b"HTTP/1.1 400 Bad Request"
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(body)
    assert json.loads(body)["error"]["code"] == "invalid_http"


def test_an_error_does_not_repeat_a_very_long_path(gateway: Served) -> None:
    _, _, body = _sent(
        gateway, b"GET /" + b"a" * 30_000 + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    assert len(body) < 500


def test_an_upstreams_error_message_is_not_logged(
    openai_server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    openai_server.script(*[reply(500, {"error": {"message": "cannot parse: my secret prompt"}})] * 9)
    with Served(upstream_settings(openai_server), max_retries=0) as served:
        answer = httpx.post(f"{served.base_url}/chat/completions", json=ASK)
    assert (answer.status_code, "my secret prompt" in answer.text) == (500, True)
    assert "my secret prompt" not in caplog.text


def test_a_key_may_contain_non_ascii_characters(openai_server: OpenAIServer) -> None:
    with Served(upstream_settings(openai_server), key="clé☃") as served:
        for key, status in (("clé☃", 200), ("cle", 401), ("clé", 401)):
            headers = {"authorization": f"Bearer {key}".encode()}
            assert httpx.get(f"{served.base_url}/models", headers=headers).status_code == status


def test_an_invalid_origin_is_refused(gateway: Served) -> None:
    for origin in ("http://[", "http://[::1"):
        assert httpx.get(f"{gateway.base_url}/models", headers={"origin": origin}).status_code == 403


def test_the_log_names_where_a_request_failed_and_not_its_message(
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
def test_an_invalid_model_name_is_refused(
    gateway: Served, openai_server: OpenAIServer, path: str, model: str
) -> None:
    answer = httpx.post(gateway.base_url + path, json={**ASK, "prompt": "x", "model": model})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    assert openai_server.requests == []


@pytest.mark.parametrize("ours", [{"drop_params": True}, {"drop_params": None}, {"meta": False}, {}])
def test_the_specclient_field_is_not_forwarded(
    gateway: Served, openai_server: OpenAIServer, ours: dict[str, Any]
) -> None:
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json={**ASK, "specclient": ours})
    assert answer.status_code == 200
    assert openai_server.requests[-1].json == ASK


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("strategy", ["prediction", "prefill", "remote"])
def test_a_strategy_without_its_requirements_is_a_400(
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


def test_pass_through_refuses_a_non_boolean_stream(gateway: Served) -> None:
    body = {"model": "m-large", "prompt": "x", "stream": "false"}
    answer = httpx.post(f"{gateway.base_url}/images/generations", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream")
