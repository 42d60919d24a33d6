"""A call's stream: noted in its record chunk by chunk, which is closed however the stream ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from specclient.call.decode import is_for_caller, usage_reader
from specclient.call.recorder import CallRecorder
from specclient.errors import APIError
from specclient.routing.destinations import Destination
from specclient.types.request import Request

CloseRecord = Callable[[BaseException | None], Awaitable[object]]
"""Closes a call's record; the argument is what ended the stream, None at its end."""


async def recorded_chunks(
    source: AsyncGenerator[Any, None],
    request: Request,
    destination: Destination,
    record: CallRecorder,
    close: CloseRecord,
) -> AsyncGenerator[Any, None]:
    """Note every chunk, yield those the caller requested, and close the record at the end or an error.

    Args:
        source: yields a :class:`StreamStart`, then batches of chunks.
    """
    usage_of = usage_reader(destination)
    completes = request.operation in ("chat", "completion")
    try:
        async with aclosing(source):
            http, withholds_usage = await anext(source)
            yield http, None
            async for batch in source:
                for chunk in batch:
                    record.note_chunk(chunk, usage_of(chunk))
                if completes and not batch[-1].choices:
                    batch = [  # noqa: PLW2901
                        c for c in batch if c.choices or is_for_caller(c, request, usage=not withholds_usage)
                    ]
                yield batch
    except BaseException as error:
        if isinstance(error, APIError) and error.partial is None:
            error.partial = record.text or None
        await close(error)
        raise
    batch = chunk = None  # freed before the record is written: many streams may end at once
    await close(None)


async def recorded_bytes(source: AsyncGenerator[Any, None], close: CloseRecord) -> AsyncGenerator[Any, None]:
    """Yield a body's bytes, and close the record however the stream ends."""
    try:
        async with aclosing(source):
            async for batch in source:
                yield batch
    except BaseException as error:
        await close(error)
        raise
    await close(None)
