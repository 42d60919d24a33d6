"""Function tools made from pydantic models, and parsing of tool call arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import pydantic

from specclient.errors import ConfigurationError
from specclient.structured.schema import is_set, to_strict_json_schema

if TYPE_CHECKING:
    from specclient.types.chat.params import ChatCompletionFunctionToolParam
    from specclient.types.responses.params import FunctionToolParam

ToolMapping = Mapping[str, Any]


class PydanticFunctionTool(dict[str, Any]):
    """The definition of a function, with the pydantic model of its arguments in ``model``."""

    def __init__(self, definition: Mapping[str, Any], model: type[pydantic.BaseModel]) -> None:
        super().__init__(definition)
        self.model = model


class ResponsesPydanticFunctionTool(PydanticFunctionTool):
    """A :class:`PydanticFunctionTool` in the flat form of the Responses API."""


def pydantic_function_tool(
    model: type[pydantic.BaseModel], *, name: str | None = None, description: str | None = None
) -> ChatCompletionFunctionToolParam:
    """Return a strict function tool for chat completions. Its calls are parsed into ``model``.

    Args:
        model: the pydantic model of the function's arguments.
        name: the function's name; by default the name of the class.
        description: the function's description; by default the docstring of the class.
    """
    definition: dict[str, Any] = {
        "name": name or model.__name__,
        "strict": True,
        "parameters": to_strict_json_schema(model),
    }
    if description is None:
        description = model.__doc__
    if description is not None:
        definition["description"] = description
    function: Any = PydanticFunctionTool(definition, model)
    return {"type": "function", "function": function}


def pydantic_responses_function_tool(
    model: type[pydantic.BaseModel],
    *,
    name: str | None = None,
    description: str | None = None,
    defer_loading: Any = None,
) -> FunctionToolParam:
    """Return a strict function tool for the Responses API. Its calls are parsed into ``model``.

    Args:
        model, name, description: see :func:`pydantic_function_tool`.
        defer_loading: whether the function is only available through a tool search.
    """
    definition = pydantic_function_tool(model, name=name, description=description)["function"]
    tool = ResponsesPydanticFunctionTool({"type": "function", **definition}, model)
    if is_set(defer_loading):
        tool["defer_loading"] = defer_loading
    return cast("FunctionToolParam", tool)


def listed_tools(tools: Iterable[ToolMapping] | Any) -> list[ToolMapping]:
    """Return ``tools``, which may be an iterator, as a list; an empty list if not given."""
    return list(tools) if is_set(tools) else []


def given_tools(tools: Iterable[ToolMapping] | Any) -> Any:
    """Return ``tools``, which may be an iterator, as a list; unchanged if not given.

    The list is used twice: it is sent, and its definitions are used to parse the response.
    """
    return list(tools) if is_set(tools) else tools


def strict_tools(tools: Iterable[ToolMapping] | Any) -> Any:
    """Return ``tools`` as a list for ``chat.completions.parse``; unchanged if not given.

    Raises:
        ConfigurationError: (also a ``ValueError``) the calls of a tool cannot be parsed.
    """
    if not is_set(tools):
        return tools
    listed = listed_tools(tools)
    for tool in listed:
        if tool["type"] != "function":
            raise ConfigurationError(
                f"tools contains one of type `{tool['type']}`; only `function` tools support auto-parsing: "
                "leave it out, or call create() and read the tool calls yourself"
            )
        if tool["function"].get("strict") is not True:
            raise ConfigurationError(
                f"`{tool['function']['name']}` is not strict. Only `strict` function tools can be "
                "auto-parsed: add 'strict': True, or make the tool with pydantic_function_tool()"
            )
    return listed


def response_tools(tools: Iterable[ToolMapping] | Any) -> Any:
    """Return ``tools`` in the form of the Responses API.

    Tools made by :func:`pydantic_function_tool` are converted from the form of chat completions.

    Raises:
        ConfigurationError: any other tool has the form of chat completions.
    """
    if not is_set(tools):
        return tools
    return [_response_tool(tool) for tool in tools]


def _response_tool(tool: ToolMapping) -> ToolMapping:
    if tool["type"] == "namespace":
        return {**tool, "tools": list(tool["tools"])}  # an iterator can be read only once
    if tool["type"] != "function" or "function" not in tool:
        return tool
    function = tool["function"]
    if not isinstance(function, PydanticFunctionTool):
        raise ConfigurationError(
            f"the tool {function.get('name')!r} has the shape of chat completions; give the Responses API "
            '{"type": "function", "name": …, "parameters": …}, or make it with pydantic_function_tool()'
        )
    flat = {"type": "function", "description": None, **function, "strict": bool(function.get("strict"))}
    return ResponsesPydanticFunctionTool(flat, function.model)


class ChatTools:
    """The function tools of one chat request, by name.

    Args:
        tools: the request's ``tools``; :data:`NOT_GIVEN` or None if it has none.
    """

    def __init__(self, tools: Iterable[ToolMapping] | Any = None) -> None:
        self._functions: dict[str, Mapping[str, Any]] = {}
        for tool in listed_tools(tools):
            if tool["type"] == "function" and "function" in tool:
                function = tool["function"]
                self._functions.setdefault(function.get("name"), function)

    @property
    def parseable(self) -> bool:
        """Whether the calls of any tool are parsed."""
        return any(
            isinstance(function, PydanticFunctionTool) or function.get("strict")
            for function in self._functions.values()
        )

    def is_strict(self, name: str | None) -> bool:
        """Return whether the function ``name`` is strict, so that incomplete arguments can be parsed."""
        return bool(self._functions.get(cast("str", name), {}).get("strict"))

    def parse(self, name: str | None, arguments: str) -> object:
        """Return a call's arguments as the tool's model or as decoded JSON; None if the tool is not strict.

        Raises:
            pydantic.ValidationError: the arguments are not valid for the model.
            json.JSONDecodeError: the arguments are not valid JSON.
        """
        return _parsed(self._functions.get(cast("str", name)), arguments)


def parse_response_call(
    tools: Iterable[ToolMapping] | Any, name: str, namespace: str | None, arguments: str
) -> object:
    """Return the parsed arguments of a Responses API function call; see :meth:`ChatTools.parse`."""
    return _parsed(_response_function(listed_tools(tools), name, namespace), arguments)


def _response_function(tools: list[ToolMapping], name: str, namespace: str | None) -> ToolMapping | None:
    if namespace is not None:
        for tool in tools:
            if tool["type"] == "namespace" and tool["name"] == namespace:
                return _named(tool["tools"], name)
        if namespace != name:  # a function loaded by a tool search may have its own name as namespace
            return None
    return _named(tools, name)


def _named(tools: Iterable[ToolMapping], name: str) -> ToolMapping | None:
    return next((tool for tool in tools if tool["type"] == "function" and tool.get("name") == name), None)


def _parsed(function: Mapping[str, Any] | None, arguments: str) -> object:
    if function is None:
        return None
    if isinstance(function, PydanticFunctionTool):
        return function.model.model_validate_json(arguments)
    return json.loads(arguments) if function.get("strict") else None
