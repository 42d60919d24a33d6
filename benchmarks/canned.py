"""A server with canned chat completions; prints its port, and exits when its standard input closes.

It runs in a separate process, so that its CPU time does not count as that of the clients.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import ClassVar

CHUNKS = 300
THINKING_S, WORDS, WORD_S = 0.2, 25, 0.02
_USAGE = {"prompt_tokens": 8, "completion_tokens": CHUNKS, "total_tokens": CHUNKS + 8}
_LIMITS = (
    "x-request-id: req-1\r\nx-ratelimit-limit-requests: 100000\r\nx-ratelimit-remaining-requests: 99999\r\n"
    "x-ratelimit-reset-requests: 6ms\r\nx-ratelimit-limit-tokens: 10000000\r\n"
    "x-ratelimit-remaining-tokens: 9999000\r\nx-ratelimit-reset-tokens: 6ms\r\n"
)


def _whole() -> bytes:
    text = "The quick brown fox jumps over the lazy dog."
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4.1-mini",
            "choices": [choice],
            "usage": {**_USAGE, "completion_tokens": 9, "total_tokens": 17},
            "system_fingerprint": "fp_1",
        }
    ).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{_LIMITS}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def _frames(*, usage: bool) -> list[bytes]:
    def chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "gpt-4.1-mini",
                "system_fingerprint": "fp_1",
                "choices": [choice],
            }
        ).encode()

    data = [chunk({"content": f" word{i}"}) for i in range(CHUNKS - 1)] + [chunk({}, "stop")]
    if usage:
        data.append(json.dumps({**json.loads(data[-1]), "choices": [], "usage": _USAGE}).encode())
    lines = [b"data: " + text + b"\n\n" for text in [*data, b"[DONE]"]]
    return [b"%x\r\n%b\r\n" % (len(line), line) for line in lines] + [b"0\r\n\r\n"]


_HEAD = (
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + _LIMITS + "transfer-encoding: chunked\r\n\r\n"
).encode()


class _Canned(asyncio.Protocol):
    """One connection.

    For a path that begins with ``/paced``, chunks are sent half a millisecond apart. For ``/model``, the
    server responds like a model: after ``THINKING_S``, in a stream with ``WORDS`` chunks ``WORD_S`` apart.
    All other responses are sent immediately.
    """

    whole = _whole()
    frames: ClassVar = {usage: _frames(usage=usage) for usage in (False, True)}
    together: ClassVar = {usage: b"".join(_frames(usage=usage)) for usage in (False, True)}

    def __init__(self) -> None:
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._read) < end + 4 + length:
                return
            body = self._read[end + 4 : end + 4 + length]
            self._read = self._read[end + 4 + length :]
            body = body.replace(b" ", b"")
            streamed, usage = b'"stream":true' in body, b'"include_usage":true' in body
            as_model = head.startswith(b"post /model/")
            loop = asyncio.get_running_loop()
            if as_model and streamed:
                frames = [*self.frames[usage][: WORDS - 1], *self.frames[usage][CHUNKS - 1 :]]
                loop.call_later(THINKING_S, self._send_words, frames, loop.time() + THINKING_S)
            elif as_model:
                loop.call_later(THINKING_S, self._out.write, self.whole)
            elif not streamed:
                self._out.write(self.whole)
            elif b"/paced" in head:
                asyncio.get_running_loop().create_task(self._pace(self.frames[usage]))
            else:
                self._out.write(_HEAD + self.together[usage])

    def _send_words(self, frames: list[bytes], start: float) -> None:
        """Send the first chunk now, and the others ``WORD_S`` apart from ``start`` on."""
        loop = asyncio.get_running_loop()
        self._out.write(_HEAD + frames[0])
        for number, frame in enumerate(frames[1:WORDS], 1):
            last = b"".join(frames[WORDS:]) if number == WORDS - 1 else b""
            loop.call_at(start + number * WORD_S, self._out.write, frame + last)

    async def _pace(self, frames: list[bytes]) -> None:
        self._out.write(_HEAD)
        for frame in frames:
            await asyncio.sleep(0.0005)
            self._out.write(frame)


async def main() -> None:
    """Serve until standard input is closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Canned, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
