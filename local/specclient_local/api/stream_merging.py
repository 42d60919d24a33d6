"""Turn several streams into one, as their items come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge_streams(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """Yield the items of all streams, each with the place of its stream; in asyncio alone.

    All begin at once. What one of them raises ends the others; so does closing this one.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield 0, item
        return
    waiting: dict[asyncio.Future[T], int] = {}
    try:
        for place, stream in enumerate(streams):
            waiting[asyncio.ensure_future(anext(stream))] = place
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            ended = [future for future in done if isinstance(future.exception(), StopAsyncIteration)]
            for future in sorted(done.difference(ended), key=waiting.__getitem__):
                future.result()
            for future in ended:
                del waiting[future]
            for future in sorted(done.difference(ended), key=waiting.__getitem__):
                place = waiting.pop(future)
                waiting[asyncio.ensure_future(anext(streams[place]))] = place
                yield place, future.result()
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()
