"""Decoding of responses: complete answers, streams of events, and bodies that a caller reads itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from specclient.call.errors import truncated_event_error
from specclient.call.result import CallResult
from specclient.errors import APIError, APIResponseValidationError
from specclient.http_transport.http import SSEStream
from specclient.http_transport.sse import ServerSentEvent
from specclient.providers import Dialect, Endpoint, dialect, dialect_of
from specclient.providers.presets.registry import region_of
from specclient.routing.destinations import Destination
from specclient.routing.router import AUTO
from specclient.types.as_sent import RECEIVED, as_sent, read_as_sent
from specclient.types.base import WireModel
from specclient.types.call import MeteredModel
from specclient.types.named import named
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import WireResponse

#: Dialects whose answers keep the model's name as the server sent it, even if it sent none.
_NAMING = frozenset({"openai"})


def decode_reply(endpoint: Endpoint, request: Request, reply: WireResponse, model: str = "") -> CallResult:
    """Decode a complete response; an error in decoding is part of the result, not raised.

    Args:
        model: the name of the model, for answers of dialects that do not name it.
    """
    try:
        value = dialect_of(endpoint).decode(request.method, reply)
    except APIError as error:
        # The traceback's frames would refer to the result that holds the error: a reference cycle.
        return CallResult(None, reply, error.with_traceback(None), dialect_of(endpoint))
    # Not by isinstance, because pydantic's is slow.
    if (attach := getattr(type(value), "attach_request_id", None)) is not None:
        attach(value, reply.request_id)
    if endpoint.dialect not in _NAMING:
        name_model(value, model)
    return CallResult(value, reply, None, dialect_of(endpoint))


def decode_read_body(
    dialect: Dialect, request: Request, reply: WireResponse, to: Any = None
) -> tuple[Request, CallResult]:
    """Decode a body that has been read; an error in decoding is part of the result.

    Args:
        to: the type to return; None for the type of the request's method.

    Returns:
        The request for a result of that type, and the result.
    """
    if to is not None:
        request = replace(request, method=replace(request.method, response_type=to, page=None))
    try:
        return request, CallResult(dialect.decode(request.method, reply), reply, None, dialect)
    except APIError as error:
        return request, CallResult(None, reply, error.with_traceback(None), dialect)


def decode_body(dialect: Dialect, request: Request, content: bytes) -> Any:
    """Decode a body as the result of the request's method."""
    return dialect.decode(request.method, WireResponse(200, {}, content))


def value_as_sent(request: Request, result: CallResult) -> Any:
    """Return the value of a complete answer for the caller, unconverted as in the ``openai`` package.

    An answer in OpenAI's format that deviates from the documentation raises no error: JSON becomes an object
    with the fields that were sent, anything else is returned as text. If the route was chosen by policy, it
    raises, because failover has found no better answer.

    Raises:
        APIError: the answer cannot be decoded, and its format or route does not allow it unchanged.
    """
    try:
        if _is_given_as_sent(request, result):
            return _received_value(request, result)
        return as_sent(result.unwrap())
    finally:
        del result  # it holds the error, whose traceback holds this frame: a reference cycle


def _is_given_as_sent(request: Request, result: CallResult) -> bool:
    """Return whether the caller gets an answer that could not be decoded, unchanged."""
    if result.error is None or result.reply is None or result.dialect is not dialect("openai"):
        return False
    if request.policy is not None or request.strategy is not None or request.model == AUTO:
        return False
    kind = request.method.response_type
    return kind not in (bool, int, float) and (not _claims_json(result.reply) or _is_json(result.reply))


def _claims_json(reply: WireResponse) -> bool:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower().endswith("json")


def _is_json(reply: WireResponse) -> bool:
    try:
        from_json(reply.content)
    except ValueError:
        return False
    return True


def _received_value(request: Request, result: CallResult) -> Any:
    """Return an answer that could not be decoded: an object of its JSON, or its text."""
    reply, response_type = result.reply, request.method.response_type
    assert reply is not None
    kind = named(response_type) if isinstance(response_type, str) else response_type
    is_object = isinstance(kind, type) and issubclass(kind, BaseModel)
    if not _is_json(reply) or not (is_object or _claims_json(reply)):
        return _text_of(reply)
    value = read_as_sent(kind, reply.content)
    if isinstance(value, WireModel):
        value.attach_request_id(reply.request_id)
    if isinstance(value, MeteredModel) and result.call is not None:
        value.attach_meta(result.call)
    return value


def _text_of(reply: WireResponse) -> str:
    encoding = getattr(reply.response, "charset_encoding", None) or "utf-8"
    with suppress(LookupError, ValueError):  # no text encoding, such as ``base64``
        return reply.content.decode(encoding, "replace")
    return reply.content.decode("utf-8", "replace")


class ChunkDecoder:
    """Decodes the events of one stream into chunks.

    Args:
        keeps_received: whether a chunk keeps its event's data as :data:`RECEIVED`.
    """

    def __init__(self, dialect: Dialect, request: Request, *, keeps_received: bool = False) -> None:
        self._read = dialect.events(request.method)
        self._keeps_received = keeps_received

    def decode(self, events: list[ServerSentEvent], into: list[Any] | None = None) -> list[Any]:
        """Return the chunks of the events.

        Args:
            into: a list to which the chunks are appended. If an event raises, it keeps the earlier ones.

        Raises:
            APIError: an event is an error, or cannot be decoded.
        """
        read, into = self._read, [] if into is None else into
        for event in events:
            if not event.data:
                continue
            decoded = read(event.data, event.event)
            if type(decoded) is list:
                into += decoded
            elif decoded is not None:
                if self._keeps_received:
                    _keep_received(decoded, event)
                into.append(decoded)
        return into


def _keep_received(chunk: Any, event: ServerSentEvent) -> None:
    """Let a chunk keep the data of its event if that is one line, and the event has no type."""
    if event.event is None and b"\n" not in event.data:
        chunk.__dict__[RECEIVED] = event.data
    else:
        chunk.__dict__.pop(RECEIVED, None)


async def decode_events(
    endpoint: Endpoint, request: Request, events: SSEStream, model: str = ""
) -> AsyncGenerator[list[Any], None]:
    """Yield the chunks of a stream, one list for each read from the network.

    Chunks that come before an error are yielded before the error is raised.

    Args:
        model: the name of the model, for chunks of dialects that do not name it.
    """
    as_named = endpoint.dialect in _NAMING
    keeps = as_named and request.options.keeps_received
    decoder = ChunkDecoder(dialect_of(endpoint), request, keeps_received=keeps)
    async for batch in events.batches():
        chunks: list[Any] = []
        failure: APIError | None = None
        try:
            decoder.decode(batch, chunks)
        except APIResponseValidationError as error:
            failure = truncated_event_error(endpoint) if events.open_ended else error
        except APIError as error:
            failure = error
        if chunks:
            if not as_named:
                for chunk in chunks:
                    name_model(chunk, model)
            yield chunks
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # the traceback's frame holds it: a reference cycle


def name_model(answer: Any, model: str) -> None:
    """Set the model's name in a chat answer or chunk without one, such as those of the Converse API."""
    if getattr(answer, "model", None) == "":
        answer.model = model


def usage_reader(destination: Destination) -> Callable[[Any], Usage | None]:
    """Return the function that reads the usage in an answer or a chunk; engines use OpenAI's format."""
    if not isinstance(destination, Endpoint):
        return dialect("openai").usage
    read, region = dialect_of(destination).usage, region_of(destination.base_url)
    return read if region is None else lambda answer: _in_region(read(answer), region)


def _in_region(usage: Usage | None, region: str) -> Usage | None:
    return usage if usage is None or usage.region is not None else replace(usage, region=region)


def is_for_caller(chunk: Any, request: Request, *, usage: bool) -> bool:
    """Return whether a chunk without choices is passed to the caller.

    The client itself asks servers for usage, and its own server for telemetry; chunks that only answer
    these added fields are not part of what the caller requested.

    Args:
        usage: whether a chunk with usage is passed.
    """
    if chunk.usage is not None:
        return usage
    return "specclient" not in (chunk.__pydantic_extra__ or {}) or "specclient" in request.options.body
