"""Structured outputs: JSON schemas from types, parsed responses, and the events of streamed responses."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specclient.structured.chat.parsing import parse_chat_completion
    from specclient.structured.responses.parsing import output_format, parse_response, text_with_format
    from specclient.structured.schema import chat_format, text_format_param, to_strict_json_schema
    from specclient.structured.tools import (
        given_tools,
        pydantic_function_tool,
        pydantic_responses_function_tool,
        response_tools,
        strict_tools,
    )

_WHERE = {
    "chat_format": "schema",
    "given_tools": "tools",
    "output_format": "responses.parsing",
    "parse_chat_completion": "chat.parsing",
    "parse_response": "responses.parsing",
    "pydantic_function_tool": "tools",
    "pydantic_responses_function_tool": "tools",
    "response_tools": "tools",
    "strict_tools": "tools",
    "text_format_param": "schema",
    "text_with_format": "responses.parsing",
    "to_strict_json_schema": "schema",
}

__all__ = [
    "chat_format",
    "given_tools",
    "output_format",
    "parse_chat_completion",
    "parse_response",
    "pydantic_function_tool",
    "pydantic_responses_function_tool",
    "response_tools",
    "strict_tools",
    "text_format_param",
    "text_with_format",
    "to_strict_json_schema",
]


def __getattr__(name: str) -> Any:
    """Load a module on first use, so that defining a tool does not import the response types."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
