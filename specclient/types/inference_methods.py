"""The API methods that run a model: chat, completions, embeddings, moderations and responses.

Two further ones are not OpenAI's and have no method of a client: reading of documents (Mistral, "OCR") and
reranking (Cohere, "Rerank"; Jina, Voyage and vLLM have the same). They are called by path.
"""

from __future__ import annotations

from specclient.types.api_method import ApiMethod
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.create_params import (
    ChatCreateParams,
    CompletionCreateParams,
    EmbeddingCreateParams,
    ModerationCreateParams,
    ResponseCreateParams,
)

CHAT = ApiMethod(
    name="chat.completions.create",
    verb="POST",
    path="/chat/completions",
    params=frozenset(ChatCreateParams.__annotations__) | {"messages"},
    response_type=ChatCompletion,
    event_type=ChatCompletionChunk,
    metered=True,
    operation="chat",
)

COMPLETION = ApiMethod(
    name="completions.create",
    verb="POST",
    path="/completions",
    params=frozenset(CompletionCreateParams.__annotations__) | {"prompt"},
    response_type=Completion,
    event_type=Completion,
    metered=True,
    operation="completion",
)

EMBEDDING = ApiMethod(
    name="embeddings.create",
    verb="POST",
    path="/embeddings",
    params=frozenset(EmbeddingCreateParams.__annotations__) | {"input"},
    response_type="CreateEmbeddingResponse",
    metered=True,
    operation="embedding",
)

MODERATION = ApiMethod(
    name="moderations.create",
    verb="POST",
    path="/moderations",
    params=frozenset(ModerationCreateParams.__annotations__) | {"input"},
    response_type="ModerationCreateResponse",
    metered=True,
    operation="moderation",
)

RESPONSE = ApiMethod(
    name="responses.create",
    verb="POST",
    path="/responses",
    params=frozenset(ResponseCreateParams.__annotations__),
    response_type="responses.Response",
    event_type="responses.ResponseStreamEvent",
    metered=True,
    operation="response",
)

OCR = ApiMethod(name="ocr", verb="POST", path="/ocr", response_type=object, metered=True)

RERANK = ApiMethod(name="rerank", verb="POST", path="/rerank", response_type=object, metered=True)
