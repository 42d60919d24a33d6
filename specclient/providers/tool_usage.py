"""Calls of a response to tools that the vendor runs and bills beside the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from specclient.providers.reported_fields import count, fields_of
from specclient.types.usage import Usage, UsageUnit

__all__ = ["CONTAINER_SIZES", "code_executions", "with_tools"]

#: Types of the items of a response's output that are calls of tools with a price.
_TOOLS: Final = frozenset({"web_search_call", "file_search_call", "code_interpreter_call", "shell_call"})
#: Memory of a container (OpenAI, "Code Interpreter", memory tiers), the default first.
CONTAINER_SIZES: Final = ("1g", "4g", "16g", "64g")
_LONGEST_ID = 128


def with_tools(usage: Usage, output: object, answer: object) -> Usage:
    """Return ``usage`` with the calls of a response to tools that the vendor runs and bills.

    A web search is billed by its searches, not for opening the pages that it found (OpenAI, "Web search"). A
    container of the code interpreter or the hosted shell is billed once, whatever runs in it (OpenAI, "Code
    Interpreter"); its id is the unit's name. The shell of the caller has no container.

    Args:
        output: the items of the response.
        answer: the response, whose ``tools`` name the memory of containers.
    """
    if not isinstance(output, list):
        return usage
    kinds = [getattr(item, "type", None) for item in output]
    if not _TOOLS.intersection(kind for kind in kinds if isinstance(kind, str)):
        return usage
    searches = sum(
        kind == "web_search_call"
        and fields_of(getattr(item, "action", None)).get("type", "search") == "search"
        for kind, item in zip(kinds, output, strict=True)
    )
    units = list(usage.units)
    if files := kinds.count("file_search_call"):
        units.append(UsageUnit("file_search", Decimal(files)))
    for tool, used in _containers(output).items():
        kind = f"code_container {_memory_of(tool, answer)}"
        units.append(UsageUnit(kind, Decimal(len(used)), tuple(used)))
    return replace(usage, searches=searches or usage.searches, units=tuple(units))


def code_executions(server_tool_use: Mapping[str, Any]) -> tuple[UsageUnit, ...]:
    """Return the runs of code that Anthropic bills by the hour of a container, beyond free hours.

    Those of a call that searches or fetches from the web are free (Anthropic, "Code execution tool", usage).
    """
    number = count(server_tool_use.get("code_execution_requests"))
    searched = count(server_tool_use.get("web_search_requests")) or count(
        server_tool_use.get("web_fetch_requests")
    )
    return (UsageUnit("code_execution", Decimal(number)),) if number and not searched else ()


def _containers(output: list[Any]) -> dict[str, list[str]]:
    """Return the ids of the containers that ran something, by the type of the tool; each once."""
    found: dict[str, list[str]] = {}
    known: set[str] = set()
    for item in output:
        kind = getattr(item, "type", None)
        if kind == "code_interpreter_call":
            name = getattr(item, "container_id", None)
        elif kind == "shell_call":
            name = fields_of(getattr(item, "environment", None)).get("container_id")
            if name is None:  # it runs at the caller
                continue
        else:
            continue
        name = str(name)[:_LONGEST_ID]
        if name not in known:
            known.add(name)
            found.setdefault("shell" if kind == "shell_call" else "code_interpreter", []).append(name)
    return found


def _memory_of(tool: str, answer: object) -> str:
    """Return the memory of a tool's containers, as the response repeats it; the default if it does not."""
    tools = getattr(answer, "tools", None)
    for each in tools if isinstance(tools, list) else ():
        fields = fields_of(each)
        if fields.get("type") != tool:
            continue
        place = fields_of(fields.get("container") or fields.get("environment"))
        memory = place.get("memory_limit")
        if memory in CONTAINER_SIZES:
            return str(memory)
    return CONTAINER_SIZES[0]
