"""A WebSocket server on loopback, by the ``websockets`` library, that plays a script over real frames."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

#: What the server does with one connection.
Script = Callable[[ServerConnection], None]


@dataclass
class Handshake:
    """A handshake and the messages that followed it; ``closed`` is set once it has ``ended``."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    messages: list[str | bytes] = field(default_factory=list)
    closed: tuple[int, str] | None = None
    ended: threading.Event = field(default_factory=threading.Event)


@dataclass
class SocketServer:
    """The server; a test sets ``script`` before a client connects.

    Attributes:
        url: with the scheme ``http``.
        script: called with each connection.
        refusals: HTTP status and body of the next handshakes, which are refused.
        handshakes: the accepted handshakes, with the messages that were received through :meth:`read`.
    """

    url: str = ""
    script: Script = lambda _: None
    refusals: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    handshakes: list[Handshake] = field(default_factory=list)

    @property
    def ws_url(self) -> str:
        return f"ws{self.url.removeprefix('http')}"

    @property
    def last(self) -> Handshake:
        """The newest handshake, which the server's thread may note a moment after the client."""
        deadline = time.monotonic() + 10
        while not self.handshakes and time.monotonic() < deadline:
            time.sleep(0.001)
        return self.handshakes[-1]

    def reset(self) -> None:
        self.script, self.refusals, self.handshakes = (lambda _: None), [], []

    def read(self, socket: ServerConnection) -> dict[str, Any]:
        """Receive a message and return the event in it."""
        message = socket.recv(timeout=10)
        socket.shake.messages.append(message)  # type: ignore[attr-defined]
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def read_all(self, socket: ServerConnection) -> None:
        """Receive messages until the connection ends."""
        with suppress(ConnectionClosed, TimeoutError):
            while True:
                self.read(socket)

    def _check(self, _: ServerConnection, request: Request) -> Response | None:
        if not self.refusals:
            return None
        status, headers, body = self.refusals.pop(0)
        response = Response(status, HTTPStatus(status).phrase, Headers(), body)
        for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
            response.headers[name] = value
        return response

    def _handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        parts = urlsplit(socket.request.path)
        headers = {name.lower(): value for name, value in socket.request.headers.raw_items()}
        shake = Handshake(parts.path, dict(parse_qsl(parts.query)), headers)
        self.handshakes.append(shake)
        socket.shake = shake  # type: ignore[attr-defined]
        with suppress(ConnectionClosed):
            self.script(socket)
        socket.close()
        if socket.close_code is not None:
            shake.closed = (socket.close_code, socket.close_reason or "")
        shake.ended.set()


@contextmanager
def running_socket_server() -> Iterator[SocketServer]:
    """Return a context with a running server."""
    kit = SocketServer()
    with serve(
        kit._handle, "127.0.0.1", 0, process_request=kit._check, compression=None, max_size=None
    ) as server:
        host, port = server.socket.getsockname()[:2]
        kit.url = f"http://{host}:{port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield kit
        server.shutdown()
        thread.join()


def send_events(socket: ServerConnection, *events: dict[str, Any]) -> None:
    """Send events as text."""
    for event in events:
        socket.send(json.dumps(event))


def realtime_response(
    number: str, *, status: str = "completed", usage: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the events of a Realtime response: begun, one text delta, done."""
    common = {"object": "realtime.response", "id": number, "output": []}
    return [
        {"type": "response.created", "event_id": "e1", "response": {**common, "status": "in_progress"}},
        {
            "type": "response.output_text.delta", "event_id": "e2", "response_id": number, "item_id": "i",
            "output_index": 0, "content_index": 0, "delta": "Hello",
        },
        {"type": "response.done", "event_id": "e3", "response": {**common, "status": status, "usage": usage}},
    ]  # fmt: skip


#: The usage of a spoken answer: 500 of 1,000 prompt tokens cached, 300 of these audio.
SPOKEN_USAGE = {
    "total_tokens": 1200,
    "input_tokens": 1000,
    "output_tokens": 200,
    "input_token_details": {
        "text_tokens": 600,
        "audio_tokens": 400,
        "image_tokens": 0,
        "cached_tokens": 500,
        "cached_tokens_details": {"text_tokens": 200, "audio_tokens": 300, "image_tokens": 0},
    },
    "output_token_details": {"text_tokens": 50, "audio_tokens": 150},
}


def session_created(model: str = "gpt-realtime", **session: Any) -> dict[str, Any]:
    """Return the first event of a Realtime session."""
    return {
        "type": "session.created",
        "event_id": "e0",
        "session": {"type": "realtime", "model": model, **session},
    }


def response_events(number: str, *, model: str = "gpt-4.1", **answer: Any) -> list[dict[str, Any]]:
    """Return the events of a response of the Responses API: begun, a text delta, completed."""
    base = {
        "id": number, "object": "response", "created_at": 1.0, "model": model, "output": [],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    usage = {
        "input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100,
        "input_tokens_details": {"cached_tokens": 400}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    text = {"type": "output_text", "text": "Hello", "annotations": []}
    item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    done = {**base, "status": "completed", "output": [item], "usage": usage, **answer}
    return [
        {"type": "response.created", "sequence_number": 0, "response": {**base, "status": "in_progress"}},
        {
            "type": "response.output_text.delta", "sequence_number": 1, "item_id": "m", "output_index": 0,
            "content_index": 0, "delta": "Hello", "logprobs": [],
        },
        {"type": "response.completed", "sequence_number": 2, "response": done},
    ]  # fmt: skip
