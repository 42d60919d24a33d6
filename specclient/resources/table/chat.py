"""The rows of stored chat completions."""

from __future__ import annotations

from specclient.resources.table.rows import Row, group, row

ROWS: tuple[Row, ...] = (
    *group(
        "chat.completions",
        "/chat/completions",
        row("retrieve", "GET /{completion_id}", "", "ChatCompletion"),
        row("update", "POST /{completion_id}", "metadata!", "ChatCompletion"),
        row("list", "GET", "after limit metadata model order", "CursorPage[ChatCompletion]"),
        row("delete", "DELETE /{completion_id}", "", "ChatCompletionDeleted"),
        types="chat",
    ),
    *group(
        "chat.completions.messages",
        "/chat/completions/{completion_id}/messages",
        row("list", "GET", "after limit order", "CursorPage[ChatCompletionStoreMessage]"),
        types="chat",
    ),
)
