"""What several calls take: formats of an answer, functions, reasoning, filters of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Required, TypedDict

#: JSON Schema of a function's arguments.
FunctionParameters = dict[str, object]

#: Up to 16 labels of 64 characters, with values of 512.
Metadata = dict[str, str]

#: How long a model is to think.
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None

ChatModel = str
ResponsesModel = str
OAuthErrorCode = str


class FunctionDefinition(TypedDict, total=False):
    """A function that a model may call."""

    name: Required[str]
    description: str
    parameters: FunctionParameters
    strict: bool | None


class Reasoning(TypedDict, total=False):
    """How a reasoning model is to think, and what it is to say of it."""

    context: Literal["auto", "current_turn", "all_turns"] | None
    effort: ReasoningEffort
    generate_summary: Literal["auto", "concise", "detailed"] | None
    mode: str
    summary: Literal["auto", "concise", "detailed"] | None


class ResponseFormatText(TypedDict, total=False):
    """Text, as the model writes it."""

    type: Required[Literal["text"]]


class ResponseFormatJSONObject(TypedDict, total=False):
    """Some JSON object; the prompt has to ask for it."""

    type: Required[Literal["json_object"]]


class JSONSchema(TypedDict, total=False):
    """A named JSON Schema that an answer has to fit."""

    name: Required[str]
    description: str
    schema: dict[str, object]
    strict: bool | None


class ResponseFormatJSONSchema(TypedDict, total=False):
    """JSON that fits a schema."""

    json_schema: Required[JSONSchema]
    type: Required[Literal["json_schema"]]


class Text(TypedDict, total=False):
    """A custom tool's input without a form."""

    type: Required[Literal["text"]]


class Grammar(TypedDict, total=False):
    """A grammar that a custom tool's input has to fit."""

    definition: Required[str]
    syntax: Required[Literal["lark", "regex"]]
    type: Required[Literal["grammar"]]


CustomToolInputFormat = Text | Grammar


class ComparisonFilter(TypedDict, total=False):
    """Files whose attribute ``key`` compares so with ``value``."""

    key: Required[str]
    type: Required[Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]]
    value: Required[str | float | bool | Sequence[str | float]]


class CompoundFilter(TypedDict, total=False):
    """Files that all, or any, of some filters let through."""

    filters: Required[Iterable[ComparisonFilter | object]]
    type: Required[Literal["and", "or"]]


class DecisionInputJSON(TypedDict, total=False):
    """Data to decide on."""

    data: Required[dict[str, object] | Iterable[dict[str, object]]]
    type: Required[Literal["input_json"]]


class DecisionQuestionInputImage(TypedDict, total=False):
    """An image that a question is about."""

    image_url: Required[str]
    type: Required[Literal["input_image"]]
    detail: Literal["low", "high", "auto", "original"] | None


class DecisionQuestionInputText(TypedDict, total=False):
    """Text that a question is about."""

    text: Required[str]
    type: Required[Literal["input_text"]]


DecisionQuestionInputPart = DecisionQuestionInputText | DecisionQuestionInputImage | DecisionInputJSON
