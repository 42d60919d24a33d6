"""Unstreamed chat completions are parsed into types as by the OpenAI client."""

from __future__ import annotations

import gc
import json
import logging
import warnings
import weakref
from typing import Any

import pydantic
import pytest

from specclient.errors import ConfigurationError, ContentFilterFinishReasonError, LengthFinishReasonError
from specclient.structured.chat.parsing import parse_chat_completion
from specclient.structured.chat.state import ChatCompletionStreamState
from specclient.structured.schema import chat_format
from specclient.structured.tools import pydantic_function_tool, strict_tools
from specclient.types.chat import ChatCompletion, ChatCompletionChunk, ParsedChatCompletion
from specclient.types.params import NOT_GIVEN


class City(pydantic.BaseModel):
    name: str
    people: int = 0


class Weather(pydantic.BaseModel):
    city: str


STRICT = {"type": "function", "function": {"name": "search", "strict": True, "parameters": {}}}
LOOSE = {"type": "function", "function": {"name": "anything", "parameters": {}}}


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(*messages: dict[str, Any], reason: str = "stop", **more: Any) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "finish_reason": reason,
            "logprobs": None,
            "message": {"role": "assistant", **message},
        }
        for index, message in enumerate(messages)
    ]
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, **more}


BODIES = [
    completion(
        {"content": '{"name": "Ulm"}'}, usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    ),
    completion({"content": '{"name": "Ulm"}', "refusal": None}, {"content": '{"name": "Köln", "people": 3}'}),
    completion({"content": None, "refusal": "No."}, vendor={"queue": 0.1}),
    completion({"content": "", "annotations": [], "reasoning_content": "well"}),
    completion(
        {
            "content": None,
            "tool_calls": [
                call("Weather", '{"city": "Oslo"}'),
                call("search", '{"q": [1]}'),
                call("anything", "no json"),
                call("unknown", "{}"),
            ],
        },
        reason="tool_calls",
    ),
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("typed", [True, False])
def test_completions_are_parsed_as_by_the_openai_client(body: dict[str, Any], typed: bool) -> None:
    openai = pytest.importorskip("openai")
    from openai.lib._parsing import parse_chat_completion as parse
    from openai.types.chat import ChatCompletion as TheirCompletion

    tools = [STRICT, LOOSE]
    theirs = parse(
        response_format=City if typed else openai.omit,
        input_tools=[openai.pydantic_function_tool(Weather), *tools],
        chat_completion=TheirCompletion.construct(**body),
    )
    mine = parse_chat_completion(
        ChatCompletion.received(json.dumps(body).encode()),
        response_format=City if typed else NOT_GIVEN,
        input_tools=[pydantic_function_tool(Weather), *tools],
    )
    with warnings.catch_warnings(action="ignore"):  # the OpenAI client's own, about its generic types
        dumps = theirs.to_dict(), theirs.model_dump()
    assert (mine.to_dict(), mine.model_dump()) == dumps
    ours, other = ([choice.message for choice in parsed.choices] for parsed in (mine, theirs))
    assert [message.parsed for message in ours] == [message.parsed for message in other]
    arguments = [[one.function.parsed_arguments for one in message.tool_calls or ()] for message in ours]
    assert arguments == [[one.function.parsed_arguments for one in m.tool_calls or ()] for m in other]


def test_parsing_does_not_change_the_given_completion() -> None:
    plain = ChatCompletion.received(json.dumps(BODIES[4]).encode())
    before = plain.to_dict()
    parsed = parse_chat_completion(plain, input_tools=[pydantic_function_tool(Weather)])
    assert isinstance(parsed, ParsedChatCompletion)
    assert parsed.choices[0].message.tool_calls[0].function.parsed_arguments == Weather(city="Oslo")
    assert plain.to_dict() == before
    assert ParsedChatCompletion[City].model_validate(parsed.model_dump()).id == "c"


def test_a_plain_json_schema_gives_decoded_json() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    body = json.dumps(BODIES[0]).encode()
    parsed = parse_chat_completion(ChatCompletion.received(body), response_format=schema)
    assert parsed.choices[0].message.parsed == {"name": "Ulm"}
    unparsed = parse_chat_completion(ChatCompletion.received(body), response_format=chat_format(schema))
    assert unparsed.choices[0].message.parsed is None


@pytest.mark.parametrize(
    ("reason", "error", "text"),
    [
        ("length", LengthFinishReasonError, "length limit was reached"),
        ("content_filter", ContentFilterFinishReasonError, "rejected by the content filter"),
    ],
)
def test_a_truncated_or_filtered_answer_is_not_parsed(reason: str, error: type[Any], text: str) -> None:
    body = ChatCompletion.received(json.dumps(completion({"content": '{"na'}, reason=reason)).encode())
    with pytest.raises(error, match=text) as caught:
        parse_chat_completion(body, response_format=City)
    assert caught.value.completion is body


def test_an_answer_that_does_not_match_the_type_is_refused() -> None:
    body = ChatCompletion.received(json.dumps(completion({"content": '{"people": "many"}'})).encode())
    with pytest.raises(pydantic.ValidationError, match="2 validation errors for City"):
        parse_chat_completion(body, response_format=City)
    bad = completion({"content": None, "tool_calls": [call("search", "no json")]})
    with pytest.raises(json.JSONDecodeError):
        parse_chat_completion(ChatCompletion.received(json.dumps(bad).encode()), input_tools=[STRICT])


def test_custom_tool_calls_are_omitted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    custom = {"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    body = completion({"content": None, "tool_calls": [custom, call("search", "{}")]})
    with caplog.at_level(logging.WARNING, logger="specclient"):
        parsed = parse_chat_completion(
            ChatCompletion.received(json.dumps(body).encode()), input_tools=[STRICT]
        )
    assert [one.id for one in parsed.choices[0].message.tool_calls] == ["call_search"]
    assert "call_1" in caplog.text
    assert "select" not in caplog.text


def test_tools_that_cannot_be_parsed_are_refused_before_sending() -> None:
    with pytest.raises(ValueError, match="`anything` is not strict"):
        strict_tools([LOOSE])
    with pytest.raises(ConfigurationError, match=r"`custom`.*only `function` tools"):
        strict_tools([{"type": "custom", "custom": {"name": "sql"}}])
    assert strict_tools(tool for tool in [STRICT]) == [STRICT]
    assert strict_tools(NOT_GIVEN) is NOT_GIVEN
    assert strict_tools(None) is None


def test_types_created_for_one_call_are_garbage_collected() -> None:
    body = json.dumps(
        completion({"content": '{"name": "Ulm"}', "tool_calls": [call("Fresh", '{"name": "Ulm"}')]})
    )
    delta = {"role": "assistant", "content": '{"name": "Ulm"}'}
    choices = [{"index": 0, "delta": delta, "finish_reason": "stop"}]
    chunk = json.dumps(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    )
    made: list[weakref.ref[Any]] = []
    for _ in range(200):
        kind = pydantic.create_model("Fresh", name=(str, ...))
        tools = [pydantic_function_tool(kind)]
        chat_format(kind)
        parsed = parse_chat_completion(
            ChatCompletion.received(body.encode()), response_format=kind, input_tools=tools
        )
        assert parsed.choices[0].message.parsed == kind(name="Ulm")
        state: ChatCompletionStreamState[Any] = ChatCompletionStreamState(
            response_format=kind, input_tools=tools
        )
        assert len(state.handle_chunk(ChatCompletionChunk.received(chunk.encode()))) == 3
        assert state.get_final_completion().choices[0].message.parsed == kind(name="Ulm")
        made.append(weakref.ref(kind))
    del kind, tools, parsed, state
    gc.collect()
    assert sum(one() is not None for one in made) == 0
