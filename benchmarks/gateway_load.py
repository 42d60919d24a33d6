"""Load generator: measures a server's response times with many concurrent clients on raw sockets."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MESSAGES = [{"role": "user", "content": "Tell me about foxes, in a sentence or two."}]


@dataclass(frozen=True)
class Subject:
    """A server to measure.

    Attributes:
        name: its name in tables.
        port: its port on the loopback interface.
        path: the path before ``/chat/completions``.
        model: its name of the upstream's model.
        key: its API key.
        headers: lines of the request's head, in addition to the usual ones.
    """

    name: str
    port: int
    path: str
    model: str
    key: str = "sk-1"
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, *, stream: bool) -> bytes:
        """Return the bytes of a request."""
        body = json.dumps(
            {
                "model": self.model,
                "messages": MESSAGES,
                "temperature": 0.5,
                **({"stream": True} if stream else {}),
            }
        ).encode()
        added = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        head = (
            f"POST {self.path}/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            f"authorization: Bearer {self.key}\r\ncontent-type: application/json\r\naccept: */*\r\n"
            f"{added}content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass
class LoadResult:
    """The durations of the requests of all clients.

    Attributes:
        whole: seconds until each response was complete.
        first: seconds until each stream's first event.
        elapsed: seconds from the first request to the last response.
    """

    whole: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    elapsed: float = 0.0

    @property
    def per_second(self) -> float:
        """Responses per second."""
        return len(self.whole) / self.elapsed

    def median_ms(self, what: str) -> float:
        """Return the median of ``whole`` or ``first`` in milliseconds."""
        return statistics.median(getattr(self, what)) * 1000


class Client(asyncio.Protocol):
    """A connection that sends one request after the other."""

    def __init__(self) -> None:
        self._read = bytearray()
        self._done: asyncio.Future[bytes] | None = None
        self.first_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out: asyncio.Transport = transport  # type: ignore[assignment]

    async def send(self, request: bytes) -> bytes:
        """Send a request, and return its complete response."""
        self._read.clear()
        self.first_at, self._length = None, -1
        self._done = asyncio.get_running_loop().create_future()
        self._out.write(request)
        return await self._done

    def data_received(self, data: bytes) -> None:
        self._read += data
        if self._done is None or self._done.done():
            return
        if self.first_at is None and b"data:" in data:
            self.first_at = time.perf_counter()
        if self._length < 0 and (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._read[:end]).lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._length = end + 4 + size if at >= 0 else 0
        complete = len(self._read) >= self._length > 0 or (
            self._length == 0 and self._read.endswith(b"0\r\n\r\n")
        )
        if complete:
            self._done.set_result(bytes(self._read))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(
                ConnectionError(f"the connection closed before the response was complete: {exc}")
            )

    def close(self) -> None:
        """Close the connection."""
        self._out.close()


async def send_load(
    subject: Subject,
    at_once: int,
    times: int,
    *,
    stream: bool,
    check: Callable[[bytes], None],
    every_s: float = 0.0,
) -> LoadResult:
    """Let ``at_once`` clients send ``times`` requests each.

    Args:
        subject: the server.
        at_once: number of clients.
        times: requests per client.
        stream: whether the responses are streamed.
        check: raises an exception if a response is wrong.
        every_s: seconds between two requests of a client. The starts of all clients are spread evenly over
            this time; otherwise they would synchronize and wait for each other. With 0, each client sends its
            next request as soon as it has its response.
    """
    loop, result, request = asyncio.get_running_loop(), LoadResult(), subject.request(stream=stream)
    connected = [loop.create_connection(Client, "127.0.0.1", subject.port) for _ in range(at_once)]
    clients = [client for _, client in await asyncio.gather(*connected)]
    begun = time.perf_counter()

    async def send_all(client: Client, place: int) -> None:
        for number in range(times):
            if (delay := begun + every_s * (place / at_once + number) - time.perf_counter()) > 0:
                await asyncio.sleep(delay)
            sent = time.perf_counter()
            response = await client.send(request)
            result.whole.append(time.perf_counter() - sent)
            check(response)
            if client.first_at is not None:
                result.first.append(client.first_at - sent)

    await asyncio.gather(*[send_all(client, place) for place, client in enumerate(clients)])
    result.elapsed = time.perf_counter() - begun
    for client in clients:
        client.close()
    return result
