"""Merging streams: all run concurrently, and end together."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from specclient_local.api.stream_merging import merge_streams

pytestmark = pytest.mark.anyio


class Source:
    """A stream that yields items as they are put and records whether it was closed."""

    def __init__(self):
        self.items, self.closed = asyncio.Queue(), False

    async def stream(self):
        try:
            while (item := await self.items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed = True


async def test_items_are_yielded_in_order_of_arrival():
    one, other = Source(), Source()
    found, stream = [], merge_streams([one.stream(), other.stream()], 2)
    for source, item in ((other, "a"), (one, "b"), (other, "c")):
        source.items.put_nowait(item)
        found.append(await anext(stream))
    other.items.put_nowait(None)
    one.items.put_nowait("d")
    one.items.put_nowait(None)
    found += [item async for item in stream]
    assert found == [(1, "a"), (0, "b"), (1, "c"), (0, "d")]
    assert one.closed
    assert other.closed


async def test_closing_the_merged_stream_closes_pending_sources_without_waiting():
    sources = [Source() for _ in range(3)]
    sources[1].items.put_nowait("a")
    stream = merge_streams([source.stream() for source in sources], 3)
    assert await anext(stream) == (1, "a")
    await asyncio.wait_for(stream.aclose(), 20)
    assert all(source.closed for source in sources)


async def test_an_exception_in_one_source_closes_the_others():
    sources = [Source() for _ in range(3)]
    sources[0].items.put_nowait("never yielded")
    sources[2].items.put_nowait(ValueError("of the third"))
    with pytest.raises(ValueError, match="of the third"):
        [item async for item in merge_streams([source.stream() for source in sources], 3)]
    assert all(source.closed for source in sources)


async def test_streams_are_taken_from_an_iterator_as_others_end():
    running = most = begun = 0

    async def stream(items):
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            for item in range(items):
                await anyio.sleep(0)
                yield item
        finally:
            running -= 1

    def streams():
        nonlocal begun
        for i in range(50):
            begun += 1
            yield stream(i % 4)

    found = [pair async for pair in merge_streams(streams(), 3)]
    assert sorted(found) == [(i, item) for i in range(50) for item in range(i % 4)]
    assert (most, running, begun) == (3, 0, 50)
    begun = 0
    merged = merge_streams(streams(), 3)
    await anext(merged)
    await merged.aclose()
    assert running == 0
    assert begun <= 6


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_few_streams_are_merged_too(count):
    async def stream():
        yield "a"

    assert [item async for item in merge_streams([stream() for _ in range(count)], 5)] == [
        (i, "a") for i in range(count)
    ]
