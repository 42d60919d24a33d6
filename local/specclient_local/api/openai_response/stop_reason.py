"""The field ``stop_reason`` of a choice, as in vLLM: the stop string that ended the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation

__all__ = ["stop_reason"]


def stop_reason(generation: Generation) -> dict[str, Any]:
    """Return the field as a dictionary; it is empty if no stop string ended the answer."""
    return {} if generation.stop_string is None else {"stop_reason": generation.stop_string}
