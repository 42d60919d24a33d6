"""Merging of stream deltas into an accumulated message. The time depends on the size of the delta only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic_core

#: Fields that are not sent in parts. Some servers repeat them in every chunk; a repetition is not appended.
_WHOLE = frozenset({"id", "name", "role"})
#: Fields whose new value replaces the old one: positions and types are not added up.
_REPLACED = frozenset({"index", "type"})


def accumulate(known: dict[str, Any], delta: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``delta`` into ``known`` in place, and return ``known``.

    Strings are concatenated, numbers are added, and objects are merged. List entries with an ``index`` are
    merged with the entry of the same index; all others are appended. Null values are ignored.
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
    """Parser of incomplete JSON text. It caches the value of the last text."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._value: Any = None

    def read(self, text: str | None) -> Any:
        """Return the value of ``text``, the beginning of a JSON text; None for None.

        Raises:
            ValueError: ``text`` is not the beginning of a JSON text.
        """
        if text != self._text:
            self._value = None if text is None else pydantic_core.from_json(text, allow_partial=True)
            self._text = text
        return self._value
