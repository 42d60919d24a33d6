"""The Responses API over an engine that serves chat completions only, through the official client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from gateway_server import Served
from pydantic import BaseModel

Connect = Callable[[str], openai.OpenAI]
MODEL = "local/demo"
ASK: Any = {"model": MODEL, "input": "def f(x):", "temperature": 0, "max_output_tokens": 24}
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM: Any = {"format": {"type": "json_schema", "name": "town", "schema": SCHEMA, "strict": True}}
TOOL: Any = {"type": "function", "name": "sky", "parameters": SCHEMA, "strict": True}


@pytest.fixture
def client(connect: Connect, local_server: Served) -> openai.OpenAI:
    return connect(local_server.base_url)


def test_a_response_equals_the_chat_completion_of_its_input(client: openai.OpenAI) -> None:
    response = client.responses.create(**ASK, instructions="brief", metadata={"a": "b"})
    chat = client.chat.completions.create(
        model=MODEL, max_tokens=24, temperature=0,
        messages=[{"role": "system", "content": "brief"}, {"role": "user", "content": "def f(x):"}],
    )  # fmt: skip
    assert response.output_text == chat.choices[0].message.content
    assert (response.status, response.metadata, response.model) == ("incomplete", {"a": "b"}, MODEL)
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert chat.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (chat.usage.prompt_tokens, 24)
    assert response.id.startswith("resp_")


def test_streamed_events_add_up_to_the_response(client: openai.OpenAI) -> None:
    whole = client.responses.create(**ASK)
    events = list(client.responses.create(**ASK, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert [kind for kind in kinds if kind != "response.output_text.delta"] == [
        "response.created", "response.in_progress",
        "response.output_item.added", "response.content_part.added",
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.incomplete",
    ]  # fmt: skip
    last: Any = events[-1]
    assert last.response.output_text == whole.output_text
    assert last.response.usage.output_tokens == 24


def test_the_official_clients_stream_helper_accumulates_the_events(client: openai.OpenAI) -> None:
    with client.responses.stream(**ASK, text=FORM) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        found = stream.get_final_response()
    assert found.output_text == text == client.responses.create(**ASK, text=FORM).output_text
    assert found.status == "completed"


def test_output_follows_a_schema_and_log_probabilities_are_returned(client: openai.OpenAI) -> None:
    class Town(BaseModel):
        city: str

    response = client.responses.create(**ASK, text=FORM)
    assert json.loads(response.output_text)["city"] in ("Ulm", "Bonn")
    assert response.status == "completed"
    parsed = client.responses.parse(**{**ASK, "max_output_tokens": 200}, text_format=Town)
    assert isinstance(parsed.output_parsed, Town)
    scored = client.responses.create(**ASK, include=["message.output_text.logprobs"], top_logprobs=2)
    (message,) = scored.output
    scores = message.content[0].logprobs  # type: ignore[union-attr]
    assert len(scores) == 24  # type: ignore[arg-type]
    assert all(len(score.top_logprobs) == 2 and score.logprob <= 0 for score in scores)  # type: ignore[union-attr]


def test_functions_are_called_and_their_results_are_in_the_prompt(
    connect: Connect, tool_server: Served
) -> None:
    client = connect(tool_server.base_url)
    ask: Any = {"model": "local/taught", "temperature": 0, "max_output_tokens": 60}
    ask |= {"tools": [TOOL], "tool_choice": {"type": "function", "name": "sky"}}
    first = client.responses.create(input="The sky?", **ask)
    (call,) = first.output
    assert call.type == "function_call"
    assert call.name == "sky"
    assert json.loads(call.arguments)["city"] in ("Ulm", "Bonn")
    events: list[Any] = list(client.responses.create(input="The sky?", stream=True, **ask))
    streamed = events[-1].response.output[0]
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments)
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "The sky?"}]},
        call.to_dict(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "blue"},
    ]
    after = client.responses.create(input=items, **{**ask, "tools": [TOOL], "tool_choice": "none"})
    assert after.output[0].type == "message"
    assert after.usage is not None
    assert first.usage is not None
    assert after.usage.input_tokens > first.usage.input_tokens  # the prompt contains call and result


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": []}, "input"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"include": [{}]}, "include"),
        ({"text": {"format": 1}}, "text.format"),
        ({"instructions": 3}, "instructions"),
    ],
)
def test_a_parameter_the_engine_does_not_support_is_named(
    client: openai.OpenAI, given: Any, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**ASK, **given})
    assert caught.value.param == param


def test_the_route_is_reported_when_requested(client: openai.OpenAI) -> None:
    more: Any = {"specclient": {"meta": True}}
    whole: Any = client.responses.create(**ASK, extra_body=more)
    assert whole.model_extra["specclient"]["route"]["chosen"] == MODEL
    *_, last = client.responses.create(**ASK, stream=True, extra_body=more)
    assert last.type == "specclient.meta"  # type: ignore[comparison-overlap]
