"""Turn ``client.beta`` into what the table tells of it, and the conversations that have long left it."""

from __future__ import annotations

from functools import cached_property

from specclient.resources.base import Resource
from specclient.resources.chat import AsyncChat, Chat
from specclient.resources.table_resources import with_table_methods


@with_table_methods("beta", is_async=True)
class AsyncBeta(Resource):
    """``client.beta``."""

    @cached_property
    def chat(self) -> AsyncChat:
        """``client.chat``, by its former name."""
        return AsyncChat(self.caller)


@with_table_methods("beta", is_async=False)
class Beta(Resource):
    """``client.beta`` of the synchronous client."""

    @cached_property
    def chat(self) -> Chat:
        """``client.chat``, by its former name."""
        return Chat(self.caller)
