"""The tools that a chat takes, which of them it may or has to use, and how the answer is to come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Required, TypedDict

from specclient.types.chat.message_params import ChatCompletionContentPartTextParam
from specclient.types.shared_params.objects import (
    FunctionDefinition,
    ReasoningEffort,
    ResponseFormatJSONObject,
    ResponseFormatJSONSchema,
    ResponseFormatText,
)

ChatCompletionModality = Literal["text", "audio"]
ChatCompletionReasoningEffort = ReasoningEffort
ChatCompletionRole = Literal["developer", "system", "user", "assistant", "tool", "function"]
ResponseFormat = ResponseFormatText | ResponseFormatJSONSchema | ResponseFormatJSONObject


class ChatCompletionFunctionToolParam(TypedDict, total=False):
    """A function that the model may call."""

    function: Required[FunctionDefinition]
    type: Required[Literal["function"]]


class CustomFormatText(TypedDict, total=False):
    """A custom tool's input without a form."""

    type: Required[Literal["text"]]


class CustomFormatGrammarGrammar(TypedDict, total=False):
    """A grammar, in the form that ``syntax`` names."""

    definition: Required[str]
    syntax: Required[Literal["lark", "regex"]]


class CustomFormatGrammar(TypedDict, total=False):
    """A custom tool's input that has to fit a grammar."""

    grammar: Required[CustomFormatGrammarGrammar]
    type: Required[Literal["grammar"]]


CustomFormat = CustomFormatText | CustomFormatGrammar


class Custom(TypedDict, total=False):
    """A custom tool: it takes text of some format."""

    name: Required[str]
    description: str
    format: CustomFormat


class ChatCompletionCustomToolParam(TypedDict, total=False):
    """A custom tool that the model may call."""

    custom: Required[Custom]
    type: Required[Literal["custom"]]


ChatCompletionToolParam = ChatCompletionFunctionToolParam
ChatCompletionToolUnionParam = ChatCompletionFunctionToolParam | ChatCompletionCustomToolParam


class ChatCompletionAllowedToolsParam(TypedDict, total=False):
    """The tools that may, or one of which has to, be called."""

    mode: Required[Literal["auto", "required"]]
    tools: Required[Iterable[dict[str, object]]]


class ChatCompletionAllowedToolChoiceParam(TypedDict, total=False):
    """A choice of some of the tools."""

    allowed_tools: Required[ChatCompletionAllowedToolsParam]
    type: Required[Literal["allowed_tools"]]


class NamedFunction(TypedDict, total=False):
    """A function, by its name."""

    name: Required[str]


class ChatCompletionNamedToolChoiceParam(TypedDict, total=False):
    """The function that has to be called."""

    function: Required[NamedFunction]
    type: Required[Literal["function"]]


class NamedCustom(TypedDict, total=False):
    """A custom tool, by its name."""

    name: Required[str]


class ChatCompletionNamedToolChoiceCustomParam(TypedDict, total=False):
    """The custom tool that has to be called."""

    custom: Required[NamedCustom]
    type: Required[Literal["custom"]]


ChatCompletionToolChoiceOptionParam = (
    Literal["none", "auto", "required"]
    | ChatCompletionAllowedToolChoiceParam
    | ChatCompletionNamedToolChoiceParam
    | ChatCompletionNamedToolChoiceCustomParam
)


class ChatCompletionFunctionCallOptionParam(TypedDict, total=False):
    """The function that has to be called, in the API's first form."""

    name: Required[str]


class ChatCompletionPredictionContentParam(TypedDict, total=False):
    """Text that most of the answer is expected to be; what of it holds comes sooner."""

    content: Required[str | Iterable[ChatCompletionContentPartTextParam]]
    type: Required[Literal["content"]]


class ChatCompletionStreamOptionsParam(TypedDict, total=False):
    """What a stream has beside the answer: a last chunk with usage, padding against side channels."""

    include_obfuscation: bool
    include_usage: bool


class VoiceID(TypedDict, total=False):
    """A voice of one's own, by its id."""

    id: Required[str]


Voice = (
    str
    | Literal["alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar"]
    | VoiceID
)


class ChatCompletionAudioParam(TypedDict, total=False):
    """How a spoken answer is to sound."""

    format: Required[Literal["wav", "aac", "mp3", "flac", "opus", "pcm16"]]
    voice: Required[Voice]


class WebSearchOptionsUserLocationApproximate(TypedDict, total=False):
    """About where the user is; ``country`` is an ISO 3166 code, ``timezone`` one of IANA."""

    city: str
    country: str
    region: str
    timezone: str


class WebSearchOptionsUserLocation(TypedDict, total=False):
    """Where the user is, for what is found nearby."""

    approximate: Required[WebSearchOptionsUserLocationApproximate]
    type: Required[Literal["approximate"]]


class WebSearchOptions(TypedDict, total=False):
    """How the web is searched for an answer."""

    search_context_size: Literal["low", "medium", "high"]
    user_location: WebSearchOptionsUserLocation | None
