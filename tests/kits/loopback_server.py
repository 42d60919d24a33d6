"""A real HTTP server on loopback: scripted behaviours, otherwise an OpenAI-compatible server.

    with OpenAIServer() as server:
        server.script(reply(429, {"error": {...}}))  # for the first request; the following succeed
        ...  # send requests to server.base_url
        assert server.requests[0].json["model"] == "m"

The server runs in a separate thread, so synchronous and asynchronous clients and commands can all use it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from loop_thread import LoopThread

MODELS = ("m-large", "m-small")
TEXT = "The quick brown fox jumps over the lazy dog."
_REASONS = {
    200: "OK",
    301: "Moved Permanently",
    400: "Bad Request",
    404: "Not Found",
    429: "Too Many Requests",
}


@dataclass(frozen=True)
class Received:
    """One request as received. ``connection`` counts connections from 1; header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The server's end of one connection, to which behaviours write.

    Attributes:
        keep: whether the connection stays open for further requests.
    """

    def __init__(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self._writer = writer
        self._reader = reader
        self.keep = True

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        """Send one chunk of a chunked body; an empty chunk ends the body."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}",
            *(f"{k}: {v}" for k, v in headers.items()),
        ]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    def reset(self) -> None:
        """Break the connection with a TCP reset."""
        self.keep = False
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def client_left(self) -> None:
        """Wait until the client closes the connection."""
        self.keep = False
        while True:
            try:
                if not await self._reader.read(65536):
                    return
            except ConnectionError:
                return


Behaviour = Callable[[Received, Wire], Awaitable[None]]


def reply(status: int = 200, body: Any = b"", headers: Mapping[str, str] | None = None) -> Behaviour:
    """Send a whole response; a ``body`` of bytes is sent unchanged, any other as JSON."""
    raw = isinstance(body, bytes)
    content = body if raw else json.dumps(body).encode()
    kind = {} if raw else {"content-type": "application/json"}

    async def run(_: Received, wire: Wire) -> None:
        await wire.head(status, {**kind, "content-length": str(len(content)), **(headers or {})})
        await wire.send(content)

    return run


def events(*pieces: bytes, headers: Mapping[str, str] | None = None, gap: float = 0.0) -> Behaviour:
    """Send the given pieces of an event stream, ``gap`` seconds apart, and end the stream properly."""

    async def run(_: Received, wire: Wire) -> None:
        await wire.head(
            200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **(headers or {})}
        )
        for piece in pieces:
            await wire.chunk(piece)
            await asyncio.sleep(gap)
        await wire.chunk(b"")

    return run


def broken_stream(*pieces: bytes, how: str = "reset") -> Behaviour:
    """Begin an event stream, then ``reset`` the connection, ``close`` it, or send nothing more (``hang``)."""

    async def run(_: Received, wire: Wire) -> None:
        await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for piece in pieces:
            await wire.chunk(piece)
        await asyncio.sleep(0.05)  # a reset may discard bytes that are still in the client's socket buffer
        if how == "reset":
            wire.reset()
        elif how == "hang":
            await wire.client_left()
        wire.keep = False

    return run


def raw(*pieces: bytes) -> Behaviour:
    """Send these bytes unchanged, and close the connection."""

    async def run(_: Received, wire: Wire) -> None:
        wire.keep = False
        for piece in pieces:
            await wire.send(piece)
            await asyncio.sleep(0)

    return run


async def reset(_: Received, wire: Wire) -> None:
    """Reset the connection without a response."""
    wire.reset()


async def hang(_: Received, wire: Wire) -> None:
    """Send no response, and wait until the client closes the connection."""
    await wire.client_left()


async def behave(received: Received, wire: Wire) -> None:
    """Respond as an OpenAI-compatible server: chat, completions and models; whole or streamed; with usage."""
    if received.method == "GET" and received.path.endswith("/models"):
        rows = [{"id": name, "object": "model", "created": 1, "owned_by": "tests"} for name in MODELS]
        return await reply(200, {"object": "list", "data": rows})(received, wire)
    chat = received.path.endswith("/chat/completions")
    if received.method != "POST" or not received.path.endswith("/completions"):
        error = {
            "message": f"no route {received.path}",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
        return await reply(404, {"error": error})(received, wire)
    payload = received.json
    if payload.get("stream"):
        return await events(*_stream(payload, chat), headers={"x-request-id": "req-stream"})(received, wire)
    count = payload.get("n") or 1
    if not isinstance(count, int) or not 1 <= count <= 128:
        error = {"message": "n must be 1 to 128", "type": "invalid_request_error", "param": "n", "code": None}
        return await reply(400, {"error": error})(received, wire)
    body = _frame(payload, chat, chunk=False)
    body["choices"] = [_whole(index, chat) for index in range(count)]
    body["usage"] = _usage(payload)
    return await reply(200, body, {"x-request-id": "req-whole"})(received, wire)


def _frame(payload: Any, chat: bool, *, chunk: bool) -> dict[str, Any]:
    kind = ("chat.completion.chunk" if chunk else "chat.completion") if chat else "text_completion"
    return {"id": "cmpl-1", "object": kind, "created": 1, "model": payload["model"]}


def _whole(index: int, chat: bool) -> dict[str, Any]:
    answer = {"message": {"role": "assistant", "content": TEXT}} if chat else {"text": TEXT}
    return {"index": index, "finish_reason": "stop", "logprobs": None, **answer}


def _stream(payload: Any, chat: bool) -> list[bytes]:
    frame = _frame(payload, chat, chunk=True)
    words = TEXT.split(" ")
    texts = [words[0], *(f" {word}" for word in words[1:])]
    choices = [{"delta": {"content": text}} if chat else {"text": text} for text in texts]
    choices.append({"delta": {}, "finish_reason": "stop"} if chat else {"text": "", "finish_reason": "stop"})
    frames = [{**frame, "choices": [{"index": 0, "finish_reason": None, **choice}]} for choice in choices]
    if (payload.get("stream_options") or {}).get("include_usage"):
        frames.append({**frame, "choices": [], "usage": _usage(payload)})
    return [b"data: " + json.dumps(f).encode() + b"\n\n" for f in frames] + [b"data: [DONE]\n\n"]


def _usage(payload: Any) -> dict[str, int]:
    prompt = len(json.dumps(payload.get("messages") or payload.get("prompt")).split())
    completion = len(TEXT.split(" "))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class Forgetful(list[Any]):
    """Keeps nothing, as :attr:`OpenAIServer.requests` of a test that sends too many to keep."""

    def append(self, _: Any) -> None:
        pass


class OpenAIServer(LoopThread):
    """The server as a context manager.

    Args:
        usual: the behaviour for requests without a scripted one.

    Attributes:
        requests: all requests received, in order.
        connections: the number of connections made.
        left: the number of connections that are closed or broken.
        port: the server's port.
    """

    def __init__(self, usual: Behaviour = behave) -> None:
        super().__init__()
        self._usual = usual
        self.requests: list[Received] = []
        self.connections = 0
        self.left = 0
        self._script: deque[Behaviour] = deque()
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def script(self, *behaviours: Behaviour) -> None:
        """Add behaviours for the next requests, one for each; later requests get the usual behaviour."""
        self._script.extend(behaviours)

    def wait_left(self, count: int, timeout: float = 10.0) -> bool:
        """Return whether at least ``count`` connections are closed within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.left >= count, timeout)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        wire = Wire(writer, reader)
        try:
            while wire.keep:
                received = await _receive(reader, number)
                self.requests.append(received)
                behaviour = self._script.popleft() if self._script else self._usual
                await behaviour(received, wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            try:  # the socket is closed a little later; until then a client could use the connection again
                with suppress(ConnectionError, TimeoutError):
                    await asyncio.wait_for(writer.wait_closed(), 1.0)
            finally:
                with self._changed:
                    self.left += 1
                    self._changed.notify_all()


async def _receive(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    path, _, query = target.partition("?")
    return Received(method, path, query, headers, body, connection)
