"""The end of an error about an unknown name: the name that was probably meant, and all that are allowed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

__all__ = ["allowed_names"]


def allowed_names(name: str, known: Sequence[str], *, prefix: str = "") -> str:
    """Return the known name that an unknown one resembles, if there is one, and all known names.

    Args:
        name: the unknown name.
        known: the known names.
        prefix: what all names begin with; it makes no name resemble another.
    """
    allowed = ", ".join(known)
    near = difflib.get_close_matches(
        name.removeprefix(prefix), [each.removeprefix(prefix) for each in known], 1
    )
    return f"did you mean {prefix + near[0]!r}? Allowed are {allowed}" if near else f"allowed are {allowed}"
