"""Strict schemas of types: equal to the OpenAI client's, and for types that it does not support."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar

import pydantic
import pytest
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from specclient.structured.schema import (
    chat_format,
    decoder,
    strict_schema,
    text_format_param,
    to_strict_json_schema,
)
from specclient.structured.tools import pydantic_function_tool, pydantic_responses_function_tool
from specclient.types.params import NOT_GIVEN

T = TypeVar("T")


class Color(enum.Enum):
    """What light it reflects."""

    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place."""

    x: float = Field(description="to the east", ge=0)
    y: float = 0.0


class Nested(BaseModel):
    point: Point = Field(description="where it is")
    points: list[Point]
    other: Point | None = None
    color: Color = Field(default=Color.RED, description="of it")


class Optionals(BaseModel):
    a: int | None = None
    b: int | str | None = None
    c: str | None = Field(None, description="maybe")
    d: list[str] = Field(default_factory=list)


class Tree(BaseModel):
    """Recursive."""

    value: int
    left: Tree | None = None
    children: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Pets(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    pets: list[Cat | Dog]
    by_name: dict[str, Cat]


class Times(BaseModel):
    at: dt.datetime
    day: dt.date
    span: dt.timedelta
    price: Decimal
    url: pydantic.AnyUrl
    id: Annotated[str, Field(pattern="^[a-z]+$", max_length=5)]


class Box(BaseModel, Generic[T]):
    content: T
    more: list[T] = Field(min_length=1)


class Aliased(BaseModel):
    model_config = pydantic.ConfigDict(title="Renamed", json_schema_extra={"examples": [{"fromWire": 1}]})

    from_wire: int = Field(alias="fromWire")
    rest: tuple[int, str] = (1, "a")


class Base(BaseModel):
    inherited: int


class Derived(Base):
    """Several levels, the same type twice, described differently."""

    first: Color = Field(description="one")
    second: Color = Field(description="two")
    anything: Any = None


@pydantic_dataclass
class Book:
    title: str
    pages: int | None = None


class Closed(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    inner: dict[str, int]
    union: list[int | Point] | None


MODELS: list[Any] = [
    Point, Nested, Optionals, Tree, Pets, Times, Box[int], Box[Nested], Aliased, Derived, Closed,
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_schemas_equal_the_openai_clients(model: Any) -> None:
    openai = pytest.importorskip("openai")
    from openai.lib._parsing import type_to_response_format_param
    from openai.lib._parsing._responses import type_to_text_format_param

    assert chat_format(model) == type_to_response_format_param(model)
    assert text_format_param(model) == type_to_text_format_param(model)
    assert pydantic_function_tool(model) == openai.pydantic_function_tool(model)
    named = {"name": "other", "description": "told"}
    assert pydantic_function_tool(model, **named) == openai.pydantic_function_tool(model, **named)
    mine = pydantic_responses_function_tool(model, defer_loading=True)
    assert mine == openai.pydantic_responses_function_tool(model, defer_loading=True)
    # A model writes properties in the schema's order, so the order must be equal, too.
    theirs = type_to_response_format_param(model)["json_schema"]["schema"]
    assert list(chat_format(model)["json_schema"]["schema"]["properties"]) == list(theirs["properties"])


def test_a_pydantic_dataclass_gives_the_openai_clients_schema() -> None:
    parsing = pytest.importorskip("openai.lib._parsing")
    assert chat_format(Book) == parsing.type_to_response_format_param(Book)
    assert decoder(Book)('{"title": "Ulysses", "pages": 730}') == Book(title="Ulysses", pages=730)


def test_type_adapters_have_schemas() -> None:
    theirs = pytest.importorskip("openai.lib._pydantic")
    adapter = pydantic.TypeAdapter(list[Nested])
    assert to_strict_json_schema(adapter) == theirs.to_strict_json_schema(adapter)


def test_plain_dataclasses_and_typed_dicts_are_accepted() -> None:
    @dataclasses.dataclass
    class Plain:
        a: int

    class Typed(TypedDict):
        a: int

    closed = {"type": "object", "additionalProperties": False, "required": ["a"]}
    for kind in (Plain, Typed):
        assert chat_format(kind)["json_schema"]["schema"].items() >= closed.items()
    assert decoder(Plain)('{"a": 1}') == Plain(a=1)
    assert decoder(Typed)('{"a": 1}') == {"a": 1}


def test_an_unsupported_type_is_refused() -> None:
    for kind in (int, "text", Point(x=1), list[int]):
        with pytest.raises(TypeError, match="Unsupported response_format type"):
            chat_format(kind)
        with pytest.raises(TypeError, match="Unsupported response_format type"):
            decoder(kind)
    with pytest.raises(TypeError, match="no JSON schema"):
        to_strict_json_schema(int)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, NOT_GIVEN, {"type": "json_object"}, {"type": "text"}])
def test_api_formats_are_passed_unchanged(given: Any) -> None:
    assert chat_format(given) is given
    assert decoder(given) is None


def test_a_plain_json_schema_becomes_strict_and_its_answer_is_decoded() -> None:
    schema = {
        "title": "My answer!",
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {}}},
    }
    before = copy.deepcopy(schema)
    wire = chat_format(schema)
    assert wire["json_schema"]["name"] == "My_answer_"
    assert wire["json_schema"]["strict"] is True
    assert wire["json_schema"]["schema"] == {
        "title": "My answer!",
        "type": "object",
        "additionalProperties": False,
        "required": ["a"],
        "properties": {
            "a": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        },
    }
    assert schema == before
    assert decoder(schema)('{"a": {}}') == {"a": {}}
    assert chat_format({"$ref": "#/$defs/A", "$defs": {"A": {}}})["json_schema"]["name"] == "response"
    assert text_format_param({"type": "json_schema", "name": "x"}) == {"type": "json_schema", "name": "x"}


def test_a_described_recursive_reference_is_not_expanded_for_ever() -> None:
    schema = {
        "$defs": {
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node", "description": "on"}}}
        },
        "$ref": "#/$defs/Node",
    }
    made = strict_schema(schema)
    inner = made["$defs"]["Node"]["properties"]["next"]
    assert inner["description"] == "on"
    assert inner["properties"]["next"] == {"$ref": "#/$defs/Node"}


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"properties": {"a": {"$ref": "other.json", "title": "A"}}}, "must begin with '#/'"),
        ({"properties": {"a": {"$ref": "#/$defs/B", "title": "A"}}}, "does not refer to a schema"),
    ],
)
def test_unresolvable_references_are_errors(schema: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        strict_schema(schema)


def test_a_boolean_property_schema_is_an_error() -> None:
    with pytest.raises(TypeError, match="is not a JSON schema"):
        strict_schema({"properties": {"a": True}})
