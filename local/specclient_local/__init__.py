"""The engine: exact speculative decoding of local models, in process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation, Piece, Scored
    from specclient_local.engine.engine import Engine
    from specclient_local.request.params import SamplingParams
    from specclient_local.request.sequence import TokenScore

__all__ = ["Engine", "Generation", "Piece", "SamplingParams", "Scored", "TokenScore"]

_HOME = {
    "Engine": "engine.engine",
    "Generation": "engine.answer",
    "Piece": "engine.answer",
    "SamplingParams": "request.params",
    "Scored": "engine.answer",
    "TokenScore": "request.sequence",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package does not import torch.

    Raises:
        ModuleNotFoundError: a library of the extra ``local`` is not installed.
    """
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOME[name]}")
    except ModuleNotFoundError as error:
        message = f"the local engine is not installed ({error.name} missing): pip install 'specclient[local]'"
        raise ModuleNotFoundError(message, name=error.name) from error
    return getattr(home, name)
