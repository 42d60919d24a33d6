"""Requests of every published route with sizes, depths, counts and encodings out of any bounds.

A request is a draw of hypothesis: a route of OpenAI's tables or of the server's own, a body of its published
parameters or a valid one, and a few changes of it. What is large is described by a small draw (a unit and a
number), so that a failure shrinks to a small description.
"""

from __future__ import annotations

import base64
import copy
import functools
import gzip
import json
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict, Union, get_args, get_origin, get_type_hints

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from google.genai import types as genai_types
from hostile_sockets import socket_bytes
from hypothesis import strategies as st
from route_requests import (
    BOUNDS,
    CONTENT,
    GOOD,
    HEADERS,
    HOSTED,
    LOCAL,
    NUMBERS,
    PATHS,
    QUERIES,
    RAW,
    TEXTS,
    VALUES,
    VERBS,
    bound_of,
    places_of,
)

from specclient.ollama_http.request import FIELDS
from specclient.resources.table.index import children_of, roots, rows_of
from specclient.resources.table.rows import Row
from specclient.types import create_params
from specclient.types.chat.params import CompletionCreateParamsBase
from specclient.types.params import NotGiven, Omit
from specclient.types.responses.params import ResponseCreateParamsBase


class _ContentBody(TypedDict, total=False):
    """The body of a request for content of Gemini's API."""

    contents: list[genai_types.ContentDict]
    generationConfig: genai_types.GenerationConfigDict
    systemInstruction: genai_types.ContentDict
    toolConfig: genai_types.ToolConfigDict
    tools: list[genai_types.ToolDict]


#: The parameter types of the routes that have them, by path.
_SCHEMAS: Mapping[str, Any] = {
    "/v1/chat/completions": CompletionCreateParamsBase,
    "/v1/completions": create_params.CompletionCreateParams,
    "/v1/responses": ResponseCreateParamsBase,
    "/v1/embeddings": create_params.EmbeddingCreateParams,
    "/v1/moderations": create_params.ModerationCreateParams,
    "/v1/messages": MessageCreateParamsNonStreaming,
    CONTENT: _ContentBody,
}
#: What the types leave out: parameters that the resource classes take by position, and those of the engine.
_PROMPTS = {
    "/v1/completions": "prompt",
    "/api/generate": "prompt",
    "/v1/embeddings": "input",
    "/v1/moderations": "input",
}
_ENGINE = ("guided_choice", "guided_regex", "guided_grammar", "guided_json", "bad_words", "stop_token_ids",
           "logit_bias", "stop", "min_tokens", "prompt_logprobs", "top_k", "min_p", "repetition_penalty",
           "prediction", "best_of", "n", "max_tokens", "draft_tree", "overflow", "method", "specclient",
           "response_format", "tools", "metadata", "stream_options")  # fmt: skip
_OLLAMA = {f"/api/{kind}": tuple(sorted(fields)) for kind, fields in FIELDS.items()}
_DEPTH = 3


@dataclass(frozen=True)
class HostileRequest:
    """A request.

    Attributes:
        content: its bytes.
        leaves: whether the client disconnects without reading.
        shown: a short description.
        then: bytes that follow the head of the answer.
    """

    content: bytes
    leaves: bool
    shown: str
    then: bytes = b""


def every_row() -> list[Row]:
    """Return the rows of all published endpoints."""

    def below(names: Iterable[str]) -> Iterator[Row]:
        for name in names:
            yield from rows_of(name).values()
            yield from below(f"{name}.{child}" for child in sorted(children_of(name)))

    return list(below(sorted(roots())))


@functools.cache
def _values_of(hint: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return a strategy of the JSON values of a type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Required:
        return _values_of(inner[0], depth)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of([_values_of(each, depth) for each in inner if each not in (Omit, NotGiven)])
    if depth > _DEPTH:
        return VALUES
    if hint in (str, int, float, bool, type(None)):
        simple = {str: TEXTS, int: st.integers(-1, 9), float: st.floats(0, 2), bool: st.booleans()}
        return simple.get(hint, st.none())
    if getattr(hint, "__total__", None) is not None:  # a TypedDict
        fields = get_type_hints(hint, include_extras=True)
        values = {name: _deferred(each, depth + 1) for name, each in fields.items()}
        needed = {name: values.pop(name) for name, each in fields.items() if get_origin(each) is Required}
        return st.fixed_dictionaries(needed, optional=values)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(TEXTS, _values_of(inner[1], depth + 1) if inner else VALUES, max_size=2)
    if isinstance(origin, type) and issubclass(origin, Iterable) and inner:
        return st.lists(_deferred(inner[0], depth + 1), max_size=2)
    return VALUES


def _deferred(hint: Any, depth: int) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: _values_of(hint, depth))


@functools.cache
def _fields_of(path: str) -> Mapping[str, Any]:
    hints = get_type_hints(_SCHEMAS[path], include_extras=True) if path in _SCHEMAS else {}
    call_options = get_type_hints(create_params.CallOptions)
    return {name: hint for name, hint in hints.items() if name not in call_options or name in ("stream",)}


@st.composite
def _published_body(draw: Any, path: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Draw a body of a route's published parameters."""
    fields, names = _fields_of(path), _OLLAMA.get(path, names)
    body: dict[str, Any] = {"model": draw(st.sampled_from([LOCAL, LOCAL, HOSTED, "auto", "quick"]))}
    known = sorted({*fields, *names} - {"model"}) or ["input"]
    for name in draw(st.lists(st.sampled_from(known), max_size=4)):
        body[name] = draw(_values_of(fields[name]) if name in fields else VALUES)
    if path in ("/v1/chat/completions", "/v1/messages", "/api/chat"):
        body.setdefault("messages", [{"role": "user", "content": "x"}])
    elif path == CONTENT:
        body.setdefault("contents", [{"parts": [{"text": "x"}]}])
        config = body.setdefault("generationConfig", {})
        if isinstance(config, dict) and "max_output_tokens" not in config:
            config["maxOutputTokens"] = 2
    elif path in _PROMPTS or path == "/v1/responses":
        body.setdefault(_PROMPTS.get(path, "input"), "x")
    return body


_UNITS = ("a", " ", "\n", "\\", '"', "é", "\U0001f600", "\0", "\ud800", "0", "<|bos|>", "([{", "a,",
          "{{ x }}", "data:", "a\u0301", "\u202e", "::= ")  # fmt: skip
_LENGTHS = st.sampled_from([300, 5_000, 70_000, 70_000, 300_000, 1_000_000, 8_000_000])
_COUNTS = st.sampled_from([100, 2_000, 2_000, 20_000, 60_000, 500_000])
_NESTINGS = (("[", "]"), ('{"a":', "}"), ('{"anyOf":[', "]}"), ('{"type":"array","items":', "}"))
_DEPTHS = st.sampled_from([20, 100, 190, 250, 5_000, 200_000])


@st.composite
def _large(draw: Any) -> tuple[Any, str]:
    """Draw a value out of any bounds, as JSON text or as a value; and its description."""
    kind = draw(st.sampled_from(["text", "text", "list", "list", "object", "nesting", "number", "raw"]))
    if kind == "text":
        unit, length = draw(st.sampled_from(_UNITS)), draw(_LENGTHS)
        return unit * (length // len(unit)), f"{unit!r} x {length}"
    if kind == "list":
        inner, count = draw(VALUES), draw(_COUNTS)
        written = json.dumps(inner)
        count = min(count, 12_000_000 // len(written))
        return _Raw("[" + ",".join([written] * count) + "]"), f"{count} of {inner!r:.60}"
    if kind == "object":
        count = draw(_COUNTS)
        return _Raw("{" + ",".join(f'"k{i}":{i}' for i in range(count)) + "}"), f"object of {count}"
    if kind == "nesting":
        depth, (mark, closing) = draw(_DEPTHS), draw(st.sampled_from(_NESTINGS))
        return _Raw(mark * depth + "1" + closing * depth), f"{mark!r} x {depth}"
    if kind == "number":
        return draw(NUMBERS), "number"
    text = draw(RAW)
    return _Raw(text), f"raw {text:.40}"


class _Raw(str):
    """JSON text."""


def _written(body: Any) -> str:
    """Return a body as JSON, with raw texts as they are."""
    raws: list[str] = []

    def plain(value: Any) -> Any:
        if isinstance(value, _Raw):
            raws.append(str(value))
            return f"\u2603{len(raws) - 1}\u2603"
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    text = json.dumps(plain(body))
    for number, raw in enumerate(raws):
        text = text.replace(json.dumps(f"\u2603{number}\u2603"), raw)
    return text


_ENCODINGS = st.sampled_from(
    ["utf-8"] * 12 + ["utf-16", "utf-8-sig", "latin-1", "gzip", "base64", "padded", "cut", "doubled", "nul"]
)


def _encoded(text: str, encoding: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    if encoding == "gzip":
        return gzip.compress(content, 1)
    if encoding == "base64":
        return base64.b64encode(content)
    if encoding == "padded":
        return b" \n\t\r" * 250_000 + content
    if encoding == "cut":
        return content[: len(content) // 2]
    if encoding == "doubled":
        return content + content
    if encoding == "nul":
        return content.replace(b":", b":\0", 1)
    return content if encoding == "utf-8" else text.encode(encoding, "replace")


@st.composite
def hostile_bodies(draw: Any) -> tuple[str, str, bytes, str]:
    """Draw the verb and path of a route, a body, and its description."""
    row = draw(st.sampled_from(_ROWS))
    verb, path = draw(st.sampled_from([("POST", each) for each in GOOD] * 3 + [(row.verb, f"/v1{row.path}")]))
    for place in row.places:
        filled = draw(st.sampled_from(["x", "..", "%2e%2e", "a" * 3000, "%00", "1"]))
        path = path.replace("{" + place + "}", filled)
    known = path in GOOD
    body: Any = draw(
        st.sampled_from(GOOD[path]).map(lambda good: {"model": LOCAL, **copy.deepcopy(good)})
        if known and draw(st.booleans())
        else _published_body(path, row.params)
    )
    if known and path in BOUNDS:
        body = {**bound_of(path, draw(st.sampled_from([1, 2, 16, 16, 100_000]))), **body}
        if draw(st.integers(0, 3)) == 0:
            body[draw(st.sampled_from(_ENGINE))] = draw(VALUES)
    shown = []
    for _ in range(draw(st.integers(0, 2))):
        ways = list(places_of(body))[1:]
        if not ways:
            break
        way = draw(st.sampled_from(ways))
        holder = body
        for step in way[:-1]:
            holder = holder[step]
        holder[way[-1]], what = draw(_large())
        shown.append(f"{'.'.join(map(str, way))} = {what}")
    encoding = draw(_ENCODINGS)
    content = _encoded(_written(body), encoding)
    changes = "; ".join(shown) or repr(content[:200])
    return verb, path, content, f"{verb} {path:.60} {encoding} {changes}"


_ROWS = every_row()


@st.composite
def hostile_requests(draw: Any) -> HostileRequest:
    """Draw a request."""
    if draw(st.integers(0, 11)) == 0:
        content, then, shown = draw(socket_bytes())
        return HostileRequest(content, draw(st.integers(0, 19)) == 0, shown, then)
    lines = draw(st.just([]) | HEADERS)
    if draw(st.integers(0, 9)) == 0:
        verb, path, body = draw(VERBS), draw(PATHS) + draw(QUERIES), draw(st.binary(max_size=30))
        shown = f"{verb} {path:.80}"
    else:
        verb, path, body, shown = draw(hostile_bodies())
        lines = [("content-type", "application/json"), *lines]
    framing = draw(st.sampled_from(["length"] * 8 + ["chunked", "short", "long"]))
    own = [("host", "localhost"), ("connection", "close")]
    if framing == "chunked":
        own.append(("transfer-encoding", "chunked"))
        step = draw(st.sampled_from([1, 7, 1000, 65_536]))
        pieces = (body[at : at + step] for at in range(0, min(len(body), step * 5_000), step))
        content = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        content = body
        own.append(("content-length", str(max(len(body) + {"short": -1, "long": 1}.get(framing, 0), 0))))
    head = "".join(f"{name}: {value}\r\n" for name, value in [*own, *lines])
    request = f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace") + content
    leaves = framing == "long" or draw(st.integers(0, 19)) == 0
    return HostileRequest(request, leaves, f"{shown} {framing} {lines!r:.100}")
