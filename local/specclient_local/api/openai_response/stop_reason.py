"""The field ``stop_reason`` of a choice, as vLLM has it: which stop string ended the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation

__all__ = ["stop_reason"]


def stop_reason(generation: Generation) -> dict[str, Any]:
    """Return the field for an answer that a stop string ended; no field for any other."""
    return {} if generation.stop_string is None else {"stop_reason": generation.stop_string}
