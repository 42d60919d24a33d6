"""Turn the name of an OpenAI type into ours: the class that is written out, or else one of open objects."""

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
    """Return the type that is called ``path`` beneath this package: ``Model``, ``beta.threads.Run``."""
    package, _, name = path.rpartition(".")
    with import_lock:
        try:
            module = importlib.import_module("specclient.types" + (f".{package}" if package else ""))
        except ModuleNotFoundError:
            return open_class(path)
        return getattr(module, name, None) or open_class(path)


@cache
def reader(path: str) -> Callable[[bytes], Any]:
    """Return what turns JSON into an object of the type that is called ``path``; it may be a union.

    The function raises ``pydantic.ValidationError`` for what is no such object.
    """
    kind = named(path)
    if isinstance(kind, type) and issubclass(kind, WireModel):
        return kind.received
    return read_as(kind)
