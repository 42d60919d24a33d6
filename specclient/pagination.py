"""The pages of lists, under the OpenAI client's module path."""

from specclient.types.pages import (
    AsyncConversationCursorPage,
    AsyncCursorPage,
    AsyncNextCursorPage,
    AsyncPage,
    AsyncTokenPage,
    SyncConversationCursorPage,
    SyncCursorPage,
    SyncNextCursorPage,
    SyncPage,
    SyncTokenPage,
)

__all__ = [
    "AsyncConversationCursorPage",
    "AsyncCursorPage",
    "AsyncNextCursorPage",
    "AsyncPage",
    "AsyncTokenPage",
    "SyncConversationCursorPage",
    "SyncCursorPage",
    "SyncNextCursorPage",
    "SyncPage",
    "SyncTokenPage",
]
