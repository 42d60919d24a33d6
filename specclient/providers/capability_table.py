"""The table of providers and their capabilities in Markdown. Run with ``python -m`` to print it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from specclient.providers.presets.registry import PRESETS
from specclient.types.capabilities import Capabilities

UNKNOWN, NO = "unknown", "no"

#: The titles of the table's columns, by the keys of :func:`words`.
COLUMNS: Mapping[str, str] = {
    "spec_in": "In a request",
    "spec_out": "In an answer",
    "prefill": "Prefill",
    "verify": "Verification",
    "usage": "Usage in streams",
}


def words(known: Capabilities) -> dict[str, str]:
    """Return the cells of the columns in :data:`COLUMNS`: names of fields, ``no`` or ``unknown``."""
    return {
        "spec_in": ", ".join(_fields(known)) or (UNKNOWN if known.prediction is None else NO),
        "spec_out": UNKNOWN if known.telemetry is None else ", ".join(known.telemetry) or NO,
        "prefill": _word(known.prefill),
        "verify": _word(known.verification),
        "usage": {"asked": "include_usage", "unasked": "by itself"}.get(
            _word(known.streamed_usage), _word(known.streamed_usage)
        ),
    }


def _fields(known: Capabilities) -> Iterator[str]:
    """Yield the request fields that control speculation."""
    if known.prediction:
        yield "prediction"
    if known.speculation:
        yield "speculation"
    if known.draft_model:
        yield "draft_model"
    if known.draft_length is not None:
        yield known.draft_length


def _word(value: str | bool | None) -> str:
    return UNKNOWN if value is None else value if isinstance(value, str) else NO


def markdown() -> str:
    """Return the table of providers, followed by notes."""
    head = ("Provider", "Name", "Dialect", *COLUMNS.values())
    rows = [
        (
            row.title,
            f"`{row.name}/`",
            row.dialect,
            *(_code(word) for word in words(row.capabilities).values()),
        )
        for row in PRESETS.values()
    ]
    lines = [head, ("---",) * len(head), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = [f"- **{row.title}**: {row.note}." for row in PRESETS.values() if row.note]
    return "\n".join([table, "", *notes])


def _code(text: str) -> str:
    plain = (NO, UNKNOWN, "by itself")
    return text if text in plain else ", ".join(f"`{part}`" for part in text.split(", "))


if __name__ == "__main__":
    sys.stdout.write(markdown() + "\n")
