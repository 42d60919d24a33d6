"""OpenAI's endpoints by their paths: the calls that are parsed, and the table rows of all others."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from urllib.parse import unquote

from specclient.resources.table.index import children_of, roots, rows_of
from specclient.resources.table.rows import Row
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, MODERATION, RESPONSE

#: Calls whose requests are parsed, so that any provider or engine can serve them.
CALLS = (CHAT, COMPLETION, RESPONSE, EMBEDDING, MODERATION)

#: Resources that manage an organisation, with a key of their own.
_ADMINISTRATIVE = frozenset({"admin"})
_PLACE = re.compile(r"\{\w+\}")
_STEPS = frozenset({".", ".."})


def endpoints_at(path: str) -> dict[str, Row]:
    """Return the table rows of a path by HTTP method; the fewest placeholders win."""
    found: dict[str, Row] = {}
    for pattern, row in _patterns():
        match = pattern.fullmatch(path)
        if match and not any(_STEPS & set(re.split(r"[/\\]", unquote(part))) for part in match.groups()):
            found.setdefault(row.verb, row)
    return found


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], Row], ...]:
    every = (row for row in _every(sorted(roots() - _ADMINISTRATIVE)) if "?" not in row.path)
    rows = sorted(every, key=lambda row: len(row.places))
    return tuple((re.compile(_pattern(row.path)), row) for row in rows)


def _pattern(path: str) -> str:
    return "([^/]+)".join(re.escape(part) for part in _PLACE.split(path))


def _every(resources: list[str]) -> Iterator[Row]:
    for name in resources:
        yield from rows_of(name).values()
        yield from _every([f"{name}.{child}" for child in sorted(children_of(name))])
