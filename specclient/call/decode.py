"""Turn what an endpoint sent into what a method gives: whole, in events, or from bytes that passed by."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from specclient.call.recorder import CallRecorder
from specclient.errors import APIConnectionError, APIError, APIResponseValidationError
from specclient.providers import Dialect, Endpoint, dialect, dialect_of
from specclient.transport.http import SSEStream
from specclient.transport.sse import ServerSentEvent, SSEDecoder
from specclient.types.base import WireModel
from specclient.types.request import Request
from specclient.types.wire import WireResponse

#: Bytes of a whole answer that are kept for its usage while a caller reads them.
MAX_KEPT_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class CallResult:
    """One answer, whole.

    Attributes:
        value: what the method gives; None where it could not be read.
        reply: the HTTP that brought it; None where an engine in this process answered.
        error: why it could not be read.
        dialect: how it is read.
    """

    value: Any
    reply: WireResponse | None = None
    error: APIError | None = None
    dialect: Dialect = dialect("openai")

    def unwrap(self) -> Any:
        """Return the value, or raise why there is none."""
        try:
            if self.error is not None:
                raise self.error
            return self.value
        finally:
            del self  # else the frame of the error's traceback holds it: a circle


def decode_reply(place: Endpoint, request: Request, wire: WireResponse) -> CallResult:
    """Return a whole answer as what its method gives, or with the reason why it cannot be."""
    try:
        value = dialect_of(place).decode(request.method, wire)
    except APIError as error:
        # Without the traceback, whose frames would lead back to the exchange: a circle.
        return CallResult(None, wire, error.with_traceback(None), dialect_of(place))
    if isinstance(value, WireModel):
        value.attach_request_id(wire.request_id)
    return CallResult(value, wire, None, dialect_of(place))


def decode_body(dialect: Dialect, request: Request, content: bytes, *, to: Any = None) -> Any:
    """Return a body that has been read as what its method gives, or as another type."""
    method = request.method if to is None else replace(request.method, response_type=to, page=None)
    return dialect.decode(method, WireResponse(200, {}, content))


class ChunkDecoder:
    """Turns the events of one stream, as they come, into what they become."""

    def __init__(self, dialect: Dialect, request: Request) -> None:
        self._read = dialect.events(request.method)

    def decode(self, events: list[ServerSentEvent], into: list[Any] | None = None) -> list[Any]:
        """Return what events become, added to ``into``, which keeps what came before one that is an error."""
        read, into = self._read, [] if into is None else into
        for event in events:
            if not event.data:
                continue
            found = read(event.data, event.event)
            if type(found) is list:
                into += found
            elif found is not None:
                into.append(found)
        return into


async def decode_events(
    place: Endpoint, request: Request, events: SSEStream
) -> AsyncGenerator[list[Any], None]:
    """Yield what events become, as they came together; those before one that is an error are not lost."""
    decoder = ChunkDecoder(dialect_of(place), request)
    async for batch in events.batches():
        chunks: list[Any] = []
        failure: APIError | None = None
        try:
            decoder.decode(batch, chunks)
        except APIResponseValidationError as error:
            failure = _cut_off(place) if events.open_ended else error
        except APIError as error:
            failure = error
        if chunks:
            yield chunks
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # else its traceback's frame holds it: a circle


def _cut_off(place: Endpoint) -> APIConnectionError:
    return APIConnectionError(message=f"Connection error. The stream of {place.name!r} ended amid an event.")


class BodyRecorder:
    """Notes what a body holds while its bytes pass by on their way to a caller, as far as they are read.

    A stream's events are noted as they come. A whole answer is kept until its end, for its usage, up to
    :data:`MAX_KEPT_BYTES`; of sound, files and text, which tell no usage, nothing is.
    """

    def __init__(self, place: Endpoint, request: Request, record: CallRecorder) -> None:
        self._dialect = dialect_of(place)
        self._request = request
        self._record = record
        self._decoder = SSEDecoder() if request.stream else None
        self._chunks = ChunkDecoder(dialect_of(place), request)
        self._kept: list[bytes] | None = None
        if self._decoder is None and request.method.response_type not in (bytes, str, None):
            self._kept = []
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Note a piece of the body."""
        if self._decoder is not None:
            self._note(self._decoder.feed(piece))
        elif self._kept is not None:
            self._size += len(piece)
            self._kept.append(piece)
            if self._size > MAX_KEPT_BYTES:
                self._kept = None

    def close(self) -> None:
        """Note what the end of the body, or of what was read of it, makes whole."""
        if self._decoder is not None:
            self._note(self._decoder.flush())
        elif self._kept is not None:
            with suppress(APIError):  # half an answer, or none
                value = decode_body(self._dialect, self._request, b"".join(self._kept))
                self._record.note_answer(value, self._dialect.usage(value))

    def _note(self, events: list[ServerSentEvent]) -> None:
        chunks: list[Any] = []
        try:
            self._chunks.decode(events, chunks)
        except APIError:
            self._decoder = None  # an error ends the answer: what came before it is noted
        for chunk in chunks:
            self._record.note_chunk(chunk, self._dialect.usage(chunk))
