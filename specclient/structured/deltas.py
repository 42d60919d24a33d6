"""Add the pieces of a streamed message to what has come so far, in time that depends on the piece alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic_core

#: Told whole: some servers repeat them in every chunk, and a repeat is no further piece.
_WHOLE = frozenset({"id", "name", "role"})
#: Positions and kinds, not amounts or text.
_REPLACED = frozenset({"index", "type"})


def accumulate(known: dict[str, Any], delta: Mapping[str, Any]) -> dict[str, Any]:
    """Add ``delta`` to ``known``, in place, and return it.

    Text and numbers are added up, objects are merged, and the entries of a list by their ``index``; those
    without one are appended. A null adds nothing.
    """
    for key, value in delta.items():
        before = known.get(key)
        if before is None:
            known[key] = _added_entries([], value) if isinstance(value, list) else value
        elif value is None or (key in _WHOLE and value == before):
            continue
        elif key in _REPLACED:
            known[key] = value
        elif _add_up(before, value):
            known[key] = before + value
        elif isinstance(before, dict) and isinstance(value, Mapping):
            accumulate(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            _added_entries(before, value)
    return known


def _add_up(before: object, value: object) -> bool:
    return any(isinstance(before, kind) and isinstance(value, kind) for kind in (str, int | float))


def _added_entries(known: list[Any], entries: list[Any]) -> list[Any]:
    for entry in entries:
        index = entry.get("index") if isinstance(entry, Mapping) else None
        same = None if index is None else next((old for old in known if _has_index(old, index)), None)
        if same is None:
            known.append(accumulate({}, entry) if isinstance(entry, Mapping) else entry)
        else:
            accumulate(same, entry)
    return known


def _has_index(entry: Any, index: Any) -> bool:
    return isinstance(entry, dict) and entry.get("index") == index


class PartialJSON:
    """The value that a growing JSON text stands for so far; read when it is asked for, once for each text."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._value: Any = None

    def read(self, text: str | None) -> Any:
        """Return what ``text``, a beginning of a JSON text, says for sure; None for None.

        Raises:
            ValueError: where it is no beginning of any JSON text.
        """
        if text != self._text:
            self._value = None if text is None else pydantic_core.from_json(text, allow_partial=True)
            self._text = text
        return self._value
