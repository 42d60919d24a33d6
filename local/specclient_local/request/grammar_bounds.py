"""Measures grammars and refuses those that are too large, before a compiler reads them.

The compiler (llguidance) descends into rules, groups and schemas recursively. If they are nested or linked
too deeply, it overflows the stack, which ends the process. Nothing here recurses, and every measurement takes
time proportional to the size of the grammar, which is checked first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from specclient.types.request_limits import RequestLimits
from specclient_local.request.grammar_regex import measure_regex
from specclient_local.request.grammar_rules import measure_rules
from specclient_local.request.grammar_schema import json_nesting, measure_schema
from specclient_local.request.grammar_size import GrammarSize, check_limit, too_deep

GrammarKind = Literal["json_schema", "regex", "grammar"]


def check_grammar(kind: GrammarKind, text: str, limits: RequestLimits, name: str = "") -> GrammarSize:
    """Return the size of a grammar that keeps the limits.

    Args:
        kind: the kind of the grammar; a ``grammar`` may be GBNF, too.
        text: the grammar; a schema as JSON.
        limits: the limits.
        name: the parameter for errors; by default the kind.

    Raises:
        BadRequestError: a limit is exceeded; names the limit and both figures.
    """
    name = name or kind
    try:
        return _checked(name, kind, text, limits)
    except RecursionError as error:  # only where the limit of nesting is raised
        raise too_deep(name) from error


def _checked(name: str, kind: GrammarKind, text: str, limits: RequestLimits) -> GrammarSize:
    if kind == "json_schema":
        check_size(name, text, limits)
        size = measure_schema(text)
    else:
        check_limit(name, "bytes", len(text.encode(errors="surrogatepass")), limits)
        size = measure_regex(text) if kind == "regex" else measure_rules(name, text, limits)
    for field in ("rules", "nesting", "chain", "alternatives", "repetitions"):
        check_limit(name, field, getattr(size, field), limits)
    return size


def check_size(name: str, text: str, limits: RequestLimits) -> None:
    """Check the size of a grammar, and that its brackets are not nested too deeply to be read as JSON.

    Raises:
        BadRequestError: a limit is exceeded.
    """
    check_limit(name, "bytes", len(text.encode(errors="surrogatepass")), limits)
    check_limit(name, "nesting", json_nesting(text), limits)


def check_object(name: str, value: object, limits: RequestLimits) -> None:
    """Check the number and the nesting of the values in an object, before it is written as JSON.

    Raises:
        BadRequestError: a limit is exceeded.
    """
    todo: list[tuple[object, int]] = [(value, 1)]
    count = 0
    while todo:
        each, depth = todo.pop()
        count += 1
        if isinstance(each, Mapping):
            inner: Iterable[object] = each.values()
        elif isinstance(each, list | tuple):
            inner = each
        else:
            continue
        check_limit(name, "nesting", depth, limits)
        todo += [(item, depth + 1) for item in inner]
        check_limit(name, "bytes", count + len(todo), limits)  # each value takes a byte at least


def check_alternatives(name: str, count: int, limits: RequestLimits) -> None:
    """Check the number of texts in a list of which the answer must be one.

    Raises:
        BadRequestError: there are too many.
    """
    check_limit(name, "alternatives", count, limits)
