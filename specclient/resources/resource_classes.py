"""The classes of a client's resources, by the resource's name on the client."""

from __future__ import annotations

import importlib
from typing import Final

from specclient.resources import table_resources
from specclient.resources.table.index import roots
from specclient.runtime.forks import import_lock

#: Resources of a client with a module of their own in ``specclient.resources``.
_WRITTEN: Final = frozenset(
    {"beta", "chat", "completions", "embeddings", "models", "moderations", "responses"}
)
#: The resource within another one that has a class of its own, in the module of the outer one.
_INNER: Final = {"chat.completions": "chat"}


def names() -> frozenset[str]:
    """Return the names of a client's resources."""
    return _WRITTEN | roots()


def class_of(name: str, *, is_async: bool) -> type:
    """Return the class of a resource; modules are imported on first use.

    Args:
        name: the resource's name on a client: ``chat.completions``.
        is_async: whether its methods are coroutines.

    Raises:
        KeyError: a client has no such resource.
    """
    module = name if name in _WRITTEN else _INNER.get(name)
    with import_lock:
        if module is None:
            return table_resources.table_resource(name, is_async=is_async)
        found = importlib.import_module(f"specclient.resources.{module}")
    title = name.rpartition(".")[2].title()
    written: type = vars(found)[f"Async{title}" if is_async else title]
    return written
