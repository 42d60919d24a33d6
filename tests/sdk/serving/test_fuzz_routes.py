"""Fuzzing of all routes: every request gets a response, never a 500, and errors have their API's format."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from gateway_server import Served, upstream_settings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from loopback_server import OpenAIServer
from route_requests import CONTENT, GOOD, HEADERS, LOCAL, PATHS, QUERIES, VERBS, bound_of, wrong_bodies

from specclient.openai_http.errors import MAX_MESSAGE


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of the bundled pair and of a loopback upstream, with a ledger for the dashboard."""
    ledger = tmp_path_factory.mktemp("ledger") / "ledger.sqlite3"
    with OpenAIServer() as upstream:
        more = {"ledger": str(ledger), "local": {"threads": 1}}
        with Served(upstream_settings(upstream, **more), max_retries=0) as it:
            yield it


def _asked(served: Served, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes on a new connection; return the response's status, headers and body."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as sock:
        sock.sendall(request)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    headers = dict(line.decode("latin-1").lower().split(": ", 1) for line in lines)
    return int(first.split(b" ")[1]), headers, body


def _checked(answer: tuple[int, dict[str, str], bytes], sent: Any) -> int:
    """Check the properties of every response; return its status."""
    status, headers, body = answer
    assert status < 500 or status in (502, 503), (sent, body)  # the upstream may fail on the request
    if status >= 400:
        assert headers["content-type"] == "application/json", (sent, headers)
        assert int(headers["content-length"]) == len(body)
        fields = json.loads(body)
        error = fields.pop("error")
        if isinstance(error, str):  # Ollama's form
            assert fields == {}
            error = {"message": error}
        elif "request-id" in headers:  # Anthropic's form
            assert fields == {"type": "error", "request_id": headers["request-id"]}
            assert set(error) == {"type", "message"}, sent
        else:
            google = {"code", "message", "status"}
            assert fields == {}
            assert set(error) in ({"message", "type", "param", "code"}, google), sent
        assert isinstance(error["message"], str)
        assert len(error["message"]) <= MAX_MESSAGE + 1, "an error repeats what was sent"
    return status


def _request(verb: str, path: str, body: bytes, lines: list[tuple[str, str]]) -> bytes:
    own = [("host", "localhost"), ("connection", "close"), ("content-length", str(len(body)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in [*own, *lines])
    return f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


def _body_holds(served: Served, drawn: tuple[str, bytes], lines: list[tuple[str, str]]) -> None:
    path, body = drawn
    _checked(
        _asked(served, _request("POST", path, body, [("content-type", "application/json"), *lines])), drawn
    )


def _path_holds(served: Served, verb: str, target: str, lines: list[tuple[str, str]], body: bytes) -> None:
    answer = _asked(served, _request(verb, target, body, lines))
    if verb == "HEAD":
        assert answer[0] < 500, target
    else:
        _checked(answer, (verb, target, lines, body))


@settings(max_examples=120, deadline=None, phases=PHASES, suppress_health_check=CHECKS)
@given(drawn=wrong_bodies(), lines=st.just([]) | HEADERS)
def test_mutated_bodies_get_well_formed_responses(
    served: Served, drawn: tuple[str, bytes], lines: list[tuple[str, str]]
) -> None:
    _body_holds(served, drawn, lines)


@settings(max_examples=120, deadline=None, phases=PHASES, suppress_health_check=CHECKS)
@given(verb=VERBS, path=PATHS, query=QUERIES, lines=HEADERS, body=st.just(b"") | st.binary(max_size=30))
def test_random_paths_and_headers_get_well_formed_responses(
    served: Served, verb: str, path: str, query: str, lines: list[tuple[str, str]], body: bytes
) -> None:
    _path_holds(served, verb, path + query, lines, body)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, deadline=None, phases=PHASES, suppress_health_check=CHECKS)
@given(drawn=wrong_bodies(), lines=st.just([]) | HEADERS)
def test_many_mutated_bodies_get_well_formed_responses(
    served: Served, drawn: tuple[str, bytes], lines: list[tuple[str, str]]
) -> None:
    _body_holds(served, drawn, lines)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, deadline=None, phases=PHASES, suppress_health_check=CHECKS)
@given(verb=VERBS, path=PATHS, query=QUERIES, lines=HEADERS, body=st.just(b"") | st.binary(max_size=30))
def test_many_random_paths_and_headers_get_well_formed_responses(
    served: Served, verb: str, path: str, query: str, lines: list[tuple[str, str]], body: bytes
) -> None:
    _path_holds(served, verb, path + query, lines, body)


def test_the_valid_requests_succeed(served: Served) -> None:
    """Mutations of invalid requests would test little."""
    paths = ("/v1/chat/completions", "/v1/completions", "/v1/messages", CONTENT, "/api/chat", "/api/generate")
    for path in paths:
        for good in GOOD[path]:
            if "tools" in good:  # the bundled pair's template supports no tools
                continue
            bound = {} if path == CONTENT else bound_of(path, 2)
            body = json.dumps({"model": LOCAL, **bound, **good}).encode()
            assert _checked(_asked(served, _request("POST", path, body, [])), body) == 200, good
