"""Results of calls as OpenAI's JSON bodies and server-sent events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

from specclient.call.result import CallResult
from specclient.errors import BadRequestError
from specclient.openai_http.errors import ServingError
from specclient.openai_http.request import EXTENSION, IncomingCall
from specclient.providers import dialect
from specclient.providers.encoding import json_of
from specclient.types.as_sent import RECEIVED
from specclient.types.call import Call, MeteredModel
from specclient.types.inference_methods import CHAT, COMPLETION, RESPONSE
from specclient.types.request import Request

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
#: The last event of a stream, except of the Responses API.
DONE = b"data: [DONE]\n\n"
_OBJECTS = {CHAT.name: "chat.completion.chunk", COMPLETION.name: "text_completion"}


@contextmanager
def unreadable_answers_refused() -> Iterator[None]:
    """Report an answer whose fields have other types than the API's, which upstreams may send.

    Raises:
        ServingError: 502.
    """
    try:
        yield
    except (AttributeError, BadRequestError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ServingError(
            502,
            f"the upstream's answer cannot be read: {type(error).__name__}, where a chat completion belongs",
            code="upstream_invalid",
        ) from None


def json_bytes_of(value: Any) -> bytes:
    """Return a result or chunk as JSON, with only the fields that are set."""
    # Looked up, because pydantic's isinstance takes longer. Its own method would decode the bytes.
    serializer = getattr(value, "__pydantic_serializer__", None)
    if serializer is None:
        return json_of(value)
    content: bytes = serializer.to_json(value, exclude_unset=True, by_alias=True, warnings=False)
    return content


def whole_body(result: CallResult, call: IncomingCall) -> bytes:
    """Return the body of a complete answer: the upstream's own if it can be sent unchanged.

    Raises:
        APIError: the upstream's response could not be decoded.
    """
    value = result.unwrap()
    if call.meta and isinstance(value, MeteredModel):
        extension = {EXTENSION: call_extension(value.meta)}
        return json_of({**value.to_dict(mode="json", warnings=False), **extension})
    return upstream_body(result, call.request) or json_bytes_of(value)


def vectors_body(result: CallResult, call: IncomingCall) -> bytes:
    """Return the body of embeddings that an engine in this process made; see :func:`whole_body`.

    Each vector is encoded by itself, so that other threads may run meanwhile: millions of numbers take long.
    """
    value = result.unwrap()
    vectors = b",".join(json_bytes_of(each) for each in value.data)
    fields = value.model_dump(mode="json", exclude={"data"}, exclude_unset=True, warnings=False)
    rest = json_of({**fields, **_record_of(value, call)})
    return b'%b,"data":[%b]}' % (rest[:-1], vectors)


def _record_of(value: Any, call: IncomingCall) -> dict[str, Any]:
    """Return the field with the call's record, if the caller asked for it."""
    return {EXTENSION: call_extension(value.meta)} if call.meta and isinstance(value, MeteredModel) else {}


def upstream_body(result: CallResult, request: Request) -> bytes | None:
    """Return the upstream's body if it uses OpenAI's format and can be sent unchanged; else None."""
    if result.reply is None or request.strategy is not None or result.dialect is not dialect("openai"):
        return None
    return result.reply.content


class EventEncoder:
    """Encodes the chunks of one stream as server-sent events.

    Args:
        call: the call that is streamed.
    """

    def __init__(self, call: IncomingCall) -> None:
        self._call = call
        self._request = call.request
        self._named = call.request.method.event_type == RESPONSE.event_type
        self._as_received = call.request.options.keeps_received
        self._last: Any = None

    def begin(self) -> bytes:
        """Return the events before the first chunk."""
        return b""

    def chunks(self, chunks: Sequence[Any]) -> bytes:
        """Return the events of chunks that arrived together."""
        self._last = chunks[-1] if chunks else self._last
        if self._as_received:
            return b"".join([b"data: %b\n\n" % _received(chunk) for chunk in chunks])
        return b"".join([_event(chunk, named=self._named) for chunk in chunks])

    def end(self, record: Callable[[], Call]) -> bytes:
        """Return the events after the last chunk.

        Args:
            record: returns the call's record, for callers that have asked for it.
        """
        last = _meta_event(self._last, record(), self._request) if self._call.meta else b""
        return last if self._named else last + DONE

    def failed(self, problem: ServingError) -> bytes:
        """Return the event of an error that ends the stream."""
        return self.error(problem.error)

    def error(self, error: Mapping[str, Any]) -> bytes:
        """Return the event of an error that ends the stream.

        Args:
            error: OpenAI's error object.
        """
        if self._named:
            fields = {name: error.get(name) for name in ("code", "message", "param")}
            return _named_event({"type": "error", **fields, "error": error})
        return b"data: %b\n\n" % json_of({"error": error})


def _meta_event(last: Any, record: Call, request: Request) -> bytes:
    """Return the event with the extension of a streamed call: a separate chunk without choices.

    Args:
        last: the last chunk, whose id the event repeats; None without one.
    """
    if request.method is RESPONSE:
        return _named_event({"type": "specclient.meta", EXTENSION: call_extension(record)})
    head = {name: getattr(last, name, None) for name in ("id", "created", "model")}
    kind = _OBJECTS[request.method.name]
    return b"data: %b\n\n" % json_of(
        {**head, "object": kind, "choices": [], EXTENSION: call_extension(record)}
    )


def call_extension(record: Call) -> dict[str, Any]:
    """Return cost, route and speculation of a call for the extension; costs are exact text."""
    return {
        "cost": _plain(record.cost),
        "route": _plain(record.route),
        "speculation": _plain(record.speculation),
        **({"cached": True, "saved": _plain(record.saved)} if record.cached else {}),
    }


def _received(chunk: Any) -> bytes:
    """Return the JSON that a chunk came in; a chunk without it is encoded."""
    data: bytes | None = chunk.__dict__.get(RECEIVED)
    return json_bytes_of(chunk) if data is None else data


def _event(chunk: Any, *, named: bool) -> bytes:
    data = json_bytes_of(chunk)
    if not named:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (str(getattr(chunk, "type", "message")).encode(), data)


def _named_event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json_of(event))


def _plain(value: Any) -> Any:
    """Return a record as JSON values; decimals become text."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value
