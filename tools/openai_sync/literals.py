"""Values as Python source: one entry per line, which the formatter keeps, and long strings wrapped."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

#: Maximum characters of a string that is not wrapped, and of each line of a longer string.
_UNWRAPPED, _WIDTH = 60, 84


def source(value: Any) -> str:
    """Return the source of a value made of mappings, lists, tuples, strings and booleans."""
    if isinstance(value, Mapping):
        return "{" + "".join(f"{source(key)}: {source(inner)},\n" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        left, right = ("[", "]") if isinstance(value, list) else ("(", ")")
        return left + "".join(f"{source(inner)}," for inner in value) + right
    return text(value) if isinstance(value, str) else repr(value)


def text(value: str) -> str:
    """Return the source of a string; a long one is wrapped between words."""
    lines = textwrap.wrap(value, _WIDTH, break_long_words=False, break_on_hyphens=False)
    if len(value) <= _UNWRAPPED or " ".join(lines) != value:
        return repr(value)
    pieces = [f"{line} " for line in lines[:-1]] + lines[-1:]
    return "(" + "\n".join(map(repr, pieces)) + ")"
