"""What the API keeps of chat completions that were asked to be stored, and says of those deleted."""

from __future__ import annotations

from typing import Annotated, Literal

from specclient.types.base import WireModel
from specclient.types.chat.chat_completion_message import ChatCompletionMessage
from specclient.types.shared.objects import FunctionDefinition
from specclient.types.tagged_union import TaggedUnion


class PromptCacheBreakpoint(WireModel):
    """Where a prompt is cached up to, and for how long."""

    mode: Literal["explicit"]
    ttl: Literal["30m", "12h"] | None = None


class ChatCompletionContentPartText(WireModel):
    """A part of a message that is text."""

    text: str
    type: Literal["text"]
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class ImageURL(WireModel):
    """An image by its URL, or as a ``data:`` URL."""

    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ChatCompletionContentPartImage(WireModel):
    """A part of a message that is an image."""

    image_url: ImageURL
    type: Literal["image_url"]
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


ChatCompletionStoreMessageContentPart = Annotated[
    ChatCompletionContentPartText | ChatCompletionContentPartImage, TaggedUnion("type")
]


class ChatCompletionStoreMessage(ChatCompletionMessage):
    """A message of a stored chat completion."""

    id: str
    content_parts: list[ChatCompletionStoreMessageContentPart] | None = None


class ChatCompletionDeleted(WireModel):
    """That a stored chat completion has been deleted."""

    id: str
    deleted: bool
    object: Literal["chat.completion.deleted"]


class ChatCompletionFunctionTool(WireModel):
    """A function that a model may call."""

    function: FunctionDefinition
    type: Literal["function"]
