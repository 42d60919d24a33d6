"""The messages that a chat takes, by who speaks, and the parts of their content."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Required, TypedDict


class PromptCacheBreakpoint(TypedDict, total=False):
    """Where a prompt is to be cached up to, and for how long."""

    mode: Required[Literal["explicit"]]
    ttl: Literal["30m", "12h"]


class ChatCompletionContentPartTextParam(TypedDict, total=False):
    """A part that is text."""

    text: Required[str]
    type: Required[Literal["text"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


class ChatCompletionContentPartRefusalParam(TypedDict, total=False):
    """A part that is a refusal."""

    refusal: Required[str]
    type: Required[Literal["refusal"]]


class ImageURL(TypedDict, total=False):
    """An image by its URL, or as a ``data:`` URL."""

    url: Required[str]
    detail: Literal["auto", "low", "high", "original"]


class ChatCompletionContentPartImageParam(TypedDict, total=False):
    """A part that is an image."""

    image_url: Required[ImageURL]
    type: Required[Literal["image_url"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


class InputAudio(TypedDict, total=False):
    """Sound as base64."""

    data: Required[str]
    format: Required[Literal["wav", "mp3"]]


class ChatCompletionContentPartInputAudioParam(TypedDict, total=False):
    """A part that is sound."""

    input_audio: Required[InputAudio]
    type: Required[Literal["input_audio"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


class FileFile(TypedDict, total=False):
    """A file as base64, or by the id of an uploaded one."""

    file_data: str
    file_id: str
    filename: str


class File(TypedDict, total=False):
    """A part that is a file."""

    file: Required[FileFile]
    type: Required[Literal["file"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


ChatCompletionContentPartParam = (
    ChatCompletionContentPartTextParam
    | ChatCompletionContentPartImageParam
    | ChatCompletionContentPartInputAudioParam
    | File
)
ContentArrayOfContentPart = ChatCompletionContentPartTextParam | ChatCompletionContentPartRefusalParam


class ChatCompletionDeveloperMessageParam(TypedDict, total=False):
    """Instructions of the developer."""

    content: Required[str | Iterable[ChatCompletionContentPartTextParam]]
    role: Required[Literal["developer"]]
    name: str


class ChatCompletionSystemMessageParam(TypedDict, total=False):
    """Instructions of the developer, to models before o1."""

    content: Required[str | Iterable[ChatCompletionContentPartTextParam]]
    role: Required[Literal["system"]]
    name: str


class ChatCompletionUserMessageParam(TypedDict, total=False):
    """What the user says."""

    content: Required[str | Iterable[ChatCompletionContentPartParam]]
    role: Required[Literal["user"]]
    name: str


class Audio(TypedDict, total=False):
    """A spoken answer given before, by its id."""

    id: Required[str]


class FunctionCall(TypedDict, total=False):
    """The call of a function in the API's first form; ``arguments`` is JSON text."""

    arguments: Required[str]
    name: Required[str]


class Function(TypedDict, total=False):
    """The function that was called; ``arguments`` is JSON text."""

    arguments: Required[str]
    name: Required[str]


class ChatCompletionMessageFunctionToolCallParam(TypedDict, total=False):
    """The call of a function, as the model made it."""

    id: Required[str]
    function: Required[Function]
    type: Required[Literal["function"]]


class CustomCall(TypedDict, total=False):
    """The custom tool that was called, and what went in."""

    input: Required[str]
    name: Required[str]


class ChatCompletionMessageCustomToolCallParam(TypedDict, total=False):
    """The call of a custom tool, as the model made it."""

    id: Required[str]
    custom: Required[CustomCall]
    type: Required[Literal["custom"]]


ChatCompletionMessageToolCallParam = ChatCompletionMessageFunctionToolCallParam
ChatCompletionMessageToolCallUnionParam = (
    ChatCompletionMessageFunctionToolCallParam | ChatCompletionMessageCustomToolCallParam
)


class ChatCompletionAssistantMessageParam(TypedDict, total=False):
    """What the model said; ``content`` is needed where there are no calls."""

    role: Required[Literal["assistant"]]
    audio: Audio | None
    content: str | Iterable[ContentArrayOfContentPart] | None
    function_call: FunctionCall | None
    name: str
    refusal: str | None
    tool_calls: Iterable[ChatCompletionMessageToolCallUnionParam]


class ChatCompletionToolMessageParam(TypedDict, total=False):
    """What a tool answered to the call of that id."""

    content: Required[str | Iterable[ChatCompletionContentPartTextParam]]
    role: Required[Literal["tool"]]
    tool_call_id: Required[str]


class ChatCompletionFunctionMessageParam(TypedDict, total=False):
    """What a function answered, in the API's first form."""

    content: Required[str | None]
    name: Required[str]
    role: Required[Literal["function"]]


ChatCompletionMessageParam = (
    ChatCompletionDeveloperMessageParam
    | ChatCompletionSystemMessageParam
    | ChatCompletionUserMessageParam
    | ChatCompletionAssistantMessageParam
    | ChatCompletionToolMessageParam
    | ChatCompletionFunctionMessageParam
)
CreateChatCompletionRequestMessageParam = ChatCompletionMessageParam
