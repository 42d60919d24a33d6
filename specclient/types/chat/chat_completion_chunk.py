"""The chunks of a streamed chat completion."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specclient.types.base import LenientInt, LenientJsonText, LenientText, WireModel
from specclient.types.chat.chat_completion import FinishReason, ServiceTier
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
    "ChatCompletionChunk",
    "Choice",
    "ChoiceDelta",
    "ChoiceDeltaAudio",
    "ChoiceDeltaFunctionCall",
    "ChoiceDeltaToolCall",
    "ChoiceDeltaToolCallFunction",
    "ChoiceLogprobs",
    "Moderation",
    "ModerationInput",
    "ModerationInputError",
    "ModerationInputModerationResults",
    "ModerationInputModerationResultsResult",
    "ModerationOutput",
    "ModerationOutputError",
    "ModerationOutputModerationResults",
    "ModerationOutputModerationResultsResult",
]


class ChoiceDeltaAudio(WireModel):
    """A piece of a spoken answer; ``data`` is base64, ``expires_at`` in Unix seconds."""

    id: str | None = None
    data: str | None = None
    expires_at: int | None = None
    transcript: str | None = None


class ChoiceDeltaFunctionCall(WireModel):
    """A piece of a function call in the deprecated form, before tool calls."""

    arguments: LenientJsonText | None = None
    name: str | None = None


class ChoiceDeltaToolCallFunction(WireModel):
    """A piece of a streamed tool call's function."""

    arguments: LenientJsonText | None = None
    name: str | None = None


class ChoiceDeltaToolCall(WireModel):
    """A piece of a streamed tool call."""

    index: int = 0
    id: str | None = None
    function: ChoiceDeltaToolCallFunction | None = None
    type: Literal["function"] | None = None


class ChoiceDelta(WireModel):
    """The part of a message in one chunk."""

    audio: ChoiceDeltaAudio | None = None
    content: LenientText | None = None
    function_call: ChoiceDeltaFunctionCall | None = None
    refusal: str | None = None
    role: Literal["developer", "system", "user", "assistant", "tool"] | None = None
    tool_calls: list[ChoiceDeltaToolCall] | None = None


class Choice(WireModel):
    """The part of one of the ``n`` choices in one chunk."""

    delta: ChoiceDelta = Field(default_factory=ChoiceDelta)
    index: int = 0
    finish_reason: FinishReason | None = None
    logprobs: ChoiceLogprobs | None = None


class ChatCompletionChunk(WireModel):
    """One event of a streamed chat completion; ``created`` is in Unix seconds.

    https://platform.openai.com/docs/api-reference/chat/streaming
    """

    vital = frozenset(
        {
            ("choices",),
            ("choices", "index"),
            ("choices", "delta"),
            ("choices", "delta", "content"),
            ("choices", "delta", "tool_calls", "index"),
            ("usage",),
        }
    )

    id: str = ""
    choices: list[Choice] = Field(default_factory=list)
    created: LenientInt = 0
    model: str = ""
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    moderation: Moderation | None = None
    obfuscation: str | None = None
    service_tier: ServiceTier | None = None
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None
