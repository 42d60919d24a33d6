"""Scripts of a hostile server: the bytes of a response, how they are sent, and how the connection ends."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

End = Literal["keep", "close", "reset", "hang", "endless"]


@dataclass(frozen=True, repr=False)
class Script:
    """One response.

    Attributes:
        pieces: the bytes, in the writes in which they are sent.
        gap_s: seconds between two writes.
        end: what follows: the connection stays open for another request (``keep``), is closed or reset,
            stays silent (``hang``), or repeats ``tail`` for ever.
        tail: see ``end``.
        follows: the script of the next request, to which a redirect may lead.
    """

    pieces: tuple[bytes, ...]
    gap_s: float = 0.0
    end: End = "close"
    tail: bytes = b""
    follows: Script | None = None

    def __repr__(self) -> str:
        pieces = [piece if len(piece) < 1000 else (piece[:900], len(piece)) for piece in self.pieces]
        return f"Script({pieces!r}, {self.gap_s}, {self.end!r}, {self.tail[:20]!r}, {self.follows!r})"


TEXT = "The quick brown fox."
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
_FRAME = {"id": "c-1", "created": 1, "model": "m"}
CHAT = {
    **_FRAME,
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": TEXT},
            "logprobs": None,
        }
    ],
    "usage": USAGE,
}
CHUNKS: list[dict[str, Any]] = [
    *(
        {
            **_FRAME,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}],
        }
        for word in TEXT.split()
    ),
    {**_FRAME, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {**_FRAME, "choices": [], "usage": USAGE},
]
RESPONSE = {
    "id": "resp-1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": [
        {
            "id": "msg-1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8},
}
RESPONSE_EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": {**RESPONSE, "output": [], "status": "in_progress"}},
    {
        "type": "response.output_text.delta",
        "item_id": "msg-1",
        "output_index": 0,
        "content_index": 0,
        "delta": TEXT,
    },
    {"type": "response.completed", "response": RESPONSE},
]
EMBEDDING = {
    "object": "list",
    "model": "m",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.1, 0.2]}],
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}
MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x"}]}
ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": TEXT}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 5},
}
ANTHROPIC_EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**ANTHROPIC, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
GEMINI = {
    "candidates": [
        {"content": {"role": "model", "parts": [{"text": TEXT}]}, "finishReason": "STOP", "index": 0}
    ],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8},
    "modelVersion": "m",
    "responseId": "r-1",
}
ERROR = {"error": {"message": "no", "type": "invalid_request_error", "code": "bad", "param": None}}

_WHOLE = [CHAT, RESPONSE, EMBEDDING, MODELS, ANTHROPIC, GEMINI, ERROR]
_STREAMED = [CHUNKS, RESPONSE_EVENTS, ANTHROPIC_EVENTS, [GEMINI, GEMINI], [*CHUNKS[:2], ERROR]]

#: JSON texts that no Python value has: duplicate and odd keys, numbers out of range, lone surrogates, depth.
_ODD_JSON = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b"0",
    b'"x"',
    b"tru",
    b"{",
    b'{"a":',
    b"[" * 400,
    b"[" * 100_000,
    b"[" * 600 + b"]" * 600,
    b"[" * 20_000 + b"]" * 20_000,
    b'{"a":' * 600 + b"1" + b"}" * 600,
    b'{"error":' * 500 + b"{}" + b"}" * 500,
    b'{"error": {"message": ' + b"[" * 700 + b"]" * 700 + b"}}",
    b"1e999",
    b"-1e999",
    b"NaN",
    b"Infinity",
    b"9" * 5000,
    b'{"usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}",
    b'{"error": {"code": ' + b"9" * 5000 + b"}}",
    b'{"error": {"code": "\xc2\xb2"}}',
    b'{"error": "\\ud800"}',
    b'{"error": {"message": "\\ud800", "code": "\\ud800"}}',
    b'"\\ud800"',
    b"\xff\xfe{\x00}\x00",
    b"\x00" * 100,
    b'{"choices": null}',
    b'{"choices": {}}',
    b'{"choices": [null]}',
    b'{"choices": [[]]}',
    b'{"choices": "x"}',
    b'{"choices": [{"index": 1e30}]}',
    b'{"choices": [{"message": {"content": "\\ud800"}}]}',
    b'{"choices": [{"message": {"content": [1]}}]}',
    b'{"choices": [{"delta": {"tool_calls": [{"index": -1}]}}]}',
    b'{"object": "error", "message": "m"}',
    b"<html>no</html>",
    b"data: {}\n\n",
    b'{"data": null}',
    b'{"data": [1]}',
    b'[{"error": {"message": "m", "status": "INTERNAL", "details": [{"retryDelay": "\xef\xbc\x91s"}]}}]',
]

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["", "stop", "tool_use", "\ud800", "content_filter", "１", "é" * 100, "text", "x" * 5000]
    ),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["index", "type", "text", "content", "usage", "error", "delta", "id", "message", "\ud800"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [path, *(each for key, inner in value.items() for each in _paths(inner, (*path, key)))]
    if isinstance(value, list):
        return [path, *(each for i, inner in enumerate(value) for each in _paths(inner, (*path, i)))]
    return [path]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], new)
    return copy


@st.composite
def mutated(draw: st.DrawFn, bodies: list[Any]) -> Any:
    """Draw one of the bodies with up to two values replaced by arbitrary ones."""
    body = draw(st.sampled_from(bodies))
    for _ in range(draw(st.integers(0, 2))):
        body = _replaced(body, draw(st.sampled_from(_paths(body))), draw(_VALUES))
    return body


def encoded(value: Any) -> bytes:
    """Return JSON text. NaN and infinity are written as Python writes them, which is not JSON."""
    return json.dumps(value).encode()


@st.composite
def sse(draw: st.DrawFn) -> bytes:
    """Draw a stream of events: valid ones, mutated ones, odd lines, and any line ends."""
    events = draw(mutated(_STREAMED))
    texts = [encoded(event) for event in events] if isinstance(events, list) else [encoded(events)]
    lines: list[bytes] = []
    for text in texts:
        if draw(st.integers(0, 9)) == 0:
            text = draw(st.sampled_from(_ODD_JSON))
        kind = draw(
            st.sampled_from([b"", b"", b"event: ping\n", b"event: error\n", b"event: \xff\n", b"id: 1\n"])
        )
        field = draw(st.sampled_from([b"data: ", b"data: ", b"data: ", b"data:", b"data", b": ", b"datax: "]))
        lines.append(kind + field + text + draw(st.sampled_from([b"\n\n", b"\n\n", b"\n\n", b"\n", b""])))
    if draw(st.booleans()):
        lines.append(draw(st.sampled_from([b"data: [DONE]\n\n", b"data: [DONE]", b"data:  [DONE] \n\n"])))
    text = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xef\xbb", b"retry: 99999999999999999\n"]))
    text += b"".join(lines)
    return text.replace(b"\n", draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])))


_BODIES = st.one_of(
    mutated(_WHOLE).map(encoded),
    sse(),
    st.sampled_from(_ODD_JSON),
    st.binary(max_size=64),
    st.just(b" " * 3_000_000),
)

_STATUS_LINES = st.sampled_from(
    [
        *([b"HTTP/1.1 200 OK"] * 80),
        *(b"HTTP/1.1 %d X" % code for code in (201, 204, 206, 300, 301, 302, 303, 304, 307, 308)),
        *(
            b"HTTP/1.1 %d X" % code
            for code in (400, 401, 403, 404, 408, 409, 413, 418, 422, 429, 500, 503, 529, 599)
        ),
        *(b"HTTP/1.1 %d X" % code for code in (0, 99, 100, 101, 103, 600, 999)),
        b"HTTP/1.0 200 OK",
        b"HTTP/2 200",
        b"HTTP/9.9 200 OK",
        b"HTTP/1.1 200",
        b"HTTP/1.1",
        b"HTTP/1.1 20x OK",
        b"HTTP/1.1 200 \xff\xe9",
        b"HTTP/1.1 99999999999 X",
        b"ICY 200 OK",
        b"",
        b"\x00\x01",
        b"HTTP/1.1 -1 X",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 200 + b"HTTP/1.1 200 OK",
    ]
)
_TYPES = [
    b"application/json",
    b"application/json",
    b"text/event-stream",
    b"text/event-stream; charset=utf-8",
    b"text/html",
    b"text/plain; charset=base64",
    b"text/plain; charset=\xff",
    b"application/json; charset=utf-16",
    b"",
    b"\xc3\xa9",
    b"text/event-stream; charset=idna",
]
_NUMBERS = [
    b"0",
    b"-1",
    b"1",
    b"0.001",
    b"nan",
    b"inf",
    b"1e999",
    b"\xef\xbc\x91",
    b"9" * 400,
    b"x",
    b"",
    b"6m0s",
    b"\xff",
]
_HEADERS = st.one_of(
    st.tuples(
        st.sampled_from(
            [
                b"retry-after",
                b"retry-after-ms",
                b"x-ratelimit-remaining-requests",
                b"x-ratelimit-limit-tokens",
                b"x-ratelimit-reset-requests",
                b"x-ratelimit-reset-tokens",
                b"anthropic-ratelimit-tokens-reset",
                b"anthropic-ratelimit-requests-remaining",
                b"fireworks-cached-prompt-tokens",
                b"date",
                b"age",
                b"x-should-retry",
                b"openai-processing-ms",
            ]
        ),
        st.sampled_from(
            [
                *_NUMBERS,
                b"2999-01-01T00:00:00Z",
                b"0001-01-01T00:00:00+23:59",
                b"Fri, 31 Dec 9999 23:59:59 GMT",
            ]
        ),
    ),
    st.tuples(
        st.sampled_from(
            [
                b"x-request-id",
                b"request-id",
                b"set-cookie",
                b"server",
                b"link",
                b"x",
                b"\xc3\xa9",
                b"a b",
                b"",
            ]
        ),
        st.one_of(
            st.binary(max_size=12).map(lambda v: v.replace(b"\r", b"").replace(b"\n", b"")),
            st.sampled_from([b"x" * 9000, b"x" * 200_000, b"\xff\xfe", b"\xef\xbc\x91"]),
        ),
    ),
)
_LOCATIONS = [
    b"/v1/other",
    b"//",
    b"http://",
    b"http://[::1",
    b"http://\xff",
    b"ftp://x/",
    b"http://127.0.0.1:1/",
    b"/\xc3\xa9?\xff",
    b"http://u:p@127.0.0.1:99999/",
    b"",
    b"?x",
    b"#x",
    b"javascript:1",
    b"http://127.0.0.1:\xef\xbc\x91/",
    b"data:,x",
    b"http://" + b"a" * 300 + b"/",
    b"/" + b"x" * 5000,
]


def _packed(coding: str, body: bytes) -> bytes:
    if coding == "gzip":
        return gzip.compress(body, 1)
    return zlib.compress(body) if coding == "deflate" else body


def _chunked(body: bytes, size: int) -> bytes:
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a response."""
    body = draw(_BODIES)
    headers: list[tuple[bytes, bytes]] = [(b"content-type", draw(st.sampled_from(_TYPES)))]
    coding = draw(
        st.sampled_from([""] * 12 + ["gzip", "deflate", "gzip, gzip", "br", "zstd", "x", "identity"])
    )
    if coding:
        headers.append((b"content-encoding", coding.encode()))
        if draw(st.integers(0, 3)):
            body = _packed(coding, body)
    framing = draw(
        st.sampled_from(["length"] * 5 + ["chunked"] * 5 + ["close", "close", "odd length", "odd chunks"])
    )
    if framing == "length":
        headers.append((b"content-length", b"%d" % len(body)))
    elif framing == "chunked":
        headers.append((b"transfer-encoding", b"chunked"))
        body = _chunked(body, draw(st.sampled_from([7, 100, 65536])) if len(body) < 50_000 else 65536)
    elif framing == "odd length":
        odd = [
            b"-1",
            b"x",
            b"9" * 30,
            b"1, 2",
            b"+5",
            b"\xef\xbc\x91",
            b"%d" % (len(body) + 5),
            b"%d" % (len(body) // 2),
        ]
        headers.append((b"content-length", draw(st.sampled_from(odd))))
        if draw(st.booleans()):
            headers.append((b"content-length", b"3"))
    elif framing == "odd chunks":
        headers.append(
            (
                b"transfer-encoding",
                draw(st.sampled_from([b"chunked", b"gzip, chunked", b"x", b"chunked, chunked"])),
            )
        )
        odd = [
            b"zz\r\n",
            b"-1\r\n",
            b"ffffffffffffffffff\r\n",
            b"5\r\nab",
            b"\r\n",
            b"1;" + b"x" * 20_000 + b"\r\na\r\n",
            b"",
        ]
        body = draw(st.sampled_from(odd)) + body
    headers += draw(st.lists(_HEADERS, max_size=3)) if draw(st.integers(0, 2)) == 0 else []
    status = draw(_STATUS_LINES)
    if b" 30" in status or draw(st.integers(0, 19)) == 0:
        headers.append((b"location", draw(st.sampled_from(_LOCATIONS))))
    if draw(st.integers(0, 19)) == 0:
        headers += [(b"x-%d" % number, b"y" * 50) for number in range(draw(st.sampled_from([150, 3000])))]
    head = b"\r\n".join([status, *(name + b": " + value for name, value in headers)])
    return head + b"\r\n\r\n" + body


@st.composite
def scripts(draw: st.DrawFn, *, slow: bool = True) -> Script:
    """Draw a script; without ``slow`` one whose server sends what it has at once and hangs up."""
    response = draw(responses())
    ends: list[End] = ["close", "close", "close", "keep", "keep", "keep", "reset"]
    end = draw(st.sampled_from([*ends, *(["hang", "endless"] if slow else [])]))
    if draw(st.integers(0, 4)) == 0:  # broken off at any byte
        response = response[: draw(st.integers(0, len(response)))]
    gap_s, pieces = 0.0, (response,)
    if draw(st.booleans()) and 1 < len(response) < 100_000:
        cuts = sorted(draw(st.lists(st.integers(1, len(response) - 1), max_size=6, unique=True)))
        pieces = tuple(response[a:b] for a, b in zip([0, *cuts], [*cuts, len(response)], strict=True))
        gap_s = draw(st.sampled_from([0.0, 0.0, 0.001, 0.02] if slow else [0.0]))
    tail = draw(
        st.sampled_from(
            [
                b"x" * 65536,
                b"\n" * 65536,
                b": ping\n\n" * 8192,
                b"data: x\n" * 8192,
                b"10000\r\n" + b"x" * 65536 + b"\r\n",
            ]
        )
    )
    follows = draw(scripts(slow=False)) if b" 30" in response[:14] else None
    return Script(pieces, gap_s, end, tail, follows)
