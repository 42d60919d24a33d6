"""Events as messages and messages as events, and the methods of a connection that send one event each."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import pydantic

from specclient.call.websocket.meter import CREATE
from specclient.errors import APIResponseValidationError, BadRequestError
from specclient.providers.encoding import plain_value
from specclient.resources.table.sockets import SentMessage, SocketRow
from specclient.types.named import reader
from specclient.types.params import NOT_GIVEN, is_given

__all__ = ["encode_event", "event_of_text", "parse_event", "sending_namespaces"]

#: Characters of a message that is no event which its error quotes.
_EXCERPT = 200


def encode_event(event: Any) -> tuple[str, Mapping[str, Any]]:
    """Return an event as the text to send, and decoded.

    Args:
        event: a mapping, or an object of one of OpenAI's types.

    Returns:
        The text; and the event as a mapping, with the values that the caller gave unless it requests a
        response, which is read again to be recorded.

    Raises:
        BadRequestError: it has no JSON form.
    """
    try:
        if isinstance(event, pydantic.BaseModel):
            # The indented text that the OpenAI client sends; an object of its own types is accepted, too.
            text = event.model_dump_json(indent=2, by_alias=True, exclude_unset=True)
            return text, event_of_text(text)
        text = json.dumps(event, default=plain_value, allow_nan=False)
        again = not isinstance(event, Mapping) or event.get("type") == CREATE
        return text, event_of_text(text) if again else event
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequestError(f"the event cannot be sent as JSON: {error}") from error


def event_of_text(message: str | bytes) -> Mapping[str, Any]:
    """Return the event in a message that the caller sends; empty if it is none."""
    try:
        decoded = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def parse_event(row: SocketRow, message: str | bytes) -> Any:
    """Return the event in a message of the server; one of an unknown type has the fields of its JSON.

    Raises:
        APIResponseValidationError: the message is no event: not JSON, or not an object.
    """
    data = message.encode() if isinstance(message, str) else message
    try:
        return reader(row.events)(data)
    except (pydantic.ValidationError, ValueError, RecursionError):
        text = data[:_EXCERPT].decode("utf-8", "replace")
        raise APIResponseValidationError(
            body=text,
            message=f"the server sent a WebSocket message that is no event of {row.name}: it must be a JSON "
            f"object; it begins: {text!r}",
        ) from None


def sending_namespaces(row: SocketRow, send: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
    """Return the objects with a connection's sending methods: ``session`` with ``update``, and so on.

    Args:
        send: sends an event; the methods return what it returns.
    """
    root = SendingMethods("connection")
    for path, message in row.sends.items():
        *parents, name = path.split(".")
        place = root
        for parent in parents:
            place = vars(place).setdefault(parent, SendingMethods(parent))
        vars(place)[name] = _method(name, message, send)
    return {name: value for name, value in vars(root).items() if not name.startswith("_")}


class SendingMethods:
    """A group of methods of a connection, each of which sends one event, or of further groups."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}: {', '.join(name for name in vars(self) if not name.startswith('_'))}>"


def _method(name: str, message: SentMessage, send: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Any]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            each, keyword, default=NOT_GIVEN if each not in message.required else inspect.Parameter.empty
        )
        for each in message.fields
    ]
    signature = inspect.Signature(sorted(parameters, key=lambda one: one.default is NOT_GIVEN))

    def method(**given: Any) -> Any:
        try:
            signature.bind(**given)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        event = {"type": message.kind}
        event |= {each: given[each] for each in message.fields if each in given and is_given(given[each])}
        return send(event)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Send the event ``{message.kind}``."
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method
