"""Chat completions that are not streamed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specclient.types.base import LenientInt, WireModel
from specclient.types.call import MeteredModel
from specclient.types.chat.chat_completion_message import ChatCompletionMessage
from specclient.types.chat.logprobs import ChoiceLogprobs
from specclient.types.chat.moderation import (
    Moderation,
    ModerationInput,
    ModerationInputError,
    ModerationInputModerationResults,
    ModerationInputModerationResultsResult,
    ModerationOutput,
    ModerationOutputError,
    ModerationOutputModerationResults,
    ModerationOutputModerationResultsResult,
)
from specclient.types.usage import CompletionUsage

__all__ = [
    "ChatCompletion",
    "Choice",
    "ChoiceLogprobs",
    "FinishReason",
    "Moderation",
    "ModerationInput",
    "ModerationInputError",
    "ModerationInputModerationResults",
    "ModerationInputModerationResultsResult",
    "ModerationOutput",
    "ModerationOutputError",
    "ModerationOutputModerationResults",
    "ModerationOutputModerationResultsResult",
    "ServiceTier",
]

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]


class Choice(WireModel):
    """One of the ``n`` choices."""

    finish_reason: FinishReason
    index: int = 0
    logprobs: ChoiceLogprobs | None = None
    message: ChatCompletionMessage = Field(default_factory=ChatCompletionMessage)


class ChatCompletion(MeteredModel):
    """The response of ``chat.completions.create``; ``created`` is in Unix seconds.

    https://platform.openai.com/docs/api-reference/chat/object
    """

    vital = frozenset(
        {
            ("choices",),
            ("choices", "index"),
            ("choices", "message"),
            ("choices", "message", "content"),
            ("usage",),
        }
    )

    id: str = ""
    choices: list[Choice] = Field(default_factory=list)
    created: LenientInt = 0
    model: str = ""
    object: Literal["chat.completion"] = "chat.completion"
    metadata: dict[str, str] | None = None
    moderation: Moderation | None = None
    service_tier: ServiceTier | None = None
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None
