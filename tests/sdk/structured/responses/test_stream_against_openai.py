"""The same response events give the same events and responses as in the OpenAI client."""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.lib.streaming.responses import ResponseStreamState
from specclient.structured import parse_response, response_tools
from specclient.structured.tools import pydantic_function_tool, pydantic_responses_function_tool
from specclient.types.base import read_as
from specclient.types.responses import Response, ResponseStreamEvent

openai = pytest.importorskip("openai")
theirs = pytest.importorskip("openai.lib.streaming.responses")
their_types = pytest.importorskip("openai.types.responses")
models = pytest.importorskip("openai._models")
read_event = read_as(ResponseStreamEvent)


class City(pydantic.BaseModel):
    name: str
    rivers: list[str] = []


class Weather(pydantic.BaseModel):
    """Tell the weather."""

    city: str


STRICT = {"type": "function", "name": "search", "strict": True, "parameters": {}}
LOOSE = {"type": "function", "name": "anything", "strict": False, "parameters": {}}
SPACE = {"type": "namespace", "name": "geo", "description": "", "tools": [STRICT]}
ARGUMENTS = {"Weather": '{"city": "Oslo"}', "search": '{"q": [1]}', "anything": "no json"}
CITY = '{"name": "Ulm, \\u00fc", "rivers": ["Donau", "Iller"]}'


class Case(NamedTuple):
    events: list[dict[str, Any]]
    text_format: Any
    tools: bool


def response(status: str, output: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "status": status,
        "model": "m",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **more,
    }


def pieces(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


CUTS = st.lists(st.integers(0, 200), max_size=5)


@st.composite
def message(draw: st.DrawFn, at: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    phase = draw(st.sampled_from([{}, {"phase": "commentary"}, {"phase": "final_answer"}]))
    item = {
        "id": f"msg_{at}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
        **phase,
    }
    events: list[dict[str, Any]] = [{"type": "response.output_item.added", "item": item}]
    content = []
    for index, kind in enumerate(draw(st.lists(st.sampled_from(["output_text", "refusal"]), max_size=2))):
        key = "text" if kind == "output_text" else "refusal"
        extra = {"annotations": []} if kind == "output_text" else {}
        part = {"type": kind, key: CITY, **extra}
        place = {"item_id": item["id"], "content_index": index}
        name = "response.output_text" if kind == "output_text" else "response.refusal"
        probs = {"logprobs": []} if kind == "output_text" else {}
        padding = draw(st.sampled_from([{}, {"obfuscation": "xyz"}]))
        events.append(
            {"type": "response.content_part.added", "part": {"type": kind, key: "", **extra}, **place}
        )
        events += [
            {"type": f"{name}.delta", "delta": piece, **place, **probs, **padding}
            for piece in pieces(CITY, draw(CUTS))
        ]
        events.append({"type": f"{name}.done", key: CITY, **place, **probs})
        events.append({"type": "response.content_part.done", "part": part, **place})
        content.append(part)
    return events, {**item, "status": "completed", "content": content}


@st.composite
def call(draw: st.DrawFn, at: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    name = draw(st.sampled_from(list(ARGUMENTS)))
    space = draw(st.sampled_from([{}, {"namespace": "geo"}, {"namespace": name}, {"namespace": "none"}]))
    item = {
        "id": f"fc_{at}",
        "type": "function_call",
        "call_id": f"call_{at}",
        "name": name,
        "arguments": "",
        **space,
    }
    place = {"item_id": item["id"]}
    deltas = [
        {"type": "response.function_call_arguments.delta", "delta": piece, **place}
        for piece in pieces(ARGUMENTS[name], draw(CUTS))
    ]
    done = {
        "type": "response.function_call_arguments.done",
        "arguments": ARGUMENTS[name],
        "name": name,
        **place,
    }
    whole = {**item, "arguments": ARGUMENTS[name], "status": "completed"}
    return [{"type": "response.output_item.added", "item": item}, *deltas, done], whole


@st.composite
def reasoning(draw: st.DrawFn, at: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    item = {"id": f"rs_{at}", "type": "reasoning", "summary": []}
    delta = {
        "type": "response.reasoning_summary_text.delta",
        "delta": "hm",
        "summary_index": 0,
        "item_id": item["id"],
    }
    events = [{"type": "response.output_item.added", "item": item}, *[delta] * draw(st.integers(0, 2))]
    return events, {**item, "summary": [{"type": "summary_text", "text": "hm"}]}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = draw(st.lists(st.sampled_from([message, call, reasoning]), max_size=3))
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response("in_progress", draw(st.sampled_from([[], None])))},
        {"type": "response.in_progress", "response": response("in_progress", [])},
    ]
    whole = []
    gap = draw(st.booleans())
    for at, kind in enumerate(kinds):
        index = at + (1 if gap and at else 0)
        visible_results, item = draw(kind(at))
        events += [{"output_index": index, **event} for event in visible_results]
        events.append({"type": "response.output_item.done", "item": item, "output_index": index})
        whole.append(item)
    end = draw(st.sampled_from(["completed", "completed", "failed", "incomplete", "none"]))
    if end != "none":
        output = draw(st.sampled_from([whole, None]))
        usage = {"usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}
        events.append({"type": f"response.{end}", "response": response(end, output, **usage)})
    if draw(st.booleans()):
        events = events[: draw(st.integers(1, len(events)))]
    numbered = [{"sequence_number": number, **event} for number, event in enumerate(events)]
    return Case(numbered, draw(st.sampled_from([None, City])), draw(st.booleans()))


def their_tools() -> Any:
    make = pytest.importorskip("openai.lib._response_resources")._make_tools
    return make([openai.pydantic_function_tool(Weather), STRICT, LOOSE, SPACE])


def our_tools() -> Any:
    return response_tools([pydantic_function_tool(Weather), STRICT, LOOSE, SPACE])


def visible_results(state: Any, events: list[Any], completed: str) -> list[Any]:
    seen: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the OpenAI client's own, about its generic types
        for one in events:
            try:
                answers = state.handle_event(one)
            except (RuntimeError, ValueError) as error:
                seen.append(type(error).__name__)
                break
            seen.append([(type(event).__name__.partition("[")[0], event.to_dict()) for event in answers])
        whole = getattr(state, completed)
        seen.append(whole and (whole.to_dict(), whole.output_parsed and whole.output_parsed.model_dump()))
    return seen


@given(cases())
def test_the_events_equal_the_openai_clients(case: Case) -> None:
    wanted = {} if case.text_format is None else {"text_format": case.text_format}
    mine = ResponseStreamState(**wanted, **({"input_tools": our_tools()} if case.tools else {}))
    other = theirs.ResponseStreamState(
        text_format=case.text_format or openai.omit, input_tools=their_tools() if case.tools else openai.omit
    )
    ours = visible_results(mine, [read_event(json.dumps(one).encode()) for one in case.events], "completed")
    their_event = their_types.ResponseStreamEvent
    for our_step, their_step in itertools.zip_longest(
        ours,
        visible_results(
            other,
            [models.construct_type(type_=their_event, value=one) for one in case.events],
            "_completed_response",
        ),
    ):
        assert our_step == their_step


@given(cases())
def test_unstreamed_responses_equal_the_openai_clients(case: Case) -> None:
    parse = pytest.importorskip("openai.lib._parsing._responses").parse_response
    output = [event["item"] for event in case.events if event["type"] == "response.output_item.done"]
    body = response("completed", output, vendor="x")
    with warnings.catch_warnings(action="ignore"):  # the OpenAI client's own, about its generic types
        other = parse(
            text_format=case.text_format or openai.omit,
            input_tools=their_tools() if case.tools else None,
            response=their_types.Response.construct(**body),
        ).to_dict()
    mine = parse_response(
        Response.received(json.dumps(body).encode()),
        text_format=case.text_format,
        input_tools=our_tools() if case.tools else None,
    )
    assert mine.to_dict() == other


def test_tool_definitions_equal_the_openai_clients() -> None:
    assert our_tools() == their_tools()
    loose = pydantic_function_tool(Weather), openai.pydantic_function_tool(Weather)
    for tool in loose:
        del tool["function"]["strict"]
    make = pytest.importorskip("openai.lib._response_resources")._make_tools
    assert response_tools([loose[0]]) == make([loose[1]])
    with pytest.raises(ValueError, match="has the shape of chat completions"):
        response_tools([{"type": "function", "function": {"name": "x"}}])
    assert pydantic_responses_function_tool(Weather) == openai.pydantic_responses_function_tool(Weather)
