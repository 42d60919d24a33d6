"""Bounded decompression of the responses of httpx and httpx2.

httpx decompresses each received chunk in one step, whose result can be a thousand times as long with gzip and
a million times with brotli. Shorter chunks bound each step, so that the limits apply between them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from specclient.http_transport.body_limits import BodyReader

#: Compressed bytes that are decompressed in one step: to 4 MiB at most with gzip and deflate.
_STEP: Final = 4096
#: The same with other codings, whose ratio is not bounded.
_SHORT_STEP: Final = 64
_MOST_OF_REDIRECT: Final = 2**16
_BOUNDED: Final = frozenset({"gzip", "deflate", "identity"})


def received(response: Any) -> int | None:
    """Return the compressed bytes of a body received so far; None if it is not compressed."""
    return response.num_bytes_downloaded if "content-encoding" in response.headers else None


def cut_compressed(response: Any, library: str, *, is_async: bool) -> None:
    """Let httpx decompress the unread body of a response in small steps.

    Args:
        library: the package of the response: ``httpx`` or ``httpx2``.
        is_async: whether it is a response of an async client.

    Raises:
        httpx.DecodingError: the body is compressed more than once, which no server of an API does: the ratios
            of the steps would multiply.
    """
    codings = response.headers.get_list("content-encoding", split_commas=True)
    codings = [coding.strip().lower() for coding in codings if coding.strip()]
    if not codings or response.is_stream_consumed:
        return
    if len(codings) > 1:
        raise sys.modules[library].DecodingError(
            f"the body is compressed {len(codings)} times ({', '.join(codings[:4])}); once is accepted",
            request=response.request,
        )
    step = _STEP if codings[0] in _BOUNDED else _SHORT_STEP
    kind = _stream_classes(library)[0 if is_async else 1]
    response.stream = kind(response.stream, step)


def cut_redirect(response: Any, library: str, *, is_async: bool) -> None:
    """Let httpx, which reads the whole body of a redirect before it follows it, read its beginning alone."""
    if response.has_redirect_location and not response.is_stream_consumed:
        most = 0 if "content-encoding" in response.headers else _MOST_OF_REDIRECT
        kind = _stream_classes(library)[0 if is_async else 1]
        response.stream = kind(response.stream, _STEP, most)


def keep_content(response: Any, body: BodyReader) -> bytes:
    """Store the body that was read in its response, as httpx's own ``read`` does, and return it."""
    content = response._content = body.content()  # httpx has no public way
    return content


@functools.cache
def _stream_classes(name: str) -> tuple[Any, Any]:
    """Return the async and the sync stream that cut another one's chunks, as classes of httpx or httpx2.

    Their arguments are the other stream, the length of the pieces, and the bytes after which it ends.
    """
    library: Any = sys.modules[name]

    class AsyncCutStream(library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, source: Any, step: int, most: int = sys.maxsize) -> None:
            self._source = source
            self._step = step
            self._left = most

        async def __aiter__(self) -> AsyncIterator[bytes]:
            if self._left <= 0:
                return
            async for chunk in self._source:
                for start in range(0, len(chunk), self._step):
                    yield chunk[start : start + self._step]
                self._left -= len(chunk)
                if self._left <= 0:
                    return

        async def aclose(self) -> None:
            await self._source.aclose()

    class CutStream(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, source: Any, step: int, most: int = sys.maxsize) -> None:
            self._source = source
            self._step = step
            self._left = most

        def __iter__(self) -> Iterator[bytes]:
            if self._left <= 0:
                return
            for chunk in self._source:
                for start in range(0, len(chunk), self._step):
                    yield chunk[start : start + self._step]
                self._left -= len(chunk)
                if self._left <= 0:
                    return

        def close(self) -> None:
            self._source.close()

    return AsyncCutStream, CutStream
