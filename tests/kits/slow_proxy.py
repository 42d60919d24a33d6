"""A TCP proxy on loopback that delays the bytes of a server, or holds them back.

with SlowProxy(server.port) as proxy:
    proxy.port            # connects to the server
    proxy.delay_s = 0.5   # each piece arrives half a second later, in both directions
    proxy.stall()         # nothing arrives, and connections stay open
    proxy.go_on()         # the pieces held back arrive
    proxy.lose_answer_to(b"COMMIT")  # the next request with this text arrives; its connection ends unanswered
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from loop_thread import LoopThread


class SlowProxy(LoopThread):
    """The proxy as a context manager; it runs in a thread of its own.

    Args:
        target: port of the server on loopback, which may be stopped and started.

    Attributes:
        port: its own port.
        delay_s: seconds by which each piece is delayed.
    """

    def __init__(self, target: int) -> None:
        super().__init__()
        self._target = target
        self.delay_s = 0.0
        self._lost: bytes | None = None
        self._moving = asyncio.Event()
        self._moving.set()

    def stall(self) -> None:
        """Hold back everything that arrives from now on; new connections are accepted."""
        self._loop.call_soon_threadsafe(self._moving.clear)

    def go_on(self) -> None:
        """Send what was held back, and go on."""
        self._loop.call_soon_threadsafe(self._moving.set)

    def lose_answer_to(self, text: bytes) -> None:
        """End the connection whose next piece contains a text, when the server has answered that piece."""
        self._lost = text

    @property
    def has_lost_an_answer(self) -> bool:
        """Whether the text of :meth:`lose_answer_to` came."""
        return self._lost is None

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is stopped
            writer.transport.abort()
            return
        cut = asyncio.Event()  # the next answer is lost

        def requested(piece: bytes) -> bool:
            if self._lost is not None and self._lost in piece:
                self._lost = None
                cut.set()
            return False

        try:
            await asyncio.gather(
                self._copy(reader, far_writer, requested),
                self._copy(far_reader, writer, lambda _: cut.is_set()),
            )
        finally:
            for each in (writer, far_writer):
                each.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: Callable[[bytes], bool]
    ) -> None:
        """Copy pieces until one ends the connection."""
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                if ends(piece):
                    writer.transport.abort()
                    return
                await asyncio.sleep(self.delay_s)
                await self._moving.wait()
                writer.write(piece)
                await writer.drain()
        with suppress(OSError):
            writer.write_eof()
