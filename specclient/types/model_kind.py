"""The kinds of models that an engine in this process serves."""

from __future__ import annotations

from typing import Final, Literal

ModelKind = Literal["chat", "embedding"]

CHAT_KIND: Final = "chat"
"""The kind of models that answer chats and complete prompts."""
EMBEDDING_KIND: Final = "embedding"
"""The kind of models that turn texts into vectors, and do nothing else."""

#: The operations of engines in this process.
ENGINE_OPERATIONS = frozenset({"chat", "completion", "embedding"})

_METHODS = {
    CHAT_KIND: "chat.completions.create and completions.create",
    EMBEDDING_KIND: "embeddings.create",
}


def kind_of_operation(operation: str) -> ModelKind:
    """Return the kind of models that serve an operation of an engine."""
    return EMBEDDING_KIND if operation == "embedding" else CHAT_KIND


def wrong_kind(route: str, kind: ModelKind) -> str:
    """Return the message for a call that a model of this kind does not serve.

    Args:
        route: ``provider/model``.
        kind: of the model.
    """
    other: ModelKind = CHAT_KIND if kind == EMBEDDING_KIND else EMBEDDING_KIND
    return (
        f"{route} is a model of kind {kind!r}, which serves {_METHODS[kind]}; name a model of kind {other!r} "
        f"for {_METHODS[other]}"
    )
