"""Lookup of OpenAI's types by name: a declared class, or an open class for any other type."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from specclient.runtime.forks import import_lock
from specclient.types.base import WireModel, read_as
from specclient.types.open import open_class


@cache
def named(path: str) -> Any:
    """Return the type at ``path`` in ``specclient.types``: ``Model``, ``beta.threads.Run``."""
    package, _, name = path.rpartition(".")
    with import_lock:
        try:
            module = importlib.import_module("specclient.types" + (f".{package}" if package else ""))
        except ModuleNotFoundError:
            return open_class(path)
        return getattr(module, name, None) or open_class(path)


@cache
def reader(path: str) -> Callable[[bytes], Any]:
    """Return a function that parses JSON as the type at ``path``, which may be a union.

    The function raises ``pydantic.ValidationError`` for JSON that does not match the type.
    """
    kind = named(path)
    if isinstance(kind, type) and issubclass(kind, WireModel):
        return kind.received
    return read_as(kind)
