"""What a provider does for a request by itself, in any amount, so that the cost of a call has no bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Types of tools that the caller runs; providers run all others, in any number of turns that they bill.
_CALLERS_TOOLS = frozenset({"function", "custom", "local_shell", "apply_patch", "computer_use_preview"})
#: Fields of a tool without a type, in vendors' forms: functions of the caller, and places to cache.
_DECLARED = frozenset(
    {"function", "functionDeclarations", "toolSpec", "cachePoint", "cache_control", "prompt_cache_breakpoint"}
)
#: Parameters that let a provider search, call tools or ask further models by itself.
_PROVIDERS_WORK = ("web_search_options", "mcp_servers", "plugins", "fallbacks", "compaction")


def provider_work(params: Mapping[str, Any]) -> str | None:
    """Return why a provider may work on without a bound; None if it does not."""
    name = next((name for name in _PROVIDERS_WORK if params.get(name) not in (None, [])), None)
    if name is not None:
        return f"what the provider does for {name} is billed in addition and has no bound"
    if _mentions_compaction(params.get("context_management")):
        return "what the provider does for context_management is billed in addition and has no bound"
    tools, config = params.get("tools"), params.get("toolConfig")
    tools = list(tools) if isinstance(tools, list | tuple) else []
    own = config.get("tools") if isinstance(config, Mapping) else None  # Bedrock's
    for tool in [*tools, *(own if isinstance(own, list | tuple) else ())]:
        kind = tool.get("type") if isinstance(tool, Mapping) else "function"
        if isinstance(tool, Mapping) and kind is None:  # Gemini's and Bedrock's have their names as fields
            kind = next((name for name in tool if name not in _DECLARED), None)
        if kind is not None and not (isinstance(kind, str) and kind in _CALLERS_TOOLS):
            return f"the provider runs the tool {str(kind)[:60]!r} itself, as often as it likes, and bills it"
    return None


def _mentions_compaction(management: Any) -> bool:
    """Return whether Anthropic's context management lets the model summarise the conversation."""
    edits = management.get("edits") if isinstance(management, Mapping) else None
    kinds = (
        [edit.get("type") for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else []
    )
    return any(isinstance(kind, str) and kind.startswith("compact") for kind in kinds)
