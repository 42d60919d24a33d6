"""A chat completion as it comes over the wire, whole."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specclient.types.base import Loose, Whole, WireModel
from specclient.types.call import Metered
from specclient.types.chat.chat_completion_message import ChatCompletionMessage
from specclient.types.chat.logprobs import ChoiceLogprobs
from specclient.types.chat.moderation import Moderation
from specclient.types.usage import CompletionUsage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]


class Choice(WireModel):
    """One of the ``n`` answers."""

    finish_reason: FinishReason
    index: int = 0
    logprobs: Loose[ChoiceLogprobs] | None = None
    message: ChatCompletionMessage = Field(default_factory=ChatCompletionMessage)


class ChatCompletion(Metered):
    """The answer of ``chat.completions.create``; ``created`` is in Unix seconds.

    https://platform.openai.com/docs/api-reference/chat/object
    """

    keeps_shapes = False

    id: str = ""
    choices: list[Choice] = Field(default_factory=list)
    created: Whole = 0
    model: str = ""
    object: Literal["chat.completion"] = "chat.completion"
    metadata: Loose[dict[str, str]] | None = None
    moderation: Loose[Moderation] | None = None
    service_tier: ServiceTier | None = None
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None
