"""Decoding of the bodies and events of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import pydantic

from specclient.providers.errors import (
    embedded_error_of,
    error_from,
    first_invalid_field,
    invalid_response_error,
    raise_embedded_error,
)
from specclient.types.api_method import ApiMethod
from specclient.types.base import WireModel
from specclient.types.named import reader

_Wire = TypeVar("_Wire", bound=WireModel)


def parsed(cls: type[_Wire], content: bytes, status: int | None) -> _Wire:
    """Validate a body or an event as one of the API's objects."""
    try:
        return cls.received(content)
    except pydantic.ValidationError as error:
        reason = first_invalid_field(error.with_traceback(None))  # its frames hold it: a reference cycle
    # Raised here, so that no traceback or crash report refers to pydantic's error, which quotes its input.
    raise embedded_error_of(content) or invalid_response_error(content, status, reason)


def parsed_as(kind: Any, content: bytes) -> Any:
    """Validate JSON as any type that pydantic supports, or decode it if the type is not specific."""
    if isinstance(kind, type) and issubclass(kind, WireModel):
        return kind.received(content)
    if kind in (object, dict, list, Any):
        return json.loads(content)
    return pydantic.TypeAdapter(kind).validate_json(content)


def chunk_of(cls: type[_Wire], data: bytes, event: str | None) -> _Wire:
    """Decode one chunk of a streamed completion."""
    if event == "error":
        raise embedded_error_of(data) or invalid_response_error(data, None, "an error without a message")
    chunk: Any = parsed(cls, data, None)
    if chunk.__pydantic_extra__:
        raise_embedded_error(chunk)
    if not chunk.choices:
        _check_choiceless(chunk, data)
    elif (extra := chunk.choices[0].__pydantic_extra__) and "message" in extra:
        raise invalid_response_error(data, None, "a whole response where a stream was requested")
    found: _Wire = chunk
    return found


def event_of(method: ApiMethod, data: bytes, event: str | None) -> Any:
    """Decode one event of any other stream. Events of the Assistants API include their type."""
    if b'"error"' in data or event == "error":
        _raise_error_event(method, data, event)
    if event is not None and (event.startswith("thread.") or _names_events(method)):
        data = b'{"event":%b,"data":%b}' % (json.dumps(event).encode(), data)
    kind = method.event_type
    try:
        if isinstance(kind, str):
            return reader(kind)(data)
        return parsed_as(kind, data)
    except pydantic.ValidationError as error:
        reason = first_invalid_field(error)
    except ValueError as error:
        reason = str(error)
    raise embedded_error_of(data) or invalid_response_error(data, None, reason)


def _raise_error_event(method: ApiMethod, data: bytes, event: str | None) -> None:
    """Raise the error in an event, if it is one.

    As in the ``openai`` package, a typed event without the field ``error`` (``responses``) is returned
    instead, and so is every event of a hosted agent's session.
    """
    if (event is not None and event.startswith("thread.")) or method.name.startswith("beta.agents."):
        return
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(body, Mapping):
        return
    is_untyped = event == "error" and "type" not in body and method.params and not _names_events(method)
    if body.get("error") or is_untyped:
        raise error_from(body)


def _names_events(method: ApiMethod) -> bool:
    """Return whether the events of a method do not include their type (the Assistants API)."""
    return bool(method.event_type == "beta.AssistantStreamEvent")


def _check_choiceless(chunk: Any, data: bytes) -> None:
    """Raise an error for a chunk without choices that is not a usage chunk either."""
    if "choices" not in chunk.model_fields_set and (fault := embedded_error_of(data)):
        raise fault
    if not chunk.model_fields_set - (chunk.model_extra or {}).keys():
        raise invalid_response_error(data, None, "it has no field of a chunk")
