"""A loopback server's event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Self


class LoopThread:
    """Runs :meth:`_serve` in a thread, from the beginning to the end of a context.

    A subclass sets ``_loop`` and ``_stop`` in :meth:`_serve`, and ``_ready`` when it accepts connections. It
    ends when ``_stop`` is set.
    """

    _loop: asyncio.AbstractEventLoop
    _stop: asyncio.Event

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        raise NotImplementedError

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
