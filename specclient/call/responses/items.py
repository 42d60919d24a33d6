"""Items of responses and conversations: as they are stored and listed, and as they are sent again.

The items that callers send have shorter forms than those that the API returns:
https://platform.openai.com/docs/api-reference/responses/input-items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specclient.call.responses.ids import new_id
from specclient.call.responses.refusals import invalid

__all__ = ["Item", "sent_again", "stored_items"]

Item = dict[str, Any]

#: Fields of an item that are not sent to a model again.
_ANSWER_FIELDS = ("id", "status")


def stored_items(given: Any, earlier: Iterable[Item] = (), name: str = "input") -> list[Item]:
    """Return items as the API lists them, each with a unique id.

    Args:
        given: a text, or the items as a caller sent them, as JSON.
        earlier: the items before them, whose ids are taken.
        name: the name of their parameter, for errors.

    Raises:
        BadRequestError: an item is no object with a type.
    """
    seen = {item["id"] for item in earlier}
    sent = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(sent, list):
        raise invalid(name, f"{name} must be an array")
    found = []
    for place, item in enumerate(sent):
        made = _stored(item, f"{name}[{place}]")
        if made["id"] in seen:
            made["id"] = new_id("item")
        seen.add(made["id"])
        found.append(made)
    return found


def sent_again(items: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Return stored items as the input of a further call, to the model of any provider."""
    return [
        {name: _parts_again(value) for name, value in item.items() if name not in _ANSWER_FIELDS}
        for item in items
    ]


def _stored(item: Any, name: str) -> Item:
    kind = item.get("type", "message") if isinstance(item, Mapping) else None
    if not isinstance(kind, str) or not kind:
        raise invalid(name, f"{name} must be an object with a type, such as message")
    identity = item.get("id")
    if not isinstance(identity, str) or not identity:
        identity = new_id(_PREFIXES.get(kind, "item"))
    if kind != "message":
        status = {"status": item.get("status") or "completed"} if kind in _PREFIXES else {}
        return {**item, **status, "id": identity, "type": kind}
    role = item.get("role")
    if not isinstance(role, str):
        raise invalid(f"{name}.role", f"{name}.role must be a string")
    parts = item.get("content")
    if isinstance(parts, str):
        parts = [{"type": "output_text" if role == "assistant" else "input_text", "text": parts}]
    if not isinstance(parts, list):
        raise invalid(f"{name}.content", f"{name}.content must be a string or an array")
    status = {"status": item.get("status") or "completed"}
    return {**item, **status, "id": identity, "type": kind, "content": [_stored_part(part) for part in parts]}


_PREFIXES: Mapping[str, Any] = {"message": "msg", "function_call": "fc", "function_call_output": "fco"}
#: Fields that the API adds to the parts of a message.
_PART_DEFAULTS: Mapping[str, Item] = {
    "output_text": {"annotations": [], "logprobs": []},
    "input_image": {"detail": "auto"},
}


def _stored_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return {**_PART_DEFAULTS.get(kind, {}), **part} if isinstance(kind, str) else part


def _parts_again(value: Any) -> Any:
    """Return the parts of a content without log-probabilities; any other value unchanged."""
    if not isinstance(value, list):
        return value
    return [
        {name: inner for name, inner in part.items() if name != "logprobs"}
        if isinstance(part, Mapping)
        else part
        for part in value
    ]
