"""What several answers hold: formats, functions, reasoning, filters, errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from specclient.types.base import Lenient, WireModel
from specclient.types.tagged_union import TaggedUnion

#: JSON Schema of a function's arguments.
FunctionParameters = dict[str, object]

#: Up to 16 labels of 64 characters, with values of 512.
Metadata = dict[str, str]

#: How long a model thinks.
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None

AllModels = str
ChatModel = str
ResponsesModel = str
OAuthErrorCode = str


class FunctionDefinition(WireModel):
    """A function that a model may call."""

    name: str
    description: str | None = None
    parameters: FunctionParameters | None = None
    strict: bool | None = None


class Reasoning(WireModel):
    """How a reasoning model thinks, and what it says of it."""

    context: Literal["auto", "current_turn", "all_turns"] | None = None
    effort: ReasoningEffort = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    mode: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class MisalignmentSteer(WireModel):
    """What was said to a model that went astray."""

    message: str


class Misalignment(WireModel):
    """What a model did that was not wanted."""

    detailed_explanation: str | None = None
    error_type: str | None = None
    review_target: str | None = None
    steer: MisalignmentSteer | None = None


class ErrorObject(WireModel):
    """The error object of the API."""

    code: str | None = None
    message: str
    param: str | None = None
    type: str
    misalignment: Misalignment | None = None


class ResponseFormatText(WireModel):
    """Text, as the model writes it."""

    type: Literal["text"]


class ResponseFormatJSONObject(WireModel):
    """Some JSON object."""

    type: Literal["json_object"]


class JSONSchema(WireModel):
    """A named JSON Schema that an answer fits."""

    name: str
    description: str | None = None
    schema_: FunctionParameters | None = Field(alias="schema", default=None)
    strict: bool | None = None


class ResponseFormatJSONSchema(WireModel):
    """JSON that fits a schema."""

    json_schema: JSONSchema
    type: Literal["json_schema"]


class ResponseFormatTextGrammar(WireModel):
    """Text that fits a grammar."""

    grammar: str
    type: Literal["grammar"]


class ResponseFormatTextPython(WireModel):
    """Text that is Python."""

    type: Literal["python"]


class Text(WireModel):
    """A custom tool's input without a form."""

    type: Literal["text"]


class Grammar(WireModel):
    """A grammar that a custom tool's input fits."""

    definition: str
    syntax: Literal["lark", "regex"]
    type: Literal["grammar"]


CustomToolInputFormat = Annotated[Text | Grammar, TaggedUnion("type")]


class ComparisonFilter(WireModel):
    """Files whose attribute ``key`` compares so with ``value``."""

    key: str
    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    value: str | float | bool | list[str | float]


class CompoundFilter(WireModel):
    """Files that all, or any, of some filters let through."""

    filters: list[Lenient[ComparisonFilter]]
    type: Literal["and", "or"]


class DecisionInputJSON(WireModel):
    """Data to decide on."""

    data: list[dict[str, Any]] | dict[str, Any]
    type: Literal["input_json"]


class DecisionQuestionInputImage(WireModel):
    """An image that a question is about."""

    image_url: str
    type: Literal["input_image"]
    detail: Literal["low", "high", "auto", "original"] | None = None


class DecisionQuestionInputText(WireModel):
    """Text that a question is about."""

    text: str
    type: Literal["input_text"]


DecisionQuestionInputPart = Annotated[
    DecisionQuestionInputText | DecisionQuestionInputImage | DecisionInputJSON, TaggedUnion("type")
]
