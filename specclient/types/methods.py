"""The rows of the methods that models answer by typed objects: chat, completions, responses, embeddings, …"""

from __future__ import annotations

from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.method import Method
from specclient.types.params import ChatCreateParams, CompletionCreateParams

CHAT = Method(
    name="chat.completions.create",
    verb="POST",
    path="/chat/completions",
    params=frozenset(ChatCreateParams.__annotations__) | {"messages"},
    gives=ChatCompletion,
    event=ChatCompletionChunk,
    metered=True,
    operation="chat",
)

COMPLETION = Method(
    name="completions.create",
    verb="POST",
    path="/completions",
    params=frozenset(CompletionCreateParams.__annotations__) | {"prompt"},
    gives=Completion,
    event=Completion,
    metered=True,
    operation="completion",
)
