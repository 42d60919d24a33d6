"""The attribute tree of a client: ``client.chat.completions.create`` and its siblings."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """Return the class of a resource, such as ``AsyncFiles``, as ``openai.resources`` has it."""
    if not name.removeprefix("Async")[:1].isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.module_tree").find("", name)
