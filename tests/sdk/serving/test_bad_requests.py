"""Bad requests: every response is OpenAI's error object with the right status, never a 500."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any

import pytest
from gateway_server import Served, upstream_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback_server import OpenAIServer

from specclient.config import Settings
from specclient.serving import Limits
from specclient.serving.keys.authentication import is_loopback

CHAT = "/v1/chat/completions"
GOOD = {"model": "local/demo", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}


def _send(
    served: Served, verb: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    try:
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(verb, path, content, {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def _error(answer: tuple[int, dict[str, str], bytes]) -> dict[str, Any]:
    status, headers, body = answer
    assert status >= 400
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"].startswith("req_")
    (name, error), *more = json.loads(body).items()
    assert (name, more) == ("error", [])
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"", None, "not JSON"),
        (b'{"model": ', None, "not JSON"),
        (b"\xff\xfe", None, "not JSON"),
        (b'{"model": "m", "n": NaN}', None, "not JSON"),
        (b"[" * 100_000, None, "not JSON"),
        (b"[1]", None, "an array of 1; it must be a JSON object"),
        (b"null", None, "it must be a JSON object"),
        ({}, "model", "model is missing"),
        ({**GOOD, "model": 3}, "model", "model is 3"),
        ({**GOOD, "model": ""}, "model", "model is ''"),
        ({**GOOD, "stream": "yes"}, "stream", "stream is 'yes'; it must be true or false"),
        ({**GOOD, "stream_options": [1]}, "stream_options", "an array of 1; it must be an object"),
        ({**GOOD, "messages": "x"}, "messages", "messages is 'x'"),
        ({**GOOD, "messages": []}, "messages", "an array of 0"),
        ({**GOOD, "messages": [GOOD["messages"][0], 4]}, "messages[1]", "messages[1] is 4"),  # type: ignore[index]
        ({**GOOD, "max_tokens": "many"}, "max_tokens", "'many'"),
        ({**GOOD, "temperature": -1}, "temperature", "-1"),
        ({**GOOD, "specclient": "x"}, "specclient", "it must be an object"),
        ({**GOOD, "specclient": {"policy": "cheap"}}, "specclient.policy", "model must be 'auto'"),
        ({**GOOD, "specclient": {"strategy": "magic"}}, "specclient.strategy", "strategy is 'magic'"),
        ({**GOOD, "specclient": {"depth": 0}}, "specclient.strategy", "depth is 0"),
        ({**GOOD, "specclient": {"draft": 7}}, "specclient.draft", "draft is 7"),
        ({**GOOD, "specclient": {"tags": ["a"]}}, "specclient.tags", "an object"),
        ({**GOOD, "specclient": {"tags": {"a": 1}}}, "specclient.tags", "tags['a'] must be a string"),
        ({**GOOD, "specclient": {"meta": 1}}, "specclient.meta", "meta is 1"),
        ({**GOOD, "specclient": {"nothing_like_it": 1}}, "specclient", "nothing_like_it"),
    ],
)
def test_the_wrong_field_is_named(local_server: Served, body: Any, param: str | None, words: str) -> None:
    answer = _send(local_server, "POST", CHAT, body)
    error = _error(answer)
    assert (answer[0], error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert words in error["message"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("no-such-policy", "no policy is named 'no-such-policy'"),
        (3, "it must be the name of a policy or an object"),
        ({"minimise": "cost"}, "has 'minimise'; allowed are minimize"),
        ({"minimize": "luck"}, "'luck'"),
        ({"max_latency_s": "soon"}, "it must be a number"),
        ({"allow": "local/"}, "it must be a list"),
        ({"allow": 3}, "it must be a list"),
    ],
)
def test_a_wrong_policy_is_named(local_server: Served, policy: Any, words: str) -> None:
    answer = _send(local_server, "POST", CHAT, {**GOOD, "model": "auto", "specclient": {"policy": policy}})
    error = _error(answer)
    assert (answer[0], error["param"]) == (400, "specclient.policy")
    assert words in error["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
def test_a_missing_prompt_or_input_is_named(local_server: Served, path: str) -> None:
    answer = _send(local_server, "POST", path, {"model": "local/demo"})
    assert answer[0] == 400
    assert _error(answer)["param"] in ("prompt", "input")


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("local/nothing", 404, "model_not_found"),
        ("nowhere/x", 404, "model_not_found"),
        ("local/", 404, "model_not_found"),
        ("openai/gpt-4.1", 401, "provider_key_missing"),
        ("gpt-4.1", 401, "provider_key_missing"),
    ],
)
def test_unknown_models_and_missing_provider_keys_are_refused(
    local_server: Served, model: str, status: int, code: str
) -> None:
    answer = _send(local_server, "POST", CHAT, {**GOOD, "model": model})
    assert (answer[0], _error(answer)["code"]) == (status, code)


def test_a_local_path_is_not_a_model(local_server: Served) -> None:
    from specclient_local.api.backend import BUNDLED

    answer = _send(local_server, "POST", CHAT, {**GOOD, "model": f"local/{BUNDLED / 'target'}"})
    assert (answer[0], _error(answer)["code"]) == (404, "model_not_found")


def test_chat_models_of_the_engine_refuse_embeddings(local_server: Served) -> None:
    answer = _send(local_server, "POST", "/v1/embeddings", {"model": "local/demo", "input": "x"})
    assert answer[0] == 400
    assert "chat.completions" in _error(answer)["message"]


@pytest.mark.parametrize(
    ("verb", "path", "status", "words"),
    [
        ("GET", "/", 404, "no route GET /"),
        ("POST", "/v1/nothing", 404, "no route POST /v1/nothing"),
        ("PUT", CHAT, 405, "POST"),
        ("GET", "/v1/embeddings", 405, "POST"),
        ("POST", "/v1/models", 405, "GET"),
        ("POST", "/health", 405, "GET"),
        ("POST", "/v1/models/local/demo", 404, "no route"),
        ("GET", "/v1/models/", 404, ""),
        ("GET", "/v1/organization/users", 404, "no route"),
    ],
)
def test_unknown_routes_and_methods_are_refused(
    local_server: Served, verb: str, path: str, status: int, words: str
) -> None:
    answer = _send(local_server, verb, path)
    assert answer[0] == status
    assert words in _error(answer)["message"]
    assert ("allow" in answer[1]) == (status == 405)


def test_a_body_over_the_limit_is_refused_and_the_server_stays_up() -> None:
    with Served(Settings.model_validate({"ledger": "off"}), limits=Limits(body_bytes=10_000)) as served:
        answer = _send(served, "POST", CHAT, b"x" * 100 * 2**20)
        assert answer[0] == 413
        assert "10000 bytes" in _error(answer)["message"]
        assert _send(served, "POST", CHAT, b"x" * 10_001)[0] == 413
        assert _send(served, "POST", CHAT, b"x" * 10_000)[0] == 400
        assert _send(served, "GET", "/health")[0] == 200


def _reads_until_closed(sock: socket.socket) -> bytes:
    sock.settimeout(30)
    found = b""
    while piece := sock.recv(65536):
        found += piece
    return found


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost: loc"])
def test_an_incomplete_request_head_times_out(sent: bytes) -> None:
    with Served(Settings.model_validate({"ledger": "off"}), limits=Limits(head_s=0.2)) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as sock:
            sock.sendall(sent)
            assert _reads_until_closed(sock) == b""
        with socket.create_connection(
            ("127.0.0.1", served.port)
        ) as sock:  # the second head of a connection, too
            sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            time.sleep(0.1)
            sock.sendall(b"GET /he")
            assert _reads_until_closed(sock).count(b"HTTP/1.1 200 OK") == 1


def test_an_incomplete_request_body_times_out() -> None:
    limits = Limits(head_s=5, body_s=0.2)
    with (
        Served(Settings.model_validate({"ledger": "off"}), limits=limits) as served,
        socket.create_connection(("127.0.0.1", served.port)) as sock,
    ):
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        answer = _reads_until_closed(sock)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"error"' in answer


def test_all_but_health_requires_the_key() -> None:
    with Served(Settings.model_validate({"ledger": "off"}), key="open-sesame") as served:
        assert _send(served, "GET", "/health")[0] == 200
        for path in ("/ready", "/v1/models", "/v1/nothing"):
            for given in (None, "Bearer wrong", "Bearer ", "open-sesame", "Basic open-sesame", "Bearer öpen"):
                headers = {"authorization": given.encode().decode("latin-1")} if given else {}
                answer = _send(served, "GET", path, headers=headers)
                assert (answer[0], _error(answer)["code"]) == (401, "invalid_api_key")
                assert answer[1]["www-authenticate"] == "Bearer"
                assert b"open-sesame" not in answer[2]
        headers = {"authorization": "bearer open-sesame", "host": "example.org"}
        assert _send(served, "GET", "/v1/models", headers=headers)[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:8400"}, 200),
        ({"host": "rebound.example"}, 403),
        ({"host": "127.0.0.1.example.org"}, 403),
        ({"host": "127.0.0.1:1", "origin": "http://127.0.0.1:1"}, 200),
        ({"host": "127.0.0.1:1", "origin": "http://127.0.0.1:2"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_without_a_key_foreign_hosts_and_origins_are_refused(
    local_server: Served, headers: dict[str, str], status: int
) -> None:
    assert _send(local_server, "GET", "/v1/models", headers=headers)[0] == status


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("[::1]", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_loopback_addresses_are_recognized(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_only_the_listed_models_are_served(openai_server: OpenAIServer) -> None:
    with Served(upstream_settings(openai_server), models=["mine/m-small"]) as served:
        ids = [row["id"] for row in json.loads(_send(served, "GET", "/v1/models")[2])["data"]]
        assert ids == ["mine/m-small"]
        for model in ("mine/m-large", "local/demo", "auto"):
            answer = _send(served, "POST", CHAT, {**GOOD, "model": model})
            assert (answer[0], _error(answer)["code"]) == (404, "model_not_found")
        draft = {"model": "mine/m-small", "specclient": {"draft": "local/demo"}}
        assert _send(served, "POST", CHAT, {**GOOD, **draft})[0] == 404
        assert _send(served, "GET", "/v1/files")[0] == 404
        assert _send(served, "POST", CHAT, {**GOOD, "model": "mine/m-small"})[0] == 200
    assert [r.path for r in openai_server.requests] == ["/v1/chat/completions"]


@pytest.mark.parametrize("value", [0, -1, "x", True])
def test_invalid_limits_are_errors(value: Any) -> None:
    with pytest.raises(ValueError, match="limit running is"):
        Limits(running=value)
    assert Limits(waiting=0).waiting == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["messages", "prompt", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature",
     "top_p", "n", "seed", "stop", "tools", "tool_choice", "response_format", "prediction", "logprobs",
     "top_logprobs", "echo", "prompt_logprobs", "return_token_ids", "logit_bias", "specclient", "metadata",
     "user", "input", "extra"]
)  # fmt: skip
OURS = st.dictionaries(
    st.sampled_from(["policy", "strategy", "draft", "depth", "tags", "meta", "draft_length", "x"]), JSON
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from([CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/moderations"]),
    model=st.sampled_from(["local/demo", "auto", "mine/x", "openai/x"]) | JSON,
    fields=st.dictionaries(FIELDS, JSON, max_size=4),
    ours=st.none() | OURS,
)
def test_no_body_causes_a_server_error(
    local_server: Served, path: str, model: Any, fields: dict[str, Any], ours: Any
) -> None:
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"}
    body |= {"model": model, **fields} | ({} if ours is None else {"specclient": ours})
    answer = _send(local_server, "POST", path, body)
    assert answer[0] < 500, (body, answer[2])
    if answer[0] >= 400:
        _error(answer)
