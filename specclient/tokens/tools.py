"""Token counts of the tools in a request.

OpenAI has published the rule for functions (cookbook, "How to count tokens with tiktoken", tool calls).
Anthropic adds a system prompt for tools ("Tool use", pricing). Other tools, and nested schemas, are estimated
from their JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specclient.tokens.text import Encode, TokenCount, bare_model_name, count_text

__all__ = ["count_tools", "json_text"]

#: Tokens around each function, by prefix of the model's name.
_FUNCTION = {"gpt-4o": 7, "gpt-4": 10, "gpt-3.5-turbo": 10}
_PROPERTIES, _PROPERTY = 3, 3
_ENUM, _CHOICE = -3, 3
_END = 12

#: Tokens of Anthropic's system prompt for tools: without, and with, a ``tool_choice`` that forces a tool.
_CLAUDE_FREE, _CLAUDE_FORCED = 346, 313

_PLAIN = {"type", "description", "enum", "title", "default"}
_PLAIN_SCHEMA = {"type", "properties", "required", "additionalProperties", "title", "$schema"}


def count_tools(tools: Any, model: str, *, choice: Any = None, encode: Encode | None = None) -> TokenCount:
    """Count the tokens of a request's tools. Never raises.

    Args:
        tools: the ``tools`` of ``chat.completions.create`` or ``responses.create``, or the deprecated
            ``functions``.
        model, encode: see :func:`specclient.tokens.count_text`.
        choice: the request's ``tool_choice``.
    """
    if not isinstance(tools, list | tuple) or not tools:
        return TokenCount(0)
    name = bare_model_name(model)
    frame = next((tokens for start, tokens in _FUNCTION.items() if name.startswith(start)), None)
    counts = []
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if frame is not None and isinstance(function, Mapping) and isinstance(function.get("name"), str):
            counts.append(TokenCount(frame) + _function(function, model, encode))
        else:
            counts.append(_as_json(tool, model, encode))
    counts.append(TokenCount(_beside(name, choice, known=frame is not None), estimated=frame is None))
    return TokenCount.sum(counts)


def _beside(name: str, choice: Any, *, known: bool) -> int:
    if "claude" in name.lower():
        free = choice is None or choice in ("auto", "none")
        return _CLAUDE_FREE if free else _CLAUDE_FORCED
    return _END if known else 0


def _function(function: Mapping[str, Any], model: str, encode: Encode | None) -> TokenCount:
    line = f"{function['name']}:{_sentence(function.get('description'))}"
    counts = [count_text(line, model, encode=encode)]
    schema = function.get("parameters")
    if not isinstance(schema, Mapping):
        return TokenCount.sum(counts)
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        counts.append(TokenCount(_PROPERTIES, estimated=not schema.keys() <= _PLAIN_SCHEMA))
        counts += [_property(str(key), value, model, encode) for key, value in properties.items()]
    elif not schema.keys() <= _PLAIN_SCHEMA:
        counts.append(_as_json(schema, model, encode))
    return TokenCount.sum(counts)


def _property(key: str, value: Any, model: str, encode: Encode | None) -> TokenCount:
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        return TokenCount(_PROPERTY) + count_text(key, model, encode=encode) + _as_json(value, model, encode)
    line = f"{key}:{value['type']}:{_sentence(value.get('description'))}"
    counts = [TokenCount(_PROPERTY), count_text(line, model, encode=encode)]
    choices = value.get("enum")
    if isinstance(choices, list | tuple):
        counts.append(TokenCount(_ENUM))
        counts += [TokenCount(_CHOICE) + count_text(str(each), model, encode=encode) for each in choices]
    nested = {name: part for name, part in value.items() if name not in _PLAIN}
    if nested:
        counts.append(_as_json(nested, model, encode))
    return TokenCount.sum(counts)


def _sentence(text: Any) -> str:
    return text.removesuffix(".") if isinstance(text, str) else ""


def _as_json(value: Any, model: str, encode: Encode | None) -> TokenCount:
    count = count_text(json_text(value), model, encode=encode)
    return TokenCount(count.tokens, estimated=True)


def json_text(value: Any) -> str:
    """Return a value as the JSON that is sent, or as ``str`` of it if it cannot be encoded."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError):
        try:
            return str(value)
        except Exception:  # noqa: BLE001 - a value without a text counts as 0 tokens
            return ""
