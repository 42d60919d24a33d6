"""The types of requests and responses, under the OpenAI client's module paths; loaded on first use.

Type checkers read ``__init__.pyi``.
"""

from __future__ import annotations

import importlib
from typing import Any

from specclient.types import paths

_OURS = {
    "Call": "call",
    "Candidate": "route",
    "Cost": "usage",
    "Policy": "policy",
    "Speculation": "usage",
    "Strategy": "strategy",
    "Usage": "usage",
}

paths.install()

__all__ = sorted([*_OURS, *paths.names_of("")])  # noqa: PLE0605  # a list of texts


def __getattr__(name: str) -> Any:
    if name in _OURS:
        return getattr(importlib.import_module(f"{__name__}.{_OURS[name]}"), name)
    return paths.find("", name)


def __dir__() -> list[str]:
    return __all__
