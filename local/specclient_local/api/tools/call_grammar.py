"""Turn tools into the grammar of an answer that calls them, as :mod:`llguidance` reads it.

Its Lark dialect takes JSON schemas (``%json``), tokens by id (``<[7]>``) and lexemes that end as soon as
they can (``[lazy]``): github.com/guidance-ai/llguidance, docs/syntax.md, "Tool calling".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specclient_local.api.tools.call_parser import ToolCallFormat

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
#: JSON as templates show it to the models: on one line, a space behind commas and colons.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What an answer may call.

    Attributes:
        given: the tools in OpenAI's form, as the template shows them.
        choice: whether it calls one: as it likes, or for certain.
        only: the names of those it may call; None for all.
        several: whether it may call more than once.
        schema: of the JSON that an answer is which calls none; None leaves that free.
    """

    given: Sequence[Mapping[str, Any]]
    choice: Literal["auto", "required"] = "auto"
    only: frozenset[str] | None = None
    several: bool = True
    schema: Mapping[str, Any] | None = None

    @property
    def names(self) -> frozenset[str]:
        """Of all tools."""
        return frozenset(tool["function"]["name"] for tool in self.given)

    @property
    def callable(self) -> list[Mapping[str, Any]]:
        """The functions that may be called."""
        functions = [tool["function"] for tool in self.given]
        return [f for f in functions if self.only is None or f["name"] in self.only]


def tool_call_grammar(
    tools: ToolSettings, form: ToolCallFormat, token: Callable[[str], int | None]
) -> str | None:
    """Return the grammar that an answer is held to, or None where it is free.

    It is free where the model chooses by itself whether to call, unless a tool is ``strict``, only some may
    be called, or the answer must be JSON anyway. What is held to: the form, the tools' names, and for the
    arguments their schemas.

    Args:
        tools: what may be called.
        form: how calls are written.
        token: the id of a token that was added to the vocabulary under a name, or None.
    """
    called = tools.callable
    held = tools.only is not None or any(function.get("strict") for function in called)
    if tools.choice == "auto" and tools.schema is None and not held:
        return None
    rules = [f"call: {' | '.join(f'call_{i}' for i in range(len(called)))}"]
    for i, function in enumerate(called):
        schema = {**(function.get("parameters") or _NO_ARGUMENTS), "x-guidance": _LAYOUT}
        rules += [
            f"call_{i}: {_call(form, function['name'], f'arguments_{i}', token)}",
            f"arguments_{i}: %json {json.dumps(schema)}",
        ]
    rules.append(f"calls: {_calls(form, token, several=tools.several)}")
    if tools.choice == "required":
        start = ["start: calls"]
    elif tools.schema is not None:
        start = ["start: calls | answer", f"answer: %json {json.dumps(tools.schema)}"]
    elif form.bare:  # a call that nothing announces begins the answer
        start = [f"start: TEXT? | {_mark(form.opens, token)}? calls", r"TEXT: /\s*[^\s{](.|\n)*/"]
    else:
        start = ["start: TEXT? calls?", rf"TEXT: /(.|\n)+/ & ~/(.|\n)*{re.escape(form.opens)}(.|\n)*/"]
    return "\n".join(["%llguidance {}", *start, *rules, ""])


def _call(form: ToolCallFormat, name: str, arguments: str, token: Callable[[str], int | None]) -> str:
    """Return the right side of one call's rule."""
    if form.split:
        return f"{_literal(name)} {_mark(form.split, token)} {arguments}"
    head = f'{{"name": {json.dumps(name)}, "{form.key}": '
    return f"{_literal(head)} {arguments} {_literal('}')}"


def _calls(form: ToolCallFormat, token: Callable[[str], int | None], *, several: bool) -> str:
    """Return the right side of the rule for all calls of an answer, one at least."""
    opens = _mark(form.opens, token)
    if form.lead:
        more = f" ({_literal(form.again + ' ')} call)*" if several else ""
        return f"{opens} {_literal(form.lead)} call{more} {_literal(form.closes)}"
    if form.closes:
        one = f"{opens} {_literal(chr(10))} call {_literal(chr(10))} {_mark(form.closes, token)}"
        return f"{one} ({_literal(chr(10))} {one})*" if several else one
    if form.split:
        return f"({opens} call)+" if several else f"{opens} call"
    more = f" ({_literal(form.again + ' ')} call)*" if several else ""
    return f"call{more}"


def _mark(text: str, token: Callable[[str], int | None]) -> str:
    """Return a token by its id, or text where it is none: llguidance writes no such token as text."""
    number = token(text)
    return _literal(text) if number is None else f"<[{number}]>"


def _literal(text: str) -> str:
    return json.dumps(text)
