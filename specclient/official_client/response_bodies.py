"""Bodies of responses that are read from a stream of the pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from specclient.call.stream import AsyncStream, Stream
from specclient.errors import APIConnectionError
from specclient.http_transport.library_types import AsyncBody, SyncBody
from specclient.official_client.failures import connection_exception
from specclient.official_client.records import CallListener, report
from specclient.types.call import Call

S = TypeVar("S", bound=Stream[bytes] | AsyncStream[bytes])


class _ReportedBody(Generic[S]):
    """A body whose call is reported once, when it ends or is closed.

    Args:
        stream: the bytes.
        request: the request that it responds to, of httpx or httpx2.
        listener: called with the record of the call.
    """

    def __init__(self, stream: S, request: Any, listener: CallListener | None) -> None:
        self._stream, self._request, self._listener = stream, request, listener
        self._reported = False

    def _report(self) -> None:
        if not self._reported:
            self._reported = True
            report(_record(self._stream), self._listener)


class SyncResponseBody(_ReportedBody[Stream[bytes]], SyncBody):
    """The body of a response, read from a stream of the bridge."""

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


class AsyncResponseBody(_ReportedBody[AsyncStream[bytes]], AsyncBody):
    """The body of a response, read from a stream of the pipeline."""

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


def _record(stream: Stream[bytes] | AsyncStream[bytes]) -> Call | None:
    try:
        return stream.meta
    except AttributeError:  # no model worked on it
        return None
