"""The same chunks give the same events, snapshots and completions as in the OpenAI client."""

from __future__ import annotations

import itertools
import json
import random
import warnings
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient import errors, lib
from specclient.lib.streaming import chat as ours
from specclient.types.chat import ChatCompletionChunk

openai = pytest.importorskip("openai")
theirs = pytest.importorskip("openai.lib.streaming.chat")
TheirChunk = pytest.importorskip("openai.types.chat").ChatCompletionChunk


class City(pydantic.BaseModel):
    name: str
    people: int
    rivers: list[str]


class Weather(pydantic.BaseModel):
    """Tell the weather."""

    city: str
    days: int


PLAIN_TOOL = {
    "type": "function",
    "function": {"name": "search", "strict": True, "parameters": {"type": "object", "properties": {}}},
}
LOOSE_TOOL = {"type": "function", "function": {"name": "anything", "parameters": {"type": "object"}}}
ARGUMENTS = {
    "Weather": '{"city": "Oslo", "days": 3}',
    "search": '{"q": ["a", {"b": null}]}',
    "anything": "{}",
}
CITY = '{"name": "Ulm, \\u00fc\\n", "people": 126405, "rivers": ["Donau", "Iller", "Blau"]}'
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


class Case(NamedTuple):
    chunks: list[dict[str, Any]]
    response_format: Any
    tools: bool


def pieces(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def logprob(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}


@st.composite
def choice_deltas(draw: st.DrawFn, content: str | None) -> list[dict[str, Any]]:
    """Draw one choice's deltas in order: role, text or refusal, tool calls, finish reason."""
    cuts = st.lists(st.integers(0, 200), max_size=6)
    out: list[dict[str, Any]] = [{"delta": {"role": "assistant", **draw(st.sampled_from(STARTS))}}]
    vendor = draw(st.booleans())
    text = content if content is not None else draw(st.text(max_size=20))
    for kind in draw(st.permutations(["content", "refusal"]))[: draw(st.integers(0, 2))]:
        for piece in pieces(text, draw(cuts)):
            extra = {"reasoning_content": "hm", "score": 2} if vendor else {}
            probs = {
                kind: [logprob(piece)],
                **({"refusal": None} if kind == "content" else {"content": None}),
            }
            out.append({"delta": {kind: piece, **extra}, "logprobs": draw(st.sampled_from([None, probs]))})
    for index, name in enumerate(draw(st.lists(st.sampled_from(list(ARGUMENTS)), max_size=3))):
        start = {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        out.append({"delta": {"tool_calls": [start]}})
        out.extend(
            {"delta": {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}}
            for piece in pieces(ARGUMENTS[name], draw(cuts))
        )
    reason = draw(st.sampled_from(["stop"] * 4 + ["tool_calls", "length", "content_filter"]))
    return [*out, {"delta": {}, "finish_reason": reason}]


STARTS: list[dict[str, Any]] = [
    {"content": ""},
    {"content": None, "refusal": None},
    {},
    {"content": "", "annotations": []},
]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    response_format = draw(st.sampled_from([None, City, {"type": "json_object"}]))
    content = CITY if response_format is City else None
    choices = [draw(choice_deltas(content)) for _ in range(draw(st.integers(1, 3)))]
    order = [index for index, deltas in enumerate(choices) for _ in deltas]
    random.Random(draw(st.integers(0, 999))).shuffle(order)
    order = [*range(len(choices)), *order[len(choices) :]] if len(choices) > 1 else order
    left = {index: list(deltas) for index, deltas in enumerate(choices)}
    out = [
        chunk([{"index": index, "finish_reason": None, **left[index].pop(0)}])
        for index in order
        if left[index]
    ]
    out += [chunk([{"index": i, "finish_reason": None, **d}]) for i, rest in left.items() for d in rest]
    if draw(st.booleans()):
        out.append(chunk([], usage=USAGE))
    if draw(st.booleans()):  # Azure's first chunk
        out.insert(0, chunk([], prompt_filter_results=[{"prompt_index": 0}], obfuscation="xyz"))
    return Case(out, response_format, draw(st.booleans()))


def chunk(choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "system_fingerprint": "fp",
        "choices": choices,
        **more,
    }


def visible_results(state: Any, chunks: list[Any]) -> list[Any]:
    """Return what a caller sees: events and snapshot per chunk, then the completion or the error."""
    seen: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the OpenAI client's own, about its generic types
        try:
            for one in chunks:
                seen.append(
                    [
                        (type(event).__name__.partition("[")[0], event.to_dict())
                        for event in state.handle_chunk(one)
                    ]
                )
                seen.append(state.current_completion_snapshot.to_dict())
            seen.append(state.get_final_completion().to_dict())
        except (openai.OpenAIError, errors.OpenAIError) as error:
            partial = error.completion.to_dict()
            for choice in partial["choices"]:  # the OpenAI client's value lags behind the text
                choice["message"].pop("parsed", None)
            seen.append((type(error).__name__, str(error), partial))
    return seen


def both(case: Case) -> tuple[list[Any], list[Any]]:
    given_format = {} if case.response_format is None else {"response_format": case.response_format}
    our_tools = [lib.pydantic_function_tool(Weather), PLAIN_TOOL, LOOSE_TOOL]
    their_tools = [openai.pydantic_function_tool(Weather), PLAIN_TOOL, LOOSE_TOOL]
    mine = ours.ChatCompletionStreamState(
        **given_format, **({"input_tools": our_tools} if case.tools else {})
    )
    other = theirs.ChatCompletionStreamState(
        **given_format, **({"input_tools": their_tools} if case.tools else {})
    )
    return (
        visible_results(
            mine, [ChatCompletionChunk.received(json.dumps(one).encode()) for one in case.chunks]
        ),
        visible_results(other, [TheirChunk.construct(**one) for one in case.chunks]),
    )


@given(cases())
def test_the_events_equal_the_openai_clients(case: Case) -> None:
    mine, other = both(case)
    for our_step, their_step in zip(mine, other, strict=True):
        assert our_step == their_step
