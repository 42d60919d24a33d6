"""Merge several asynchronous streams into one, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")


async def merge_streams(
    streams: Iterable[AsyncGenerator[T, None]], window: int
) -> AsyncGenerator[tuple[int, T], None]:
    """Yield pairs of a stream's index and its next item, in order of arrival.

    At most ``window`` streams are open at a time; whenever one ends, the next is taken from ``streams`` and
    started. An exception in one stream closes the others and is raised; closing this generator closes all
    open streams. Runs on asyncio only, not on trio.

    Args:
        streams: the streams. An iterator is advanced only when the next stream is needed, which saves memory.
        window: maximum number of open streams, at least 1.
    """
    source = iter(streams)
    first = [*islice(source, 2)]
    if len(first) == 1:
        async with aclosing(first[0]) as stream:
            async for item in stream:
                yield 0, item
        return
    numbered = enumerate(chain(first, source))
    waiting: dict[asyncio.Future[T], tuple[int, AsyncGenerator[T, None]]] = {}

    def start_next() -> None:
        for index, stream in islice(numbered, window - len(waiting)):
            waiting[asyncio.ensure_future(anext(stream))] = (index, stream)

    def index_of(future: asyncio.Future[T]) -> int:
        return waiting[future][0]

    try:
        start_next()
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            ended = [future for future in done if isinstance(future.exception(), StopAsyncIteration)]
            ready = sorted(done.difference(ended), key=index_of)
            for future in ready:
                future.result()
            for future in ended:
                del waiting[future]
            start_next()
            for future in ready:
                index, stream = waiting.pop(future)
                waiting[asyncio.ensure_future(anext(stream))] = (index, stream)
                yield index, future.result()
    finally:
        opened = [stream for _, stream in waiting.values()]
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in opened:
            await stream.aclose()
