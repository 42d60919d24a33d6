"""The Responses API over chat completions: in this process as through the server, and at other providers."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from loopback_server import OpenAIServer, reply
from pydantic import BaseModel
from stored_responses import ASK as SHORT
from stored_responses import joined, local_settings, plain

import specclient

ASK: Any = {**SHORT, "input": "def f(x):", "max_output_tokens": 24}
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM: Any = {"format": {"type": "json_schema", "name": "town", "schema": SCHEMA, "strict": True}}
SCORED: Any = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}


class Town(BaseModel):
    city: str


MORE: Any = [{}, {"text": FORM}, SCORED, {"instructions": "brief", "metadata": {"a": "b"}}]


@pytest.mark.parametrize("more", MORE)
def test_a_response_in_this_process_equals_that_of_the_server(
    here: specclient.OpenAI, there: openai.OpenAI, more: Any
) -> None:
    ours, theirs = here.responses.create(**ASK, **more), there.responses.create(**ASK, **more)
    assert plain(ours) == plain(theirs)
    assert ours.meta.operation == "response"
    assert ours.meta.speculation.drafted > 0
    assert ours.meta.usage.completion == ours.usage.output_tokens


def test_streamed_events_equal_those_of_the_server(here: specclient.OpenAI, there: openai.OpenAI) -> None:
    stream = here.responses.create(**ASK, **SCORED, stream=True)
    ours = list(stream)
    theirs = list(there.responses.create(**ASK, **SCORED, stream=True))
    # Deltas come as the engine was ready, so only their sum is the same.
    assert joined(ours) == joined(theirs)
    assert [type(event).__name__ for event in ours if "delta" not in event.type] == [
        type(event).__name__ for event in theirs if "delta" not in event.type
    ]
    assert stream.meta.status == "ok"
    assert stream.meta.speculation is not None


def test_parse_stream_and_raw_responses(here: specclient.OpenAI) -> None:
    ask = {**ASK, "max_output_tokens": 200}
    assert isinstance(here.responses.parse(**ask, text_format=Town).output_parsed, Town)
    with here.responses.stream(**ask, text_format=Town) as stream:
        kinds = [event.type for event in stream]
        assert isinstance(stream.get_final_response().output_parsed, Town)
    assert kinds[-1] == "response.completed"
    raw = here.responses.with_raw_response.create(**ASK)
    assert raw.parse().output_text == here.responses.create(**ASK).output_text


def test_items_of_an_answer_and_of_the_openai_package_are_an_input(here: specclient.OpenAI) -> None:
    first = here.responses.create(**ASK)
    user = {"role": "user", "content": "def f(x):"}
    turns: list[Any] = [user, *first.output, user]
    again = here.responses.create(**{**ASK, "input": turns})
    assert again.usage.input_tokens > first.usage.input_tokens


def test_the_asynchronous_client_answers_and_streams(folder: Any) -> None:
    async def run() -> tuple[str, str]:
        async with specclient.AsyncOpenAI(config=local_settings("off")) as client:
            whole = await client.responses.create(**ASK)
            stream = await client.responses.create(**ASK, stream=True)
            return whole.output_text, "".join([e.delta async for e in stream if "delta" in e.type])

    whole, streamed = asyncio.run(run())
    assert whole == streamed != ""


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_auto_routes_a_response_to_a_provider_without_the_api(
    openai_server: OpenAIServer, dialect: str
) -> None:
    provider = {"base_url": openai_server.base_url, "api_key": "k", "dialect": dialect}
    provider |= {"capabilities": {"responses": False}}
    usage = {"input_tokens": 3, "output_tokens": 2}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    if dialect == "anthropic":
        body = {**message, "content": [{"type": "text", "text": "Ulm"}], "usage": usage}
        openai_server.script(reply(200, body))
    settings = local_settings("off", providers={"mine": provider}, candidates=["mine/m"])
    with specclient.OpenAI(config=settings) as client:
        answer = client.responses.create(model="auto", input="where?", max_output_tokens=9)
        assert (answer.status, answer.model) == ("completed", "mine/m")
        assert answer.output_text
        assert answer.meta.route.chosen == "mine/m"
        assert answer.meta.usage.completion == answer.usage.output_tokens
    (request,) = openai_server.requests
    assert request.path in ("/v1/chat/completions", "/v1/messages")


def test_auto_routes_a_response_to_a_local_model_and_fails_over_from_it(openai_server: OpenAIServer) -> None:
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [],
    }
    openai_server.script(reply(200, body))
    provider = {"base_url": openai_server.base_url, "api_key": "k"}
    settings = local_settings("off", providers={"mine": provider}, candidates=["local/demo", "mine/m"])
    with specclient.OpenAI(config=settings) as client:
        answer = client.responses.create(**{**ASK, "model": "auto"})
        assert (answer.meta.route.chosen, answer.model) == ("local/demo", "local/demo")
        # The engine cannot search the web, and the provider may.
        answer = client.responses.create(**{**ASK, "model": "auto"}, tools=[{"type": "web_search"}])
        assert answer.id == "resp_1"
