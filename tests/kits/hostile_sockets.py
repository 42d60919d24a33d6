"""Handshakes and frames of WebSockets out of any bounds, as the bytes of one connection.

The frames end with a close frame, so that a connection that goes on ends by itself.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import strategies as st
from route_requests import HEADERS, HOSTED, LOCAL, QUERIES, RAW, VALUES

_PATHS = ("/v1/realtime?model=m", f"/v1/realtime?model={LOCAL}", "/v1/realtime", "/v1/chat/completions",
          "/health", "/v1/realtime?model=m&model=n")  # fmt: skip
_KEYS = ("", "x", "é", "a" * 9000)
_VERSIONS = ("7", "", "13, 8", "9" * 400)
_TEXT, _BINARY, _CONTINUED, _CLOSE, _PING, _PONG = 1, 2, 0, 8, 9, 10
_TYPES = (
    "response.create",
    "response.create",
    "session.update",
    "input_audio_buffer.append",
    "",
    "é",
    "x" * 5000,
)


def frame(
    kind: int, payload: bytes, *, ends: bool = True, masked: bool = True, claimed: int | None = None
) -> bytes:
    """Return a frame (RFC 6455, section 5.2).

    Args:
        kind: the opcode.
        payload: the content.
        ends: whether the message ends with it.
        masked: whether it is masked, as a client's must be.
        claimed: the length in its head; None for that of the payload.
    """
    size, mask = len(payload) if claimed is None else claimed, 0x80 if masked else 0
    first = bytes([(0x80 if ends else 0) | kind])
    if size < 126:
        head = first + bytes([mask | size])
    elif size < 2**16:
        head = first + bytes([mask | 126]) + struct.pack("!H", size)
    else:
        head = first + bytes([mask | 127]) + struct.pack("!Q", size % 2**64)
    return head + (bytes(4) if masked else b"") + payload  # a mask of zeros changes nothing


@st.composite
def _events(draw: Any) -> bytes:
    """Draw the text of an event, valid or not."""
    if draw(st.integers(0, 4)) == 0:
        return draw(RAW).encode("utf-8", "surrogatepass")
    event = {
        "type": draw(st.sampled_from(_TYPES)),
        "model": draw(st.sampled_from([LOCAL, HOSTED, "auto", "quick"])),
    }
    names = st.sampled_from(
        ["response", "session", "input", "tools", "max_output_tokens", "event_id", "model", "audio"]
    )
    event |= draw(st.dictionaries(names, VALUES, max_size=3))
    if draw(st.integers(0, 3)) == 0:
        event["input"] = "a" * draw(st.sampled_from([300, 70_000, 3_000_000]))
    return json.dumps(event).encode()


@st.composite
def _frames(draw: Any) -> tuple[bytes, str]:
    """Draw one frame, or several of one message; and a description."""
    way = draw(
        st.sampled_from(
            ["event", "event", "event", "parts", "empty", "control", "claim", "bytes", "plain", "pings"]
        )
    )
    if way == "event":
        return frame(draw(st.sampled_from([_TEXT, _TEXT, _BINARY])), draw(_events())), way
    if way == "parts":
        text, step = draw(_events()), draw(st.sampled_from([1, 100, 5000]))
        text = text[: step * 2000]
        pieces = [text[at : at + step] for at in range(0, len(text), step)] or [b""]
        kinds = [_TEXT, *[_CONTINUED] * (len(pieces) - 1)]
        ends = [False] * (len(pieces) - 1) + [draw(st.booleans())]
        return b"".join(frame(k, p, ends=e) for k, p, e in zip(kinds, pieces, ends, strict=True)), way
    if way == "empty":
        count = draw(st.sampled_from([3, 2000, 30_000]))
        return frame(_TEXT, b"", ends=False) + frame(_CONTINUED, b"", ends=False) * count, f"{way} x {count}"
    if way == "control":
        kind = draw(st.sampled_from([_CLOSE, _PING, _PONG, 3, 11]))
        return frame(kind, draw(st.binary(max_size=200)), ends=draw(st.booleans())), way
    if way == "claim":
        claimed = draw(st.sampled_from([2**15, 2**24, 2**25, 2**40, 2**63, 2**64 - 1]))
        return frame(_TEXT, b"{}", claimed=claimed), f"{way} {claimed}"
    if way == "pings":
        return frame(_PING, b"x") * draw(st.sampled_from([5, 5000])), way
    if way == "plain":
        return frame(_TEXT, b"{}", masked=False), way
    return draw(st.binary(max_size=300)), way


@st.composite
def socket_bytes(draw: Any) -> tuple[bytes, bytes, str]:
    """Draw the bytes of a handshake, those of the frames that follow the answer, and a description."""
    odd = draw(
        st.sampled_from(
            ["", "", "", "path", "query", "upgrade", "key", "version", "protocol", "many", "lines"]
        )
    )
    path = draw(st.sampled_from(_PATHS)) if odd == "path" else "/v1/responses"
    path += draw(QUERIES) if odd == "query" else ""
    lines = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
             "sec-websocket-version": "13", "host": "localhost"}  # fmt: skip
    if odd == "upgrade":
        lines["upgrade"] = draw(st.sampled_from(["h2c", "WebSocket, x", ""]))
    elif odd == "key":
        lines["sec-websocket-key"] = draw(st.sampled_from(_KEYS))
    elif odd == "version":
        lines["sec-websocket-version"] = draw(st.sampled_from(_VERSIONS))
    elif odd == "protocol":
        offered = ["realtime", "openai-insecure-api-key.x", "a" * 9000, "realtime, " * 500]
        lines["sec-websocket-protocol"] = draw(st.sampled_from(offered))
    elif odd == "many":
        lines |= {f"x-{i}": "1" for i in range(draw(st.sampled_from([50, 200, 3000])))}
    more = draw(HEADERS) if odd == "lines" else []
    head = "".join(f"{name}: {value}\r\n" for name, value in [*lines.items(), *more])
    frames = [draw(_frames()) for _ in range(draw(st.integers(1, 4)))]
    content = b"".join(piece for piece, _ in frames) + frame(_CLOSE, struct.pack("!H", 1000))
    request = f"GET {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace")
    return request, content, f"socket {path:.60} {odd} {[way for _, way in frames]}"
