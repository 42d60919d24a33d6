"""Translation of a Messages API request's tools to those of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.openai_http.errors import bad_request, shown

__all__ = ["chat_tools", "native_chat_tools"]

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_tools(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters ``tools``, ``tool_choice`` and ``parallel_tool_calls``.

    Raises:
        ServingError: 400, a tool is not the caller's own, or the choice is not one of Anthropic's.
    """
    given = fields.get("tools", [])
    if not isinstance(given, list):
        raise bad_request("tools", f"tools is {shown(given)}; it must be an array of objects")
    tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(given)]
    choice = _choice(fields["tool_choice"]) if "tool_choice" in fields else {}
    return {"tools": tools, **choice} if tools else {}


def native_chat_tools(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tools for Anthropic's own models: tools that Anthropic runs, and the choice, are kept."""
    found: dict[str, Any] = {}
    if isinstance(fields.get("tools"), list):
        found["tools"] = [_function(tool) if _is_own(tool) else tool for tool in fields["tools"]]
    return {**found, "tool_choice": fields["tool_choice"]} if "tool_choice" in fields else found


def _is_own(tool: object) -> bool:
    """Return whether the caller runs a tool itself and describes it by a schema."""
    return isinstance(tool, dict) and tool.get("type") in (None, "custom") and "input_schema" in tool


def _tool(tool: object, where: str) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise bad_request(where, f"{where} is {shown(tool)}; it must be an object")
    if not _is_own(tool):
        raise bad_request(
            where,
            f"{where} has the type {shown(tool.get('type'))}, which only Anthropic's models have; other "
            "models take tools of the type 'custom', with name and input_schema",
        )
    function = _function(tool)["function"]
    if not isinstance(function["name"], str) or not isinstance(function["parameters"], dict):
        raise bad_request(where, f"{where} must have a name and an input_schema that is an object")
    return {"type": "function", "function": function}


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
        "strict": tool.get("strict"),
    }
    cache = {"cache_control": tool["cache_control"]} if tool.get("cache_control") else {}
    for name in ("description", "strict"):
        if function[name] is None:
            del function[name]
    return {"type": "function", "function": function, **cache}


def _choice(choice: object) -> dict[str, Any]:
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(kind, str) or kind not in (*_CHOICES, "tool"):
        what = shown(choice) if kind is None else f"of the type {shown(kind)}"
        raise bad_request(
            "tool_choice", f"tool_choice is {what}; its type must be one of {', '.join(_CHOICES)}, tool"
        )
    found: dict[str, Any] = {"tool_choice": _CHOICES.get(kind)}
    if kind == "tool":
        if not isinstance(choice.get("name"), str):
            raise bad_request("tool_choice.name", "tool_choice.name must be the name of a tool")
        found["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    if choice.get("disable_parallel_tool_use") is True and kind != "none":
        found["parallel_tool_calls"] = False
    return found
