"""Bodies of responses that are read from a stream of the pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from specclient.call.stream import AsyncStream, Stream
from specclient.errors import APIConnectionError
from specclient.http_transport.library_types import AsyncBody, SyncBody
from specclient.official_client.failures import connection_exception
from specclient.official_client.records import CallListener, report
from specclient.types.call import Call


class SyncResponseBody(SyncBody):
    """The body of a response, read from a stream of the bridge."""

    def __init__(self, stream: Stream[bytes], request: Any, listener: CallListener | None) -> None:
        self._stream, self._request, self._listener = stream, request, listener
        self._reported = False

    def __iter__(self) -> Iterator[bytes]:
        failure: Exception | None = None
        try:
            yield from self._stream
        except APIConnectionError as error:
            failure = connection_exception(error, self._request)
        self._report()
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._stream.close()
        self._report()

    def _report(self) -> None:
        if not self._reported:
            self._reported = True
            report(_record(self._stream), self._listener)


class AsyncResponseBody(AsyncBody):
    """The body of a response, read from a stream of the pipeline."""

    def __init__(self, stream: AsyncStream[bytes], request: Any, listener: CallListener | None) -> None:
        self._stream, self._request, self._listener = stream, request, listener
        self._reported = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        failure: Exception | None = None
        try:
            async for piece in self._stream:
                yield piece
        except APIConnectionError as error:
            failure = connection_exception(error, self._request)
        self._report()
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        await self._stream.close()
        self._report()

    def _report(self) -> None:
        if not self._reported:
            self._reported = True
            report(_record(self._stream), self._listener)


def _record(stream: Stream[bytes] | AsyncStream[bytes]) -> Call | None:
    try:
        return stream.meta
    except AttributeError:  # no model worked on it
        return None
