"""Turn a call without an asyncio event loop into an error that names the way out."""

from __future__ import annotations

import asyncio

from specclient.errors import SpecClientError


def check_asyncio() -> None:
    """Raise SpecClientError where no asyncio event loop runs: under trio, mostly."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        return
    raise SpecClientError(
        "AsyncOpenAI runs on asyncio, and no asyncio event loop is running here; start the program with "
        "asyncio.run(), or anyio.run(backend='asyncio'). Under trio, use the synchronous OpenAI in a thread: "
        "await trio.to_thread.run_sync(...)"
    )
