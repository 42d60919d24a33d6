"""The engine: exact speculative decoding of local models, in process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specclient_local.answer import Generation, Piece, Scored
    from specclient_local.engine import Engine
    from specclient_local.params import SamplingParams
    from specclient_local.sequence import TokenScore

__all__ = ["Engine", "Generation", "Piece", "SamplingParams", "Scored", "TokenScore"]

_HOME = {
    "Engine": "engine",
    "Generation": "answer",
    "Piece": "answer",
    "SamplingParams": "params",
    "Scored": "answer",
    "TokenScore": "sequence",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package does not import torch."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
