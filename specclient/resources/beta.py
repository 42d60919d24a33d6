"""The resource ``client.beta``: its methods in the endpoint table, and ``chat`` under its former name."""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

from specclient.resources.base import Resource
from specclient.resources.chat import AsyncChat, Chat
from specclient.resources.table_resources import with_table_methods

#: `openai` has a package here, whose modules have no files here; see :mod:`specclient.runtime.module_paths`.
__path__: list[str] = []


@with_table_methods("beta", is_async=True)
class AsyncBeta(Resource):
    """``client.beta``."""

    @cached_property
    def chat(self) -> AsyncChat:
        """``client.chat``, under its former name."""
        return AsyncChat(self.caller)


@with_table_methods("beta", is_async=False)
class Beta(Resource):
    """``client.beta`` of the synchronous client."""

    @cached_property
    def chat(self) -> Chat:
        """``client.chat``, under its former name."""
        return Chat(self.caller)


def __getattr__(name: str) -> Any:
    """Return the class of another resource in the package of this name, such as ``AsyncThreads``."""
    return importlib.import_module("specclient.resources.module_tree").find("beta", name)
