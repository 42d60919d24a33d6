"""Incremental decoder of AWS's binary event streams (``application/vnd.amazon.eventstream``).

A frame is a prelude (total length and length of the headers, 4 bytes each, and their CRC-32), typed headers,
a payload, and the CRC-32 of all bytes before it; numbers are big-endian ("Amazon Event Stream Specification",
https://smithy.io/2.0/aws/amazon-eventstream.html). Only complete frames with right checksums are decoded.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from struct import Struct
from struct import error as StructError

from specclient.errors import APIConnectionError, APIResponseValidationError
from specclient.http_transport.body_limits import DEFAULT_RESPONSE_LIMITS, event_too_large
from specclient.http_transport.sse import ServerSentEvent, SSEDecoder
from specclient.types.wire import FRAMES_TYPE

_PRELUDE = Struct("!III")
_CRC = Struct("!I")
_SHORT = Struct("!H")
_AROUND = _PRELUDE.size + _CRC.size  # bytes of a frame besides headers and payload
#: The most bytes of a frame's headers ("Message format").
_MAX_HEADERS = 128 * 2**10
#: Bytes of a header's value by its type; types 6 (bytes) and 7 (text) state their length.
_SIZES: Mapping[int, int] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _TEXT = 6, 7


class FrameDecoder:
    """The decoder of one stream, with the interface of :class:`SSEDecoder`.

    An event has its payload as ``data`` and its ``:event-type`` as type. An exception's type is its
    ``:exception-type``, whose name ends with ``Exception``. An error without a payload has the type ``error``
    and an object with ``code`` and ``message``.

    Args:
        most: the maximum bytes of one frame, complete or not.
    """

    __slots__ = ("_most", "_pending")

    def __init__(self, most: float = DEFAULT_RESPONSE_LIMITS.max_event_bytes) -> None:
        self._most = most
        self._pending = bytearray()

    @property
    def is_within_event(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._pending)

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Decode a chunk, and return the events of the frames that it completes, in order.

        Raises:
            APIResponseValidationError: a frame is damaged.
            ResponseTooLargeError: a frame is longer than allowed.
        """
        pending = self._pending
        pending += chunk
        at, found = 0, list[ServerSentEvent]()
        while len(pending) - at >= _PRELUDE.size:
            size = self._frame_size(at)
            if len(pending) - at < size:
                break
            found.append(_event_of(bytes(pending[at : at + size])))
            at += size
        del pending[:at]
        return found

    def flush(self) -> list[ServerSentEvent]:
        """Return an empty list at the end of the body.

        Raises:
            APIConnectionError: the body ended within a frame.
        """
        if self._pending:
            raise APIConnectionError(
                message=f"Connection error. The stream of events ended {len(self._pending)} bytes after the "
                "beginning of a frame, which is incomplete."
            )
        return []

    def _frame_size(self, at: int) -> int:
        """Return the length of the frame that begins at a position, after checks of its prelude."""
        size, headers, checksum = _PRELUDE.unpack_from(self._pending, at)
        if zlib.crc32(self._pending[at : at + _PRELUDE.size - _CRC.size]) != checksum:
            raise _damaged("the checksum of its prelude is wrong")
        if headers > _MAX_HEADERS or size < headers + _AROUND:
            raise _damaged(f"it states {size} bytes, of which {headers} are headers")
        if size > self._most:
            raise event_too_large(self._most, len(self._pending) - at)
        return int(size)


def stream_decoder(
    content_type: str | None, most: float = DEFAULT_RESPONSE_LIMITS.max_event_bytes
) -> SSEDecoder | FrameDecoder:
    """Return the decoder of a stream of events by the ``content-type`` of the response."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return FrameDecoder(most) if kind == FRAMES_TYPE else SSEDecoder(most)


def _event_of(frame: bytes) -> ServerSentEvent:
    """Return the event of a complete frame."""
    if zlib.crc32(frame[: -_CRC.size]) != _CRC.unpack(frame[-_CRC.size :])[0]:
        raise _damaged("its checksum is wrong")
    size = _PRELUDE.unpack_from(frame)[1]
    end = _PRELUDE.size + size
    headers = dict(_headers(frame[_PRELUDE.size : end]))
    payload = frame[end : -_CRC.size]
    kind = headers.get(":message-type", "event")
    if kind == "error":
        error = {"code": headers.get(":error-code"), "message": headers.get(":error-message")}
        return ServerSentEvent(json.dumps(error).encode(), "error")
    name = headers.get(":exception-type" if kind == "exception" else ":event-type")
    if name is None:
        raise _damaged(f"a message of the type {kind[:40]!r} does not name its event")
    if kind == "exception" and not name.lower().endswith("exception"):
        name += "Exception"
    return ServerSentEvent(payload or b"{}", name)


def _headers(block: bytes) -> Iterator[tuple[str, str]]:
    """Yield the headers whose values are texts."""
    at, end = 0, len(block)
    try:
        while at < end:
            begin = at + 1
            at = begin + block[at]
            name, kind = block[begin:at].decode(), block[at]
            at += 1
            if kind in (_BYTES, _TEXT):
                size = _SHORT.unpack_from(block, at)[0]
                at += _SHORT.size
            else:
                size = _SIZES[kind]
            if at + size > end:
                break
            if kind == _TEXT:
                yield name, block[at : at + size].decode()
            at += size
    except (ValueError, LookupError, StructError):
        at = -1
    if at != end:
        raise _damaged("its headers are malformed")


def _damaged(why: str) -> APIResponseValidationError:
    return APIResponseValidationError(message=f"A frame of the stream of events is damaged: {why}.")
