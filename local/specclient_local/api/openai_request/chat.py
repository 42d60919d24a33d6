"""Parse a chat request's messages, predicted output and tools."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from specclient_local.api.tools.call_grammar import ToolSettings
from specclient_local.request.validation import bad_parameter, text

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_CHOICES = (
    "none, auto, required, {'type': 'function', 'function': {'name': …}}, or "
    "{'type': 'allowed_tools', 'allowed_tools': {'mode': …, 'tools': […]}}, of the tools given"
)


def parse_messages(messages: object) -> list[dict[str, Any]]:
    """Return messages in the form that all chat templates understand.

    Text parts are joined, a message with only tool calls gets empty content, and the arguments of calls
    become objects; all other fields are kept.

    Raises:
        BadRequestError: an invalid message.
    """
    if not isinstance(messages, list | tuple) or not messages:
        raise bad_parameter("messages", messages, "a non-empty list of objects")
    parsed: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise bad_parameter(f"messages[{i}]", message, "an object with role and content")
        content, calls = message.get("content"), message.get("tool_calls")
        if isinstance(content, list | tuple):
            content = "".join(_part(part, i) for part in content)
        if content is None and calls:
            content = ""
        if not isinstance(content, str):
            raise bad_parameter(f"messages[{i}].content", content, "a string or a list of text parts")
        fields = {name: value for name, value in message.items() if name != "tool_calls"}
        fields["content"] = content
        if calls:
            fields["tool_calls"] = _tool_calls(calls, f"messages[{i}].tool_calls")
        parsed.append(fields)
    return parsed


def _part(part: object, message: int) -> str:
    if _is_text(part):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise bad_parameter(
        f"messages[{message}].content", kind, "parts of type 'text'; local models accept text only"
    )


def _is_text(part: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _tool_calls(calls: object, where: str) -> list[dict[str, Any]]:
    """Return a message's calls, with their arguments parsed from JSON text, as chat templates expect."""
    if not isinstance(calls, list | tuple):
        raise bad_parameter(where, calls, "a list of calls")
    parsed: list[dict[str, Any]] = []
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not text(function.get("name")):
            raise bad_parameter(f"{where}[{i}]", call, "an object whose function has name and arguments")
        arguments = function.get("arguments") or {}
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                arguments = None
        if not isinstance(arguments, Mapping):
            at = f"{where}[{i}].function.arguments"
            raise bad_parameter(at, function["arguments"], "the JSON text of an object")
        parsed.append({**call, "function": {**function, "arguments": arguments}})
    return parsed


def parse_prediction(prediction: object) -> str | None:
    """Return the text of a predicted output, or None.

    Raises:
        BadRequestError: the value is not a prediction object.
    """
    if prediction is None:
        return None
    if isinstance(prediction, Mapping) and prediction.get("type") == "content":
        content = prediction.get("content")
        if isinstance(content, str):
            return content
        if isinstance(content, list | tuple) and all(_is_text(part) for part in content):
            return "".join(part["text"] for part in content)
    allowed = '{"type": "content", "content": …} with a string or a list of text parts'
    raise bad_parameter("prediction", prediction, allowed)


def parse_tools(given: Mapping[str, Any]) -> ToolSettings | None:
    """Return the request's tools; None without tools or with ``tool_choice="none"``.

    Args:
        given: the request's parameters.

    Raises:
        BadRequestError: an invalid tool or ``tool_choice``.
    """
    tools = given.get("tools") or []
    if not isinstance(tools, list | tuple):
        raise bad_parameter("tools", tools, "a list of objects")
    functions = [_tool(tool, i) for i, tool in enumerate(tools)]
    names = [function["function"]["name"] for function in functions]
    if len(set(names)) < len(names):
        raise bad_parameter("tools", names, "tools with distinct names")
    parallel = given.get("parallel_tool_calls", True)
    if not isinstance(parallel, bool):
        raise bad_parameter("parallel_tool_calls", parallel, "true or false")
    return _apply_choice(given.get("tool_choice", "auto"), ToolSettings(functions, parallel=parallel))


def _tool(tool: object, index: int) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping):
        raise bad_parameter(
            f"tools[{index}]", tool, "{'type': 'function', 'function': {…}}; only functions are supported"
        )
    name, schema = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad_parameter(
            f"tools[{index}].function.name", name, "up to 128 letters, digits, dots, dashes and underscores"
        )
    if not isinstance(schema, Mapping | None):
        raise bad_parameter(f"tools[{index}].function.parameters", schema, "a JSON schema of an object")
    return {"type": "function", "function": dict(function)}


def _apply_choice(choice: object, tools: ToolSettings) -> ToolSettings | None:
    """Return tools with ``tool_choice`` applied; None where no tool may be called."""
    if choice == "none" or (choice == "auto" and not tools.definitions):
        return None
    if choice == "auto":
        return tools
    if choice == "required" and tools.definitions:
        return replace(tools, choice="required")
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if isinstance(choice, Mapping) and kind == "function":
        name = _function_name(choice)
        if name is not None and name in tools.names:
            return replace(tools, choice="required", allowed=frozenset({name}), parallel=False)
    if isinstance(choice, Mapping) and kind == "allowed_tools":
        subset = choice.get("allowed_tools")
        mode, listed = (
            (subset.get("mode"), subset.get("tools")) if isinstance(subset, Mapping) else (None, None)
        )
        allowed = frozenset[Any](map(_function_name, listed if isinstance(listed, list | tuple) else ()))
        if mode in ("auto", "required") and allowed and allowed <= tools.names:
            return replace(tools, choice=mode, allowed=allowed)
    raise bad_parameter("tool_choice", choice, _CHOICES)


def _function_name(tool: object) -> str | None:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None
