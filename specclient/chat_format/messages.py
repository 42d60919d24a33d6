"""Messages and tools of OpenAI's API in the form that chat templates read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

#: Fields of a message that servers give to their templates.
_FIELDS = ("name", "tool_call_id", "reasoning", "reasoning_content")


class UnrenderedMessageError(ValueError):
    """A message that servers render in different ways, or not at all; ``str`` states which and why."""


def template_messages(messages: object, *, parts: bool = False) -> list[dict[str, Any]]:
    """Return messages as inference servers give them to a chat template (vLLM, ``renderers/chat_utils.py``).

    A missing content is empty, and the arguments of tool calls are objects instead of JSON text.

    Args:
        messages: mappings, or objects of OpenAI's types.
        parts: whether the template reads contents as lists of parts; otherwise they are texts.

    Raises:
        UnrenderedMessageError: a message has no role; a content is no text, or has several parts where the
            template reads texts, which servers join with different characters; a tool call is malformed.
    """
    if not isinstance(messages, Iterable) or isinstance(messages, str | Mapping):
        raise UnrenderedMessageError(
            f"messages is a {type(messages).__name__}; it must be a list of messages"
        )
    found = [_message(fields_of(message), i, parts=parts) for i, message in enumerate(messages)]
    if not found:
        raise UnrenderedMessageError("messages is empty")
    return found


def template_tools(tools: object) -> list[dict[str, Any]]:
    """Return tools as servers give them to a template: known fields in OpenAI's order, absent ones null.

    Raises:
        UnrenderedMessageError: a tool is no function.
    """
    found: list[dict[str, Any]] = []
    for i, tool in enumerate(tools if isinstance(tools, list | tuple) else ()):
        function = fields_of(fields_of(tool).get("function"))
        if not isinstance(function.get("name"), str):
            raise UnrenderedMessageError(f"tools[{i}] is no function with a name")
        fields = {name: function.get(name) for name in ("name", "description", "parameters")}
        strict = function.get("strict")
        found.append(
            {"type": "function", "function": fields if strict is None else {**fields, "strict": strict}}
        )
    return found


def fields_of(value: object) -> Mapping[str, Any]:
    """Return the fields of a mapping or of an object of OpenAI's types; none for anything else."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    return dump(exclude_unset=True) if callable(dump) else {}


def _message(message: Mapping[str, Any], index: int, *, parts: bool) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise UnrenderedMessageError(f"messages[{index}] has no role")
    texts = _texts(message.get("content"), f"messages[{index}].content")
    content: Any = [{"type": "text", "text": text} for text in texts]
    if not parts or role == "tool":
        if len(texts) > 1:
            raise UnrenderedMessageError(
                f"messages[{index}].content has {len(texts)} parts, which servers join in different ways; "
                "pass one text"
            )
        content = texts[0] if texts else ""
    found = {"role": role, "content": content}
    found |= {name: message[name] for name in _FIELDS if message.get(name) is not None}
    if calls := message.get("tool_calls"):
        found["tool_calls"] = [
            _call(call, f"messages[{index}].tool_calls[{i}]") for i, call in enumerate(calls)
        ]
    return found


def _texts(content: object, where: str) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    texts: list[str] = []
    for part in content if isinstance(content, list | tuple) else (None,):
        fields = fields_of(part)
        text = fields.get("text")
        if fields.get("type") != "text" or not isinstance(text, str):
            raise UnrenderedMessageError(f"{where} is not only text")
        texts.append(text)
    return texts


def _call(call: object, where: str) -> dict[str, Any]:
    fields = fields_of(call)
    function = fields_of(fields.get("function"))
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = None
    if not isinstance(function.get("name"), str) or not isinstance(arguments, Mapping):
        raise UnrenderedMessageError(f"{where} is no function call with arguments as the JSON of an object")
    return {**fields, "function": {**function, "arguments": arguments}}
