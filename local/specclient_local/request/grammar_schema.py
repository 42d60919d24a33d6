"""Measures JSON schemas: nesting, chains of references, alternatives, repetitions."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import Any
from urllib.parse import unquote

from specclient_local.request.grammar_regex import measure_regex
from specclient_local.request.grammar_size import GrammarSize, longest_chain

#: Keywords whose value maps names to schemas; a name is no keyword.
_NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
#: Keywords whose value is data, not a schema.
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "enum", "prefixItems", "items"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_PATTERNS = frozenset({"pattern", "whitespace_pattern"})

JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*+"?|[\[{]|[\]}]', re.DOTALL)


def json_nesting(text: str) -> int:
    """Return the greatest number of objects and arrays within each other in JSON."""
    depth = most = 0
    for match in JSON_TOKEN.finditer(text):
        character = match[0][0]
        if character in "[{":
            depth += 1
            most = max(most, depth)
        elif character in "]}":
            depth -= 1
    return most


def measure_schema(text: str) -> GrammarSize:
    """Return the size of a schema whose nesting is bounded."""
    walk = _SchemaWalk()
    walk.read(json.loads(text))
    return GrammarSize(
        bytes=len(text.encode(errors="surrogatepass")),
        rules=len(walk.targets),
        nesting=json_nesting(text),
        chain=walk.chain(),
        alternatives=walk.alternatives,
        repetitions=walk.repetitions,
        weight=sum(map(text.count, "([{")) + text.count("$ref"),
        complements=text.count('"allOf"'),
        patterns=walk.patterns,
    )


class _SchemaWalk:
    """Reads a schema once, without recursion.

    Attributes:
        alternatives, repetitions: see :class:`GrammarSize`.
        patterns: the number of ``patternProperties``.
        targets: the values to which a ``$ref`` points, each as the range of the positions of the values in
            it. The positions number the schema's objects and arrays in the order of the text.
    """

    def __init__(self) -> None:
        self.alternatives = self.repetitions = self.patterns = 0
        self.targets: dict[tuple[int, int], None] = {}
        self._references: list[tuple[int, str]] = []
        self._spans: dict[int, tuple[int, int]] = {}
        self._anchors: dict[str, int] = {}
        self._ranges: list[tuple[int, tuple[int, int]]] = []

    def read(self, schema: Any) -> None:
        """Read a schema; it is kept alive by the caller meanwhile."""
        position = 0
        begun: dict[int, int] = {}
        todo: list[tuple[Any, str, bool]] = [(schema, "schema", False)]
        while todo:
            value, role, done = todo.pop()
            if done:
                self._spans[id(value)] = (begun[id(value)], position)
                continue
            position += 1
            begun[id(value)] = position
            todo.append((value, role, True))
            if isinstance(value, dict):
                inner = self._read_object(value, role, position)
            else:
                inner = [(item, role) for item in value] if isinstance(value, list) else []
            todo.extend(
                (item, kind, False) for item, kind in reversed(inner) if isinstance(item, dict | list)
            )
        for at, reference in self._references:
            span = self._target(schema, reference)
            if span is not None:
                self.targets[span] = None
                self._ranges.append((at, span))

    def _read_object(self, value: dict[str, Any], role: str, position: int) -> list[tuple[Any, str]]:
        if role == "names":
            return [(item, "schema") for item in value.values()]
        if role == "data":
            return [(item, "data") for item in value.values()]
        inner: list[tuple[Any, str]] = []
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):
                self._references.append((position, item))
            elif key in ("$anchor", "$dynamicAnchor", "$id", "id") and isinstance(item, str):
                self._anchors.setdefault(item, id(value))
            elif key in _COUNTS and isinstance(item, int | float):
                self.repetitions = max(self.repetitions, _bounded(item))
            elif key in _PATTERNS and isinstance(item, str):
                self._read_pattern(item)
            elif key in _LISTS and isinstance(item, list):
                self.alternatives = max(self.alternatives, len(item))
            if key == "patternProperties" and isinstance(item, dict):
                self.patterns += len(item)
                self.alternatives = max(self.alternatives, len(item))
                for pattern in item:
                    self._read_pattern(pattern)
            kind = "names" if key in _NAMED_SCHEMAS else "data" if key in _DATA else "schema"
            inner.append((item, kind))
        return inner

    def _read_pattern(self, pattern: str) -> None:
        size = measure_regex(pattern)
        self.repetitions = max(self.repetitions, size.repetitions)
        self.alternatives = max(self.alternatives, size.alternatives)

    def _target(self, schema: Any, reference: str) -> tuple[int, int] | None:
        """Return the range of positions of the value to which a reference points; None if there is none."""
        if reference in self._anchors:
            return self._spans[self._anchors[reference]]
        _, marked, pointer = reference.partition("#")
        if marked and pointer in self._anchors:
            return self._spans[self._anchors[pointer]]
        if not marked:
            return None
        place = schema
        for step in pointer.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict):
                place = place.get(name)
            elif isinstance(place, list) and name.isascii() and name.isdigit() and len(name) < 9:
                place = place[int(name)] if int(name) < len(place) else None
            else:
                return None
        return self._spans.get(id(place)) if isinstance(place, dict | list) else None

    def chain(self) -> int:
        """Return the length of the longest chain of references.

        A target refers to another one if a ``$ref`` to the latter is at one of the former's positions.
        """
        self._ranges.sort()
        positions = [at for at, _ in self._ranges]
        links = {
            span: {
                target
                for _, target in self._ranges[
                    bisect_left(positions, span[0]) : bisect_left(positions, span[1] + 1)
                ]
            }
            for span in self.targets
        }
        return longest_chain(links)


def _bounded(count: float) -> int:
    """Return a count as an integer; infinite ones as a large number."""
    return int(min(max(count, 0), 2**63)) if count == count else 0  # noqa: PLR0124 - NaN
