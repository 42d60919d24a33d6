"""Which of its tools a response may, or has to, call."""

from __future__ import annotations

from typing import Any, Literal

from specclient.types.base import WireModel


class ToolChoiceAllowed(WireModel):
    """Some of the tools, one of which may, or has to, be called."""

    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]
    type: Literal["allowed_tools"]


class ToolChoiceTypes(WireModel):
    """A built-in tool that has to be called."""

    type: Literal[
        "file_search",
        "web_search_preview",
        "computer",
        "computer_use_preview",
        "computer_use",
        "web_search_preview_2025_03_11",
        "image_generation",
        "code_interpreter",
    ]


class ToolChoiceFunction(WireModel):
    """A function that has to be called."""

    name: str
    type: Literal["function"]


class ToolChoiceMcp(WireModel):
    """A server whose tools, or one of them, has to be called."""

    server_label: str
    type: Literal["mcp"]
    name: str | None = None


class ToolChoiceCustom(WireModel):
    """A custom tool that has to be called."""

    name: str
    type: Literal["custom"]


class ToolChoiceApplyPatch(WireModel):
    """That files have to be changed."""

    type: Literal["apply_patch"]


class ToolChoiceShell(WireModel):
    """That the shell has to be called."""

    type: Literal["shell"]


ToolChoiceOptions = Literal["none", "auto", "required"]
