"""A loopback server in a separate process; a request's model name selects the server's behaviour.

python far_server.py     # prints the base URL, and serves until standard input is closed
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque

from loopback_server import (
    Behaviour,
    OpenAIServer,
    Received,
    Wire,
    behave,
    broken_stream,
    events,
    hang,
    reply,
    reset,
)

PIECE = (
    b'data: {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",'
    b' "choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
)
PERSON = '{"name": "Ada", "age": 36}'


async def slowly(_: Received, wire: Wire) -> None:
    """Send a chunk, wait a second so that all requested streams have begun, send another and end."""
    await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    await wire.chunk(PIECE)
    await asyncio.sleep(1.0)
    await wire.chunk(PIECE)
    await wire.chunk(b"data: [DONE]\n\n")
    await wire.chunk(b"")


def person() -> Behaviour:
    message = {"role": "assistant", "content": PERSON}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return reply(
        200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )


NO = {"error": {"message": "no", "type": None, "param": None, "code": None}}
BY_MODEL: dict[str, Behaviour] = {
    "400": reply(400, NO),
    "500": reply(500, NO),
    "page": reply(200, b"<html>", {"content-type": "text/html"}),
    "bad-json": reply(200, b'{"id":', {"content-type": "application/json"}),
    "reset": reset,
    "hang": hang,
    "slowly": slowly,
    "silent-stream": broken_stream(PIECE, how="hang"),
    "broken-stream": broken_stream(PIECE),
    "bad-stream": events(b'data: {"id":\n\n'),
    "person": person(),
}


async def by_model(received: Received, wire: Wire) -> None:
    """Answer with the behaviour of the model's name; for other names, as the loopback server does."""
    name = received.json["model"] if received.body else ""
    await BY_MODEL.get(name, behave)(received, wire)


class _Always(deque[Behaviour]):
    def __bool__(self) -> bool:
        return True

    def popleft(self) -> Behaviour:
        return by_model


def main() -> None:
    """Serve until standard input is closed."""
    server = OpenAIServer()
    server._script = _Always()
    server.requests = deque(maxlen=1)  # type: ignore[assignment] - do not keep a hundred thousand requests
    with server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
