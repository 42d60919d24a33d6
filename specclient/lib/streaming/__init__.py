"""Stream helpers under the OpenAI client's module paths: of Assistants here, others in submodules."""

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
