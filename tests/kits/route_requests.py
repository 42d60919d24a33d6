"""Requests of the server's routes: valid ones, invalid ones made of them, and parts of strange requests."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

LOCAL, HOSTED = "local/demo", "mine/m-large"
CONTENT = f"/v1beta/models/{LOCAL}:generateContent"
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_NAMED = {"name": "a", "schema": _SCHEMA}
_FUNCTION = {"name": "f", "parameters": _SCHEMA}
_OURS = {"tags": {"a": "b"}, "session": "s", "depth": 2, "meta": True, "draft_length": 2}
_POLICY = {"minimize": "cost", "max_cost_usd": 1, "allow": ["mine/"], "deny": [], "max_latency_s": 9}
_MESSAGES: Any = [
    {"role": "system", "content": "x"},
    {"role": "user", "content": [{"type": "text", "text": "x"}]},
]
_TEXT, _CACHE = {"type": "text", "text": "x"}, {"type": "ephemeral"}
_TEXT_PART = {"text": "x"}
_TURNS: Any = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "x", "signature": "s"}, {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c", "content": [_TEXT], "is_error": True},
        {"type": "search_result", "title": "x", "source": "x", "content": [_TEXT]},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}]},
]  # fmt: skip
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
    "/v1/messages": [
        {"messages": _MESSAGES[1:], "system": [{"type": "text", "text": "x", "cache_control": _CACHE}],
         "stop_sequences": ["a"], "temperature": 1.0, "top_k": 3, "thinking": {"type": "adaptive"}},
        {"messages": _TURNS, "stream": True, "metadata": {"user_id": "u"},
         "tools": [{"name": "f", "input_schema": _SCHEMA}], "tool_choice": {"type": "auto"}},
        {"messages": _MESSAGES[1:], "output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}},
         "specclient": _OURS},
    ],
    CONTENT: [
        {"contents": [{"parts": [_TEXT_PART]}], "systemInstruction": {"parts": [_TEXT_PART]},
         "generationConfig": {
             "maxOutputTokens": 2, "candidateCount": 2, "stopSequences": ["a"], "topK": 3,
             "responseLogprobs": True, "logprobs": 1, "thinkingConfig": {"thinkingBudget": 0}}},
        {"contents": [
            {"role": "user", "parts": [_TEXT_PART]},
            {"role": "model", "parts": [_TEXT_PART, {"functionCall": {"name": "f", "args": {"a": 1}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]}],
         "tools": [{"functionDeclarations": [{"name": "f", "parameters": _SCHEMA}]}],
         "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
         "generationConfig": {"maxOutputTokens": 2}},
        {"contents": {"parts": [_TEXT_PART]},
         "generation_config": {"max_output_tokens": 2, "response_schema": {**_SCHEMA, "type": "OBJECT"}},
         "specclient": _OURS},
    ],
    "/api/chat": [
        {"messages": _MESSAGES[:1], "stream": False, "format": _SCHEMA, "keep_alive": "5m", "think": False},
        {"messages": [{"role": "user", "content": "x"},
                      {"role": "assistant", "content": "", "tool_calls": [
                          {"function": {"name": "f", "arguments": {"a": 1}}}]},
                      {"role": "tool", "content": "x", "tool_name": "f"}],
         "tools": [{"type": "function", "function": _FUNCTION}], "stream": True},
        {"messages": [{"role": "user", "content": "x"}], "specclient": _OURS, "logprobs": True,
         "options": {"num_predict": 2, "temperature": 1.0, "top_k": 3, "stop": ["a"], "repeat_penalty": 1.1}},
    ],
    "/api/generate": [
        {"prompt": "x", "system": "x", "format": "json", "options": {"num_predict": 2, "seed": 1}},
        {"prompt": "x", "raw": True, "stream": False},
        {"prompt": "", "keep_alive": 0},
    ],
    "/api/show": [{"verbose": True}],
    "/v1/embeddings": [{"input": ["x"], "dimensions": 2, "encoding_format": "float"}],
    "/v1/moderations": [{"input": [{"type": "text", "text": "x"}]}],
    "/v1/images/generations": [{"prompt": "x", "n": 1, "stream": False}],
    "/v1/batches": [{"input_file_id": "f", "endpoint": "/v1/embeddings", "completion_window": "24h"}],
}  # fmt: skip
BOUNDS = {
    "/v1/responses": "max_output_tokens",
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
    "/api/chat": "options",
    "/api/generate": "options",
}


def bound_of(path: str, most: int) -> dict[str, Any]:
    """Return the field that limits the answer of a route in ``BOUNDS``."""
    return {BOUNDS[path]: {"num_predict": most} if path.startswith("/api/") else most}


READ = ("/health", "/ready", "/metrics", "/dashboard", "/dashboard/live", "/dashboard/figures", "/v1/models",
        "/v1/models/local/demo", "/v1/files",
        "/v1/files/f/content", "/v1/responses/r", "/v1/messages", "/v1beta/models", "/api/tags",
        "/api/version", "/")  # fmt: skip

TEXTS = st.sampled_from(
    ["", "\0", "\ud800", "é\U0001f600", "-1", "auto", "local/demo", "a" * 3000]
) | st.text(max_size=6)
NUMBERS = (
    st.integers(-3, 3)
    | st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**40, 0.5, -0.0, 1e-320, 1e308])
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
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


def places_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value within a value."""
    yield path
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, inner in entries:
        yield from places_of(inner, (*path, name))


@st.composite
def wrong_bodies(draw: Any) -> tuple[str, bytes]:
    """Draw a route and a valid body of it with values replaced, removed or added at any level."""
    path = draw(st.sampled_from(sorted(GOOD)))
    body: Any = {
        "model": draw(st.sampled_from([LOCAL, HOSTED])),
        **copy.deepcopy(draw(st.sampled_from(GOOD[path]))),
    }
    body = {**bound_of(path, 2), **body} if path in BOUNDS else body
    raw = ""
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from(list(places_of(body))[1:] or [()]))
        if not way:
            continue
        holder = body
        for step in way[:-1]:
            holder = holder[step]
        kind = draw(st.sampled_from(["replace", "replace", "drop", "add", "wrap", "raw"]))
        if kind == "drop":
            del holder[way[-1]]
        elif kind == "add" and isinstance(holder, dict):
            holder[draw(TEXTS)] = draw(VALUES)
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
                         "traceparent", "tracestate", "x-specclient-meta", "origin", "expect",
                         "content-encoding", "cookie", "x-api-key", "x-goog-api-key", "anthropic-version"]),
        st.sampled_from(["application/json", "text/plain", "multipart/form-data", "", "1", "Bearer x", "gzip",
                         "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "null",
                         "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "100-continue", "http://localhost"])
        | st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=8),
    ),
    max_size=4,
)  # fmt: skip
_STEP = st.sampled_from(
    [
        "v1",
        "v1beta",
        "models",
        "files",
        "chat",
        "responses",
        "dashboard",
        "..",
        ".",
        "%2e%2e",
        "%00",
        "%ff",
        "",
        "a b",
    ]
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
