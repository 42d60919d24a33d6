"""The helpers of streams; see ``chat`` and ``responses``."""

from specclient.resources.assistants import (
    AssistantEventHandler,
    AssistantStreamManager,
    AsyncAssistantEventHandler,
    AsyncAssistantStreamManager,
)

__all__ = [
    "AssistantEventHandler",
    "AssistantStreamManager",
    "AsyncAssistantEventHandler",
    "AsyncAssistantStreamManager",
]
