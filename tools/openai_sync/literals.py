"""Write values as Python source that the formatter leaves at one entry a line, with long texts broken."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

#: Characters of a text that stands beside its key, and of each line of one that does not.
_BESIDE, _WIDTH = 60, 84


def source(value: Any) -> str:
    """Return the source of a value of mappings, lists, tuples, texts and booleans."""
    if isinstance(value, Mapping):
        return "{" + "".join(f"{source(key)}: {source(inner)},\n" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        left, right = ("[", "]") if isinstance(value, list) else ("(", ")")
        return left + "".join(f"{source(inner)}," for inner in value) + right
    return text(value) if isinstance(value, str) else repr(value)


def text(value: str) -> str:
    """Return the source of a text, over as many lines as it takes; it is broken between words."""
    lines = textwrap.wrap(value, _WIDTH, break_long_words=False, break_on_hyphens=False)
    if len(value) <= _BESIDE or " ".join(lines) != value:
        return repr(value)
    pieces = [f"{line} " for line in lines[:-1]] + lines[-1:]
    return "(" + "\n".join(map(repr, pieces)) + ")"
