"""Answers with values of another type: as index of choices and tool calls, as model and id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from loopback_server import OpenAIServer, events, reply

from specclient import APIError, APIResponseValidationError, OpenAI, Policy
from specclient.types.model_aliases import LONGEST_NAME

ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
#: Values that no table can have as a key, and others.
UNUSABLE: list[Any] = [[], {"a": 1}, [0]]
USABLE: list[Any] = ["first", 1.5, None]


@pytest.fixture
def client(openai_server: OpenAIServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=openai_server.base_url, api_key="k", max_retries=0, ledger="off") as client:
        yield client


def _answer(index: Any) -> Any:
    message = {"role": "assistant", "content": "hello"}
    choices = [
        {"index": index, "message": message, "finish_reason": "stop"},
        {"index": 1, "message": message, "finish_reason": "stop"},
    ]
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}


def _chunks(index: Any, call_index: Any = 0) -> list[bytes]:
    function = {"name": "f", "arguments": "{}"}
    call = {"index": call_index, "id": "t", "type": "function", "function": function}
    deltas = [({"role": "assistant", "content": "hello"}, None), ({"tool_calls": [call]}, None), ({}, "stop")]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    found = []
    for delta, reason in deltas:
        choices = [{"index": place, "delta": delta, "finish_reason": reason} for place in (index, 1)]
        found.append(b"data: %b\n\n" % json.dumps({**head, "choices": choices}).encode())
    return [*found, b"data: [DONE]\n\n"]


@pytest.mark.parametrize("index", UNUSABLE, ids=repr)
def test_an_unusable_index_of_a_chunk_is_a_validation_error(
    client: OpenAI, openai_server: OpenAIServer, index: Any
) -> None:
    openai_server.script(
        reply(200, _answer(index)), *[events(*_chunks(index))] * 2, *[events(*_chunks(0, index))] * 2
    )
    assert client.chat.completions.create(**ASK).choices[0].index == index, "an answer is given as sent"
    for _ in range(2):
        with pytest.raises(APIResponseValidationError):
            list(client.chat.completions.create(**ASK, stream=True))
        with pytest.raises(APIResponseValidationError), client.chat.completions.stream(**ASK) as stream:
            list(stream)


@pytest.mark.parametrize("status", UNUSABLE, ids=repr)
def test_a_response_with_an_unusable_status_is_given_and_recorded(
    openai_server: OpenAIServer, status: Any
) -> None:
    text = {"type": "output_text", "text": "hello", "annotations": []}
    output = [{"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}]
    openai_server.script(reply(200, {"id": "r", "object": "response", "status": status, "output": output}))
    with OpenAI(base_url=openai_server.base_url, api_key="k", max_retries=0) as client:
        answer = client.responses.create(model="m", input="hi", background=True)
        client.ledger.flush()
        (row,) = client.ledger.rows()
    assert answer.status == status
    assert row.status == "ok"


@pytest.mark.parametrize(
    "body",
    [{}, {"error": {"message": "no"}}, {"choices": None}, b"busy"],
    ids=["{}", "error", "null", "text"],
)
def test_an_answer_without_choices_is_given_and_recorded_with_estimated_usage(
    openai_server: OpenAIServer, body: Any
) -> None:
    openai_server.script(*[reply(200, body)] * 3)
    with OpenAI(base_url=openai_server.base_url, api_key="k", max_retries=0) as client:
        answer: Any = client.chat.completions.create(**ASK)
        client.ledger.flush()
        (row,) = client.ledger.rows()
        with pytest.raises(APIError):
            client.chat.completions.create(**ASK, policy=Policy(fallbacks=["openai/m-small"]))
    assert (row.status, row.usage_estimated) == ("error", True)
    assert row.prompt_tokens
    assert answer == "busy" if isinstance(body, bytes) else answer.meta.usage.estimated


@pytest.mark.parametrize("index", USABLE, ids=repr)
def test_another_index_is_kept(client: OpenAI, openai_server: OpenAIServer, index: Any) -> None:
    openai_server.script(
        reply(200, _answer(index)),
        events(*_chunks(index)),
        events(*_chunks(index)),
        events(*_chunks(0, index)),
    )
    answer = client.chat.completions.create(**ASK)
    assert [choice.message.content for choice in answer.choices] == ["hello"] * 2
    chunks = list(client.chat.completions.create(**ASK, stream=True))
    assert len(chunks) == 3
    with client.chat.completions.stream(**ASK) as stream:
        list(stream)
        assert {choice.message.content for choice in stream.get_final_completion().choices} == {"hello"}
    list(client.chat.completions.create(**ASK, stream=True))


@pytest.mark.parametrize("odd", [[None], {"a": 1}, ""], ids=repr)
def test_a_model_or_id_that_is_no_text_is_not_recorded(
    client: OpenAI, openai_server: OpenAIServer, odd: Any
) -> None:
    chunks = [
        chunk.replace(b'"id": "c"', b'"id": %b' % json.dumps(odd).encode()).replace(
            b'"model": "m"', b'"model": %b' % json.dumps(odd).encode()
        )
        for chunk in _chunks(0)
    ]
    openai_server.script(reply(200, {**_answer(0), "model": odd, "id": odd}), events(*chunks))
    assert client.chat.completions.create(**ASK).meta.served_model is None
    stream = client.chat.completions.create(**ASK, stream=True)
    assert len(list(stream)) == 3
    assert stream.meta.served_model is None


def test_the_record_keeps_the_beginning_of_a_long_models_name(
    client: OpenAI, openai_server: OpenAIServer
) -> None:
    name = "m" * (LONGEST_NAME + 1)
    chunks = [chunk.replace(b'"model": "m"', b'"model": "%b"' % name.encode()) for chunk in _chunks(0)]
    openai_server.script(reply(200, {**_answer(0), "model": name}), events(*chunks))
    answer = client.chat.completions.create(**ASK)
    assert (answer.model, answer.meta.served_model) == (name, name[:-1])
    stream = client.chat.completions.create(**ASK, stream=True)
    assert {chunk.model for chunk in stream} == {name}
    assert stream.meta.served_model == name[:-1]


@pytest.mark.parametrize("kind", [{"a": 1}, [], 7, None], ids=repr)
@pytest.mark.parametrize("model", ["m", "auto"])
def test_an_event_of_a_response_whose_type_is_no_text_is_passed_on(
    client: OpenAI, openai_server: OpenAIServer, kind: Any, model: str
) -> None:
    added = {"type": "response.output_item.added", "item": {"type": kind}, "output_index": 0}
    done = {"type": "response.completed", "response": {"id": "r", "model": "m", "output": [{"type": kind}]}}
    frames = [b"data: %b\n\n" % json.dumps(event).encode() for event in ({"type": kind}, added, done)]
    openai_server.script(events(*frames))
    received = list(
        client.with_options(candidates=["m"]).responses.create(model=model, input="x", stream=True)
    )
    assert [event.type for event in received[1:]] == ["response.output_item.added", "response.completed"]
