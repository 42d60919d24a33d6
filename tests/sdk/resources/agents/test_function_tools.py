"""Tools of functions and models: definitions and outputs equal the OpenAI client's."""

from __future__ import annotations

import functools
import inspect
import json
import warnings
from typing import Annotated, Literal

import anyio
import pydantic
import pytest
from openai.lib.beta import agents as theirs

from specclient.lib.beta import agents as ours

pytestmark = pytest.mark.anyio


class Place(pydantic.BaseModel):
    """Where it is."""

    city: str
    lines: list[str] = []


class Tree(pydantic.BaseModel):
    children: list[Tree] = []


class Either(pydantic.RootModel[int | str]):
    pass


def both(make):
    """Return each library's result, or the class of its exception."""
    found = []
    for library in (theirs, ours):
        try:
            found.append(make(library))
        except Exception as error:  # noqa: BLE001  # compared by the tests
            found.append(type(error))
    return found


def lookup(
    place: Place, unit: Literal["c", "f"] = "c", *, days: Annotated[int, pydantic.Field(ge=1)] = 1
) -> Missing:  # noqa: F821
    """Tell the weather."""
    return {"where": place.city, "unit": unit, "days": days}


async def later(place: Place):
    return place


class Shop:
    Size = Literal["s", "m"]

    def buy(self, size: Size, json: str = "x") -> str:
        """Buy it."""
        return f"{size} {json}"

    @classmethod
    def sell(cls, size: Size) -> str:
        return size

    @staticmethod
    def count(size: Size) -> str:
        return size


@functools.wraps(lookup)
def wrapped(*args, **kwargs):
    return lookup(*args, **kwargs)


class Branch(Shop):
    pass


FUNCTIONS = {
    "a function": lookup,
    "a coroutine function": later,
    "a bound method": Shop().buy,
    "an inherited method": Branch().buy,
    "a class method": Shop.sell,
    "a static method": Shop.count,
    "a wrapped function": wrapped,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_functions_definition_equals_the_openai_clients(name):
    their, our = both(lambda library: library.function_tool(FUNCTIONS[name]).definition)
    assert our == their
    assert our["parameters"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "given", [{"name": "n"}, {"description": "d"}, {"defer_loading": True}, {"defer_loading": False}]
)
def test_decorator_options_give_the_openai_clients_definition(given):
    their, our = both(lambda library: library.function_tool(**given)(lookup).definition)
    assert our == their
    their, our = both(
        lambda library: library.pydantic_function_tool(Place, handler=lambda _: None, **given).definition
    )
    assert our == their


@pytest.mark.parametrize("model", [Place, Tree, Either])
def test_a_models_definition_equals_the_openai_clients(model):
    their, our = both(lambda library: library.pydantic_function_tool(model, handler=str).definition)
    assert our == their
    assert (our is TypeError) == (model is Either)


def test_changing_a_definition_does_not_change_the_tool():
    tool = ours.function_tool(lookup)
    tool.definition["parameters"].clear()
    assert tool.definition["parameters"]


REFUSED = {
    "no annotation": lambda a: a,
    "a private name": eval("lambda _a: _a"),
    "any number": lambda *a: a,
    "any keywords": lambda **a: a,
    "by position": eval("lambda a, /: a"),
}
for function in REFUSED.values():
    function.__annotations__ = {"_a": int, "a": int} if function is not REFUSED["no annotation"] else {}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_parameters_are_refused(name):
    assert both(lambda library: library.function_tool(REFUSED[name])) == [TypeError, TypeError]


def test_a_tool_needs_a_name():
    found = both(lambda library: library.pydantic_function_tool(Place, handler=str, name=""))
    assert found == [ValueError, ValueError]


OUTPUTS = {
    "text": "x",
    "nothing": None,
    "a model": Place(city="c"),
    "a mapping": {"a": 1},
    "a list": [1, "x"],
    "an empty list": [],
    "a generator": None,
    "parts": [{"type": "input_text", "text": "x"}],
    "an image": [{"type": "input_image", "image_url": "x"}],
    "what looks like parts": [{"type": "input_text", "text": "x", "more": 1}],
    "parts of a wrong kind": [{"type": "input_text", "text": 1}],
    "a number": 1.5,
    "not a number": float("nan"),
    "bytes": b"x",
    "models": [Place(city="c")],
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_equal_the_openai_clients(name):
    def handler(_):
        return (n for n in (1, 2)) if name == "a generator" else OUTPUTS[name]

    their, our = both(lambda library: library.pydantic_function_tool(Place, handler=handler)({"city": "x"}))
    assert our == their


@pytest.mark.parametrize("name", OUTPUTS)
async def test_outputs_of_coroutines_equal_the_openai_clients(name):
    async def handler(_):
        await anyio.sleep(0)
        return (n for n in (1, 2)) if name == "a generator" else OUTPUTS[name]

    found = []
    for library in (theirs, ours):
        try:
            found.append(await library.pydantic_function_tool(Place, handler=handler)({"city": "x"}))
        except (TypeError, ValueError) as error:
            found.append(type(error))
    assert found[1] == found[0]


def test_arguments_are_validated():
    tool = ours.function_tool(lookup)
    assert json.loads(tool({"place": {"city": "Ulm"}, "days": 2})) == {"where": "Ulm", "unit": "c", "days": 2}
    for wrong in ({}, {"place": {"city": "x"}, "days": 0}, {"place": {"city": "x"}, "more": 1}):
        with pytest.raises(pydantic.ValidationError):
            tool(wrong)


def test_the_plain_class_does_not_convert_outputs():
    given = {"name": "n", "description": "d"}
    their, our = both(
        lambda library: library.FunctionTool(Place, lambda place: [place], **given)({"city": "x"})
    )
    assert our == their == [Place(city="x")]


def test_an_unawaited_coroutine_output_can_be_closed():
    """A synchronous client discards a coroutine's output without a "never awaited" warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = ours.function_tool(later)({"place": {"city": "x"}})
        assert inspect.isawaitable(output)
        output.close()


def test_an_unknown_annotation_raises():
    def function(a: Nowhere):  # noqa: F821
        return a

    assert both(lambda library: library.function_tool(function)) == [NameError, NameError]


def test_the_text_format_of_a_type_equals_the_openai_clients():
    their, our = both(lambda library: library.agent_text_format(Place))
    assert our == their
    assert both(lambda library: library.agent_text_format(int)) == [TypeError, TypeError]


def test_every_public_name_exists():
    names = {name for name in vars(theirs) if not name.startswith("_")}
    assert names == set(ours.__all__)
    assert all(inspect.isclass(getattr(ours, name)) or callable(getattr(ours, name)) for name in names)
