"""Merge several asynchronous streams into one, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge_streams(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """Yield pairs of a stream's index and its next item, in order of arrival.

    All streams start at once. An exception in one stream closes the others and is raised; closing this
    generator closes all streams. Runs on asyncio only, not on trio.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as stream:
            async for item in stream:
                yield 0, item
        return
    waiting: dict[asyncio.Future[T], int] = {}
    try:
        for index, stream in enumerate(streams):
            waiting[asyncio.ensure_future(anext(stream))] = index
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            ended = [future for future in done if isinstance(future.exception(), StopAsyncIteration)]
            for future in sorted(done.difference(ended), key=waiting.__getitem__):
                future.result()
            for future in ended:
                del waiting[future]
            for future in sorted(done.difference(ended), key=waiting.__getitem__):
                index = waiting.pop(future)
                waiting[asyncio.ensure_future(anext(streams[index]))] = index
                yield index, future.result()
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()
