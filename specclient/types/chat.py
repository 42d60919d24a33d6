"""Chat completions as they come over the wire, whole and in chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from specclient.types.base import Content, JsonText, Whole, WireModel
from specclient.types.call import Metered
from specclient.types.usage import CompletionUsage


class Function(WireModel):
    """The function a tool call names, its arguments as JSON text."""

    arguments: JsonText = ""
    name: str = ""


class ChatCompletionMessageToolCall(WireModel):
    """One tool call of a message."""

    id: str = ""
    function: Function | None = None
    type: str = "function"


class ChatCompletionMessage(WireModel):
    """The answer of one choice."""

    content: Content | None = None
    refusal: str | None = None
    role: str = "assistant"
    annotations: list[Any] | None = None
    audio: Any | None = None
    function_call: Any | None = None
    tool_calls: list[ChatCompletionMessageToolCall] | None = None


class Choice(WireModel):
    """One of the ``n`` answers."""

    finish_reason: str | None = None
    index: int = 0
    logprobs: Any | None = None
    message: ChatCompletionMessage = Field(default_factory=ChatCompletionMessage)


class ChatCompletion(Metered):
    """The answer of ``chat.completions.create``."""

    id: str = ""
    choices: list[Choice] = Field(default_factory=list)
    created: Whole = 0
    model: str = ""
    object: str = "chat.completion"
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None


class ChoiceDeltaToolCallFunction(WireModel):
    """A piece of a streamed tool call's function."""

    arguments: JsonText | None = None
    name: str | None = None


class ChoiceDeltaToolCall(WireModel):
    """A piece of a streamed tool call."""

    index: int = 0
    id: str | None = None
    function: ChoiceDeltaToolCallFunction | None = None
    type: str | None = None


class ChoiceDelta(WireModel):
    """What a chunk adds to a message."""

    content: Content | None = None
    function_call: Any | None = None
    refusal: str | None = None
    role: str | None = None
    tool_calls: list[ChoiceDeltaToolCall] | None = None


class ChunkChoice(WireModel):
    """What a chunk adds to one of the ``n`` answers."""

    delta: ChoiceDelta = Field(default_factory=ChoiceDelta)
    finish_reason: str | None = None
    index: int = 0
    logprobs: Any | None = None


class ChatCompletionChunk(WireModel):
    """One event of a streamed chat completion."""

    id: str = ""
    choices: list[ChunkChoice] = Field(default_factory=list)
    created: Whole = 0
    model: str = ""
    object: str = "chat.completion.chunk"
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None


def plain_text(content: object) -> str:
    """Return the text of a message's content, which some servers send as a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))
