"""The message of a chat completion: text, refusal, audio, citations and tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from specclient.types.base import LenientJsonText, LenientText, WireModel
from specclient.types.tagged_union import TaggedUnion


class AnnotationURLCitation(WireModel):
    """A web page cited by the text between two character positions."""

    end_index: int
    start_index: int
    title: str
    url: str


class Annotation(WireModel):
    """An annotation of the text."""

    type: Literal["url_citation"]
    url_citation: AnnotationURLCitation


class ChatCompletionAudio(WireModel):
    """A spoken answer; ``data`` is base64, ``expires_at`` in Unix seconds."""

    id: str
    data: str
    expires_at: int
    transcript: str


class FunctionCall(WireModel):
    """A function call in the deprecated form; ``arguments`` is JSON text, as the model wrote it."""

    arguments: LenientJsonText = ""
    name: str = ""


class Function(WireModel):
    """The function of a tool call; ``arguments`` is JSON text, as the model wrote it."""

    arguments: LenientJsonText = ""
    name: str = ""


class ChatCompletionMessageFunctionToolCall(WireModel):
    """A call of a function."""

    id: str = ""
    function: Function
    type: Literal["function"] = "function"


class Custom(WireModel):
    """The custom tool of a tool call, and its input."""

    input: str = ""
    name: str = ""


class ChatCompletionMessageCustomToolCall(WireModel):
    """A call of a custom tool."""

    id: str = ""
    custom: Custom
    type: Literal["custom"] = "custom"


#: The former name of a function call, from before there were other tools.
ChatCompletionMessageToolCall = ChatCompletionMessageFunctionToolCall

ChatCompletionMessageToolCallUnion = Annotated[
    ChatCompletionMessageFunctionToolCall | ChatCompletionMessageCustomToolCall, TaggedUnion("type")
]


class ChatCompletionMessage(WireModel):
    """The message of one choice."""

    content: LenientText | None = None
    refusal: str | None = None
    role: Literal["assistant"] = "assistant"
    annotations: list[Annotation] | None = None
    audio: ChatCompletionAudio | None = None
    function_call: FunctionCall | None = None
    tool_calls: list[ChatCompletionMessageToolCallUnion] | None = None


def plain_text(content: object) -> str:
    """Return the text of a message's content, which some servers send as a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))
