"""Turn what a chat brings beside its settings into plain text and objects: messages, predictions, tools."""

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
    """Return messages as any template understands them.

    Text parts are joined, an answer that only calls tools has the empty text, and the arguments of calls are
    objects; all other fields are kept.

    Raises:
        BadRequestError: naming the message and what is allowed.
    """
    if not isinstance(messages, list | tuple) or not messages:
        raise bad_parameter("messages", messages, "a non-empty list of objects")
    plain: list[dict[str, Any]] = []
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
        made = {name: value for name, value in message.items() if name != "tool_calls"}
        made["content"] = content
        if calls:
            made["tool_calls"] = _calls(calls, f"messages[{i}].tool_calls")
        plain.append(made)
    return plain


def _part(part: object, message: int) -> str:
    if _is_text(part):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise bad_parameter(
        f"messages[{message}].content", kind, "parts of type 'text'; the local models read text only"
    )


def _is_text(part: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _calls(calls: object, where: str) -> list[dict[str, Any]]:
    """Return an answer's calls; the API has their arguments as text, the templates as objects."""
    if not isinstance(calls, list | tuple):
        raise bad_parameter(where, calls, "a list of calls")
    made: list[dict[str, Any]] = []
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not text(function.get("name")):
            raise bad_parameter(
                f"{where}[{i}]", call, "an object with function, and in it name and arguments"
            )
        arguments = function.get("arguments") or {}
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                arguments = None
        if not isinstance(arguments, Mapping):
            at = f"{where}[{i}].function.arguments"
            raise bad_parameter(at, function["arguments"], "the JSON text of an object")
        made.append({**call, "function": {**function, "arguments": arguments}})
    return made


def parse_prediction(prediction: object) -> str | None:
    """Return the text that the user expects, or None.

    Raises:
        BadRequestError: it is no prediction.
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
    """Return what an answer may call; None for nothing, and where calls are ruled out (``none``).

    Args:
        given: a request's parameters.

    Raises:
        BadRequestError: naming the tool, or the choice, and what is allowed.
    """
    tools = given.get("tools") or []
    if not isinstance(tools, list | tuple):
        raise bad_parameter("tools", tools, "a list of objects")
    functions = [_tool(tool, i) for i, tool in enumerate(tools)]
    names = [function["function"]["name"] for function in functions]
    if len(set(names)) < len(names):
        raise bad_parameter("tools", names, "tools of different names")
    several = given.get("parallel_tool_calls", True)
    if not isinstance(several, bool):
        raise bad_parameter("parallel_tool_calls", several, "true or false")
    return _chosen(given.get("tool_choice", "auto"), ToolSettings(functions, several=several))


def _tool(tool: object, place: int) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping):
        raise bad_parameter(f"tools[{place}]", tool, "{'type': 'function', 'function': {…}}: functions alone")
    name, schema = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad_parameter(
            f"tools[{place}].function.name", name, "up to 128 letters, digits, dots, dashes and underscores"
        )
    if not isinstance(schema, Mapping | None):
        raise bad_parameter(f"tools[{place}].function.parameters", schema, "a JSON schema of an object")
    return {"type": "function", "function": dict(function)}


def _chosen(choice: object, tools: ToolSettings) -> ToolSettings | None:
    """Return tools as ``tool_choice`` has them."""
    if choice == "none" or (choice == "auto" and not tools.given):
        return None
    if choice == "auto":
        return tools
    if choice == "required" and tools.given:
        return replace(tools, choice="required")
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if isinstance(choice, Mapping) and kind == "function":
        name = _named(choice)
        if name is not None and name in tools.names:
            return replace(tools, choice="required", only=frozenset({name}), several=False)
    if isinstance(choice, Mapping) and kind == "allowed_tools":
        among = choice.get("allowed_tools")
        mode, listed = (among.get("mode"), among.get("tools")) if isinstance(among, Mapping) else (None, None)
        only = frozenset[Any](map(_named, listed if isinstance(listed, list | tuple) else ()))
        if mode in ("auto", "required") and only and only <= tools.names:
            return replace(tools, choice=mode, only=only)
    raise bad_parameter("tool_choice", choice, _CHOICES)


def _named(tool: object) -> str | None:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None
