"""Recording of a response whose bytes the caller reads itself (``with_streaming_response``)."""

from __future__ import annotations

from contextlib import suppress

from specclient.call.decode import ChunkDecoder, decode_body, usage_reader
from specclient.call.path_usage import PATH_OPERATIONS, path_usage
from specclient.call.recorder import CallRecorder
from specclient.errors import APIError
from specclient.http_transport.body_limits import DEFAULT_RESPONSE_LIMITS
from specclient.http_transport.event_frames import FrameDecoder, stream_decoder
from specclient.http_transport.sse import ServerSentEvent, SSEDecoder
from specclient.providers import Endpoint, dialect_of
from specclient.types.request import Request

#: Bytes of a complete answer that are kept to read its usage at the end.
MAX_KEPT_BYTES = 8 * 2**20


class BodyRecorder:
    """Decodes a copy of a body's bytes to record usage and chunks; the bytes themselves pass unchanged.

    The events of a stream are recorded as they come. A complete answer is kept until its end, up to
    :data:`MAX_KEPT_BYTES`; audio, files and plain text, which report no usage, are not kept.
    """

    def __init__(self, endpoint: Endpoint, request: Request, record: CallRecorder) -> None:
        self._dialect, self._usage_of = dialect_of(endpoint), usage_reader(endpoint)
        self._request = request
        self._record = record
        self._events: SSEDecoder | FrameDecoder | None = SSEDecoder() if request.stream else None
        self._chunks = ChunkDecoder(dialect_of(endpoint), request)
        self._kept: list[bytes] | None = None
        is_read = request.operation in PATH_OPERATIONS
        if self._events is None and (is_read or request.method.response_type not in (bytes, str, None)):
            self._kept = []
        self._size = 0

    def begin(self, content_type: str | None) -> None:
        """Note the type of the body, before its first bytes."""
        if self._events is not None:
            self._events = stream_decoder(content_type)

    def feed(self, piece: bytes) -> None:
        """Record the next bytes of the body."""
        self._size += len(piece)
        if self._events is not None:
            if self._size > DEFAULT_RESPONSE_LIMITS.max_body_bytes:
                self._events = None  # too long to record; the caller gets its bytes all the same
                return
            with suppress(APIError):
                self._note(self._events.feed(piece))
                return
            self._events = None
        elif self._kept is not None:
            self._kept.append(piece)
            if self._size > MAX_KEPT_BYTES:
                self._kept = None

    def close(self) -> None:
        """Record what is complete at the end of the body, or where the caller stopped reading."""
        if self._events is not None:
            with suppress(APIError):
                self._note(self._events.flush())
        elif self._kept is not None:
            with suppress(APIError):  # the body is incomplete or empty
                content = b"".join(self._kept)
                if self._request.operation in PATH_OPERATIONS:
                    self._record.note_answer(None, path_usage(self._request, content))
                    return
                value = decode_body(self._dialect, self._request, content)
                self._record.note_answer(value, self._usage_of(value))

    def _note(self, events: list[ServerSentEvent]) -> None:
        chunks: list[object] = []
        try:
            self._chunks.decode(events, chunks)
        except APIError:
            self._events = None  # an error ends the answer; the chunks before it are recorded
        for chunk in chunks:
            self._record.note_chunk(chunk, self._usage_of(chunk))
