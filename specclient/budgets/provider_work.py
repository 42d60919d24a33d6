"""Requests whose cost has no bound: the provider runs tools or further models, or bills another price."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specclient.budgets.answers import fields_in, plain_name

__all__ = ["provider_work", "searching_model", "stored_field"]

#: Types of tools that the caller runs. Providers run all others, in any number of billed turns.
_CALLERS_TOOLS = frozenset({"function", "custom", "local_shell", "apply_patch", "computer_use_preview"})
#: Fields of vendors' tools without a type: functions of the caller, and cache breakpoints.
_DECLARED = frozenset(
    {"function", "functionDeclarations", "function_declarations", "toolSpec", "cachePoint", "cache_control",
     "prompt_cache_breakpoint"}
)  # fmt: skip
#: Tools that Gemini runs. One object may hold them beside the caller's functions.
_GEMINI_TOOLS = frozenset(
    {"googlesearch", "googlesearchretrieval", "urlcontext", "codeexecution", "googlemaps", "filesearch",
     "computeruse", "enterprisewebsearch", "retrieval", "mcpservers"}
)  # fmt: skip
#: Parameters that let a provider search, call tools or ask further models by itself: of OpenAI, Anthropic,
#: OpenRouter, xAI (``search_parameters``), Alibaba (``enable_search``), Cohere (``connectors``) and Groq
#: (``compound_custom``).
_WORK = frozenset(
    {"websearchoptions", "mcpservers", "plugins", "fallbacks", "compaction", "searchparameters",
     "enablesearch", "connectors", "compoundcustom"}
)  # fmt: skip
#: Parameters that name further models, whose prices may be higher.
_MODELS = frozenset({"models", "preset", "route"})
#: Parameters that change the price of a token, each with the values that keep it.
_PRICED: Mapping[str, frozenset[str]] = {
    "servicetier": frozenset({"auto", "default", "standard", "standard_only", "flex", "batch"}),
    "speed": frozenset({"standard"}),
    "inferencegeo": frozenset({"global", "not_available"}),
}
#: Models that search by themselves (OpenAI, "Web search"; OpenRouter, "Web search", its suffix).
_SEARCHING = re.compile(r":online$|-search-(?:preview|api)|deep-research")
#: Fields that name content stored at the provider, whose tokens it bills: Gemini's and OpenAI's files, and
#: Gemini's cached contents.
_STORED = frozenset({"cachedcontent", "filedata", "fileuri", "fileid"})


def provider_work(params: Mapping[str, Any]) -> str | None:
    """Return why a call may cost more than its tokens at the model's price; None if it may not.

    Args:
        params: all parameters of a request, also those outside the API.
    """
    for name, value in params.items():
        plain = plain_name(name)
        if value is None or value is False or value in ([], {}):
            if plain == "websearchoptions" and value == {}:
                return _unbounded(name)
            continue
        if plain in _WORK:
            return _unbounded(name)
        if plain in _MODELS:
            return f"{name} names further models, whose prices may be higher"
        allowed = _PRICED.get(plain)
        if allowed is not None and not (isinstance(value, str) and value.lower() in allowed):
            return f"{name}={str(value)[:40]!r} is billed at a price that is not known"
    if _mentions_compaction(params.get("context_management")):
        return _unbounded("context_management")
    config = params.get("toolConfig")
    own = config.get("tools") if isinstance(config, Mapping) else None  # Bedrock's
    return _tool_work(params.get("tools")) or _tool_work(own)


def searching_model(model: str) -> str | None:
    """Return why calls of a model may cost more than their tokens: it searches the web by itself."""
    if _SEARCHING.search(model):
        return f"{model[:80]} searches the web by itself any number of times, which is billed in addition"
    return None


def stored_field(body: Mapping[str, Any]) -> str | None:
    """Return a field among those outside the API that names stored content; None if there is none."""
    stored = (
        name
        for name, value in fields_in(body)
        if isinstance(name, str) and plain_name(name) in _STORED and value
    )
    return next(stored, None)


def _unbounded(name: str) -> str:
    return f"the provider's work for {name} is billed in addition and has no bound"


def _tool_work(tools: Any) -> str | None:
    for tool in tools if isinstance(tools, list | tuple) else ():
        kind = tool.get("type") if isinstance(tool, Mapping) else "function"
        if isinstance(tool, Mapping):  # Gemini's and Bedrock's tools are named by one of their fields
            run = next((name for name in tool if plain_name(str(name)) in _GEMINI_TOOLS), None)
            if run is None and kind is None:
                run = next((name for name in tool if name not in _DECLARED), None)
            kind = kind if run is None else run
        if kind is not None and not (isinstance(kind, str) and kind in _CALLERS_TOOLS):
            return f"the provider runs the tool {str(kind)[:60]!r} itself, any number of times, and bills it"
    return None


def _mentions_compaction(management: Any) -> bool:
    """Return whether Anthropic's context management lets the model summarise the conversation."""
    edits = management.get("edits") if isinstance(management, Mapping) else None
    kinds = (
        [edit.get("type") for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else []
    )
    return any(isinstance(kind, str) and kind.startswith("compact") for kind in kinds)
