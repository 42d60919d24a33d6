"""Grammars, in :mod:`llguidance`'s format, that constrain an answer to valid tool calls.

llguidance's Lark variant supports JSON schemas (``%json``), tokens by id (``<[7]>``) and lexemes that end as
soon as possible (``[lazy]``): github.com/guidance-ai/llguidance, docs/syntax.md, "Tool calling".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specclient.chat_format.tool_calls import ToolCallFormat

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
#: Keywords that hold schemas by name, and those that say which other properties an object may have.
_SCHEMAS_BY_NAME = frozenset({"$defs", "definitions", "properties"})
_OPENING = frozenset(
    {"$ref", "additionalProperties", "anyOf", "dependentSchemas", "if", "not", "oneOf", "patternProperties"}
    | {"propertyNames", "unevaluatedProperties"}
)
#: JSON as chat templates write it: on one line, with a space after commas and colons.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """The tools of a request, and the allowed calls of them.

    Attributes:
        definitions: the tools in OpenAI's format; the chat template receives all of them.
        choice: whether a call is optional (``auto``) or ``required``.
        allowed: names of the tools that may be called; None for all.
        parallel: whether an answer may contain more than one call.
        schema: JSON schema of an answer without calls; None does not constrain it.
    """

    definitions: Sequence[Mapping[str, Any]]
    choice: Literal["auto", "required"] = "auto"
    allowed: frozenset[str] | None = None
    parallel: bool = True
    schema: Mapping[str, Any] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of all tools."""
        return frozenset(tool["function"]["name"] for tool in self.definitions)

    @property
    def allowed_functions(self) -> list[Mapping[str, Any]]:
        """The ``function`` objects of the tools that may be called."""
        functions = [tool["function"] for tool in self.definitions]
        return [f for f in functions if self.allowed is None or f["name"] in self.allowed]


def tool_call_grammar(
    tools: ToolSettings, form: ToolCallFormat, token_id: Callable[[str], int | None]
) -> str | None:
    """Return the grammar that constrains an answer, or None where it needs no constraint.

    With ``choice="auto"`` an answer is not constrained, unless a tool is ``strict``, only some tools are
    allowed, or text without calls must match a schema. The grammar fixes the call format, the tools' names,
    and the arguments by their schemas.

    Args:
        tools: the request's tools.
        form: the format in which the model writes calls.
        token_id: returns the id of an added token by its text, or None where it is not an added token.
    """
    functions = tools.allowed_functions
    constrained = tools.allowed is not None or any(function.get("strict") for function in functions)
    if tools.choice == "auto" and tools.schema is None and not constrained:
        return None
    rules = [f"call: {' | '.join(f'call_{i}' for i in range(len(functions)))}"]
    for i, function in enumerate(functions):
        schema = {**closed_schema(function.get("parameters") or _NO_ARGUMENTS), "x-guidance": _LAYOUT}
        rules += [
            f"call_{i}: {_call(form, function['name'], f'arguments_{i}', token_id)}",
            f"arguments_{i}: %json {json.dumps(schema)}",
        ]
    rules.append(f"calls: {_calls(form, token_id, parallel=tools.parallel)}")
    if tools.choice == "required":
        start = ["start: calls"]
    elif tools.schema is not None:
        start = ["start: calls | answer", f"answer: %json {json.dumps(tools.schema)}"]
    elif form.unmarked:  # a call without a start marker must begin the answer
        start = [f"start: TEXT? | {_mark(form.start_marker, token_id)}? calls", r"TEXT: /\s*[^\s{](.|\n)*/"]
    else:
        start = ["start: TEXT? calls?", rf"TEXT: /(.|\n)+/ & ~/(.|\n)*{re.escape(form.start_marker)}(.|\n)*/"]
    return "\n".join(["%llguidance {}", *start, *rules, ""])


def closed_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema whose objects have no other properties than those it names, unless it says otherwise.

    JSON Schema allows any further ones, by which a small model goes on until its limit. A function takes the
    arguments that it names. What matches the result matches the schema, too. A schema that combines others by
    ``allOf`` is not changed, because each part would exclude the properties of the others.
    """
    return schema if '"allOf"' in json.dumps(schema) else _closed(schema)


def _closed(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    found = dict(schema)
    for name in _SCHEMAS_BY_NAME & found.keys():
        if isinstance(found[name], Mapping):
            found[name] = {key: _closed(value) for key, value in found[name].items()}
    if isinstance(found.get("items"), Mapping):
        found["items"] = _closed(found["items"])
    if "properties" not in found:
        for name in ("anyOf", "oneOf"):
            if isinstance(found.get(name), list):
                found[name] = [_closed(each) for each in found[name]]
    elif _OPENING.isdisjoint(found):
        found["additionalProperties"] = False
    return found


def _call(form: ToolCallFormat, name: str, arguments: str, token_id: Callable[[str], int | None]) -> str:
    """Return the right-hand side of the rule for one call."""
    if form.arguments_marker:
        return f"{_literal(name)} {_mark(form.arguments_marker, token_id)} {arguments}"
    head = f'{{"name": {json.dumps(name)}, "{form.arguments_key}": '
    return f"{_literal(head)} {arguments} {_literal('}')}"


def _calls(form: ToolCallFormat, token_id: Callable[[str], int | None], *, parallel: bool) -> str:
    """Return the right-hand side of the rule for all calls of an answer; at least one."""
    start = _mark(form.start_marker, token_id)
    if form.list_start:
        others = f" ({_literal(form.separator + ' ')} call)*" if parallel else ""
        return f"{start} {_literal(form.list_start)} call{others} {_literal(form.end_marker)}"
    if form.end_marker:
        one = f"{start} {_literal(chr(10))} call {_literal(chr(10))} {_mark(form.end_marker, token_id)}"
        return f"{one} ({_literal(chr(10))} {one})*" if parallel else one
    if form.arguments_marker:
        return f"({start} call)+" if parallel else f"{start} call"
    others = f" ({_literal(form.separator + ' ')} call)*" if parallel else ""
    return f"call{others}"


def _mark(text: str, token_id: Callable[[str], int | None]) -> str:
    """Return an added token by id, other text as a literal: llguidance never matches added tokens as text."""
    number = token_id(text)
    return _literal(text) if number is None else f"<[{number}]>"


def _literal(text: str) -> str:
    return json.dumps(text)
