"""Fuzzing of all routes: every request gets a response, never a 500, and errors have OpenAI's format."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from gateway_server import Served, upstream_settings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from loopback_server import OpenAIServer

from specclient.serving.errors import MAX_MESSAGE

LOCAL, HOSTED = "local/demo", "mine/m-large"
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_NAMED = {"name": "a", "schema": _SCHEMA}
_FUNCTION = {"name": "f", "parameters": _SCHEMA}
_OURS = {"tags": {"a": "b"}, "session": "s", "depth": 2, "meta": True, "draft_length": 2}
_POLICY = {"minimize": "cost", "max_cost_usd": 1, "allow": ["mine/"], "deny": [], "max_latency_s": 9}
_MESSAGES: Any = [
    {"role": "system", "content": "x"},
    {"role": "user", "content": [{"type": "text", "text": "x"}]},
]
#: Valid requests of each kind; invalid ones are mutations of them.
GOOD: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"messages": _MESSAGES, "n": 2, "stop": ["a"], "seed": 1, "logprobs": True, "top_logprobs": 2},
        {"messages": _MESSAGES, "stream": True, "stream_options": {"include_usage": True}},
        {"messages": _MESSAGES, "response_format": {"type": "json_schema", "json_schema": _NAMED}},
        {"messages": _MESSAGES, "tools": [{"type": "function", "function": _FUNCTION}], "temperature": 1.0},
        {"messages": _MESSAGES, "prediction": {"type": "content", "content": "x"}, "logit_bias": {"5": 1}},
        {"messages": _MESSAGES, "specclient": _OURS, "metadata": {"a": "b"}, "user": "u"},
        {"messages": _MESSAGES, "specclient": {"policy": _POLICY}, "model": "auto"},
    ],
    "/v1/completions": [
        {"prompt": ["x", [5, 6]], "echo": True, "logprobs": 2, "n": 1, "presence_penalty": 0.5},
        {"prompt": "x", "stream": True, "prompt_logprobs": 1, "return_token_ids": True},
    ],
    "/v1/responses": [
        {"input": "x", "instructions": "x", "text": {"format": {"type": "json_schema", **_NAMED}}},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]},
                   {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                   {"type": "function_call_output", "call_id": "c", "output": "x"}],
         "include": ["message.output_text.logprobs"], "top_logprobs": 1, "stream": True},
        {"input": "x", "tools": [{"type": "function", **_FUNCTION}],
         "tool_choice": {"type": "function", "name": "f"}},
    ],
    "/v1/embeddings": [{"input": ["x"], "dimensions": 2, "encoding_format": "float"}],
    "/v1/moderations": [{"input": [{"type": "text", "text": "x"}]}],
    "/v1/images/generations": [{"prompt": "x", "n": 1, "stream": False}],
    "/v1/batches": [{"input_file_id": "f", "endpoint": "/v1/embeddings", "completion_window": "24h"}],
}  # fmt: skip
_BOUNDS = {
    "/v1/responses": "max_output_tokens",
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
}
READ = ("/health", "/ready", "/metrics", "/dashboard", "/dashboard/live", "/dashboard/figures", "/v1/models",
        "/v1/models/local/demo", "/v1/files", "/v1/files/f/content", "/v1/responses/r", "/")  # fmt: skip

_TEXTS = st.sampled_from(
    ["", "\0", "\ud800", "é\U0001f600", "-1", "auto", "local/demo", "a" * 3000]
) | st.text(max_size=6)
_NUMBERS = (
    st.integers(-3, 3)
    | st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**40, 0.5, -0.0, 1e-320, 1e308])
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=5,
)
#: JSON, valid or not, that json.dumps does not write.
RAW = st.sampled_from(
    [
        "1e999",
        "-1e999",
        "9" * 5000,
        "NaN",
        "[" * 500 + "]" * 500,
        "0x1",
        "01",
        "'x'",
        "",
        "[1,]",
        '{"a":' * 300 + "1" + "}" * 300,
        '"\\u0000"',
        '"\\ud800x"',
        '"\\udc00\\ud800"',
    ]
)
_MARK = "\u2603raw\u2603"


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
        (name, error), *more = json.loads(body).items()
        assert (name, more) == ("error", [])
        assert set(error) == {"message", "type", "param", "code"}, sent
        assert isinstance(error["message"], str)
        assert len(error["message"]) <= MAX_MESSAGE + 1, "an error repeats what was sent"
    return status


def _request(verb: str, path: str, body: bytes, lines: list[tuple[str, str]]) -> bytes:
    own = [("host", "localhost"), ("connection", "close"), ("content-length", str(len(body)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in [*own, *lines])
    return f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value within a value."""
    yield path
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, inner in entries:
        yield from _places(inner, (*path, name))


@st.composite
def wrong_bodies(draw: Any) -> tuple[str, bytes]:
    """Draw a route and a valid body of it with values replaced, removed or added at any level."""
    path = draw(st.sampled_from(sorted(GOOD)))
    body: Any = {
        "model": draw(st.sampled_from([LOCAL, HOSTED])),
        **copy.deepcopy(draw(st.sampled_from(GOOD[path]))),
    }
    body = {_BOUNDS[path]: 2, **body} if path in _BOUNDS else body
    raw = ""
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from(list(_places(body))[1:] or [()]))
        if not way:
            continue
        holder = body
        for step in way[:-1]:
            holder = holder[step]
        kind = draw(st.sampled_from(["replace", "replace", "drop", "add", "wrap", "raw"]))
        if kind == "drop":
            del holder[way[-1]]
        elif kind == "add" and isinstance(holder, dict):
            holder[draw(_TEXTS)] = draw(VALUES)
        elif kind == "wrap":
            holder[way[-1]] = draw(st.sampled_from([[holder[way[-1]]], {"a": holder[way[-1]]}]))
        elif kind == "raw":
            raw = draw(RAW)
            holder[way[-1]] = _MARK
        else:
            holder[way[-1]] = draw(VALUES)
    return path, json.dumps(body).replace(json.dumps(_MARK), raw).encode()


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["content-type", "authorization", "accept", "openai-beta", "idempotency-key", "host",
                         "traceparent", "tracestate", "x-specclient-meta", "origin", "expect", "cookie",
                         "content-encoding"]),
        st.sampled_from(["application/json", "text/plain", "multipart/form-data", "", "1", "Bearer x", "gzip",
                         "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "null",
                         "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "100-continue", "http://localhost"])
        | st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=8),
    ),
    max_size=4,
)  # fmt: skip
_STEP = st.sampled_from(
    ["v1", "models", "files", "chat", "responses", "dashboard", "..", ".", "%2e%2e", "%00", "%ff", "", "a b"]
)
PATHS = st.sampled_from(READ) | st.lists(_STEP, max_size=5).map(
    lambda steps: "/" + "/".join(steps).replace(" ", "%20")
)
QUERIES = st.just("") | st.sampled_from(
    [
        "?span=24h",
        "?span=7d",
        "?span=",
        "?span=%00",
        "?span=1&span=2",
        "?limit=x",
        "?%ff=%fe",
        "?" + "a" * 2000,
    ]
)
VERBS = st.sampled_from(["GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW"])

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
    for path in ("/v1/chat/completions", "/v1/completions"):
        for good in GOOD[path]:
            if "tools" in good:  # the bundled pair's template supports no tools
                continue
            body = json.dumps({"model": LOCAL, "max_tokens": 2, **good}).encode()
            assert _checked(_asked(served, _request("POST", path, body, [])), body) == 200, good
