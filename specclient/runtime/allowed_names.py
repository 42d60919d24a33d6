"""The end of an error about an unknown name: the name that was probably meant, and all that are allowed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

__all__ = ["allowed_names"]


def allowed_names(name: str, known: Sequence[str]) -> str:
    """Return the known name that an unknown one resembles, if there is one, and all known names."""
    allowed = ", ".join(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}? Allowed are {allowed}" if near else f"allowed are {allowed}"
