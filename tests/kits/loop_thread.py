"""A loopback server with its event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
import weakref
from typing import Self


class LoopThread:
    """Accepts connections on a free port of loopback, from the beginning to the end of a context.

    A subclass serves each of them in :meth:`_connection`. At the end, those that are still served are
    cancelled, and all are broken off.

    Attributes:
        port: the server's port.
        tls: the certificates of HTTPS; None for HTTP.
    """

    tls: ssl.SSLContext | None = None

    _loop: asyncio.AbstractEventLoop
    _stop: asyncio.Event

    def __init__(self) -> None:
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()
        # Transports, not writers: a writer may be deleted while its transport still has unread bytes.
        transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            transports.add(writer.transport)
            task = self._loop.create_task(self._connection(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        # Let pending connections be accepted first: if a server is closed while asyncio has accepted a
        # connection but not yet attached it to the server, its socket is dropped without being closed.
        await _turns()
        server.close()
        await _turns()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in transports:
            transport.abort()
        await _turns()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server; may be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)


async def _turns() -> None:
    """Run 20 iterations of the event loop to finish pending callbacks, however slow the machine is."""
    for _ in range(20):
        await asyncio.sleep(0)
