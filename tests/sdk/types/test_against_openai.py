"""Response objects read from the same bytes equal the OpenAI client's."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from datetime import UTC, datetime
from random import Random
from typing import Any, get_args

import openai.types
import openai.types.chat
import openai.types.responses
import pytest
from openai_bodies import body_of

from specclient.types.base import WireModel, read_as
from specclient.types.call import Call
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.embedding import CreateEmbeddingResponse
from specclient.types.model import Model
from specclient.types.moderation import ModerationCreateResponse
from specclient.types.responses.events import ResponseStreamEvent
from specclient.types.responses.models import Response
from specclient.types.route import Decision

PAIRS: list[tuple[type[Any], type[WireModel]]] = [
    (openai.types.chat.ChatCompletion, ChatCompletion),
    (openai.types.chat.ChatCompletionChunk, ChatCompletionChunk),
    (openai.types.Completion, Completion),
    (openai.types.CreateEmbeddingResponse, CreateEmbeddingResponse),
    (openai.types.Model, Model),
    (openai.types.ModerationCreateResponse, ModerationCreateResponse),
    (openai.types.responses.Response, Response),
]
EVENTS = {
    get_args(event.model_fields["type"].annotation)[0]: event
    for event in get_args(get_args(openai.types.responses.ResponseStreamEvent)[0])
}
read_event = read_as(ResponseStreamEvent)
seeds = pytest.mark.parametrize("seed", range(10))
no_warning = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


def dumps(answer: Any) -> list[Any]:
    """Return the results of all serialization methods of an answer."""
    return [
        answer.model_dump(),
        answer.model_dump(exclude_unset=True),
        answer.model_dump(by_alias=True, exclude_none=True),
        json.loads(answer.model_dump_json()),
        answer.to_dict(),
        answer.to_dict(mode="json", use_api_names=False, exclude_unset=False),
        json.loads(answer.to_json(indent=None, exclude_none=True)),
    ]


def drawn(kind: type[Any], seed: int, *, unknown: bool) -> dict[str, Any]:
    body: dict[str, Any] = body_of(kind, Random(seed), unknown=unknown)
    for response in (body, body.get("response")):  # echoed inputs are untyped here, so their dumps differ
        if isinstance(response, dict) and isinstance(response.get("instructions"), list):
            response["instructions"] = "be brief"
    return body


@seeds
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda cls: cls.__name__)
def test_answers_equal_the_openai_clients(
    theirs: type[Any], ours: type[WireModel], unknown: bool, seed: int
) -> None:
    body = drawn(theirs, seed, unknown=unknown)
    answer = ours.received(json.dumps(body).encode())
    expected = theirs.construct(**body)
    assert dumps(answer) == dumps(expected)
    assert answer == ours.received(json.dumps(body).encode())
    if ours is not ModerationCreateResponse:  # the OpenAI client writes some keys twice
        assert answer.to_json() == expected.to_json()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", EVENTS)
def test_stream_events_equal_the_openai_clients(kind: str, seed: int) -> None:
    body = drawn(EVENTS[kind], seed, unknown=True)
    event = read_event(json.dumps(body).encode())
    expected = EVENTS[kind].construct(**body)
    assert type(event).__name__ == type(expected).__name__
    assert dumps(event) == dumps(expected)


def minimal(kind: type[Any]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"id": "x"} if "id" in kind.model_fields else {}


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda cls: cls.__name__)
def test_a_missing_field_is_not_in_the_dump(theirs: type[Any], ours: type[WireModel]) -> None:
    body = minimal(theirs)
    assert ours.received(json.dumps(body).encode()).to_dict() == theirs.construct(**body).to_dict() == body


ODD: list[Any] = [7, 1.5, "", "weird", True, "1700000000"]


def fields(kind: type[Any]) -> list[str]:
    return [field.alias or name for name, field in kind.model_fields.items()]


@no_warning
@pytest.mark.parametrize("value", [*ODD, None, [3], {"a": {"b": [1]}}], ids=repr)
@pytest.mark.parametrize(("theirs", "ours"), [PAIRS[3], PAIRS[5], PAIRS[6]], ids=lambda cls: cls.__name__)
def test_values_of_an_unexpected_type_are_kept(theirs: type[Any], ours: type[WireModel], value: Any) -> None:
    for name in fields(theirs):
        body = {**dict.fromkeys(fields(theirs)), name: value}
        answer = ours.received(json.dumps(body).encode())
        expected = theirs.construct(**body)
        got, wanted = answer.to_dict()[name], expected.to_dict()[name]
        assert got == wanted or got in converted(value), name


@no_warning
@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize("path", ["choices.0", ""], ids=["choice", "answer"])
@pytest.mark.parametrize(("theirs", "ours"), PAIRS[:3], ids=lambda cls: cls.__name__)
def test_scalars_of_an_unexpected_type_are_kept_in_chats(
    theirs: type[Any], ours: type[WireModel], path: str, value: Any
) -> None:
    choice = ours.model_fields["choices"].annotation
    inner = get_args(choice)[0] if path else ours
    for name in inner.model_fields:
        if name in {"choices", "delta", "message", "usage"}:
            continue  # these must have the right type, or the answer is invalid
        odd = {name: value}
        body = {"choices": [{"index": 0, **odd}]} if path else {"choices": [], **odd}
        answer: Any = ours.received(json.dumps(body).encode())
        expected: Any = theirs.construct(**body)
        got, wanted = ((a.choices[0] if path else a).to_dict()[name] for a in (answer, expected))
        assert got == wanted or got in converted(value), name


def converted(value: Any) -> list[Any]:
    """Return the types to which specclient converts a value that the OpenAI client leaves unchanged."""
    if value in ("", "weird") or not isinstance(value, str | int | float):
        return []
    return [str(value), int(float(value)), float(value)]


def test_construct_converts_nested_mappings_to_objects() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {"id": 1, "choices": [{"index": "one", "message": {"tool_calls": [call, {"type": "alien"}]}}]}
    for make in (ChatCompletion.construct, ChatCompletion.model_construct):
        answer = make(**copy.deepcopy(body))
        assert answer.choices[0].message.tool_calls[0].function.name == "f"
        assert answer.choices[0].index == "one"
    assert body["choices"][0]["index"] == "one"


@pytest.mark.parametrize("cls", [ChatCompletion, openai.types.chat.ChatCompletion])
def test_answers_can_be_pickled_and_copied(cls: type[Any]) -> None:
    body = {"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}], "x": [1]}
    answer = cls.model_validate(
        {**body, "created": 1, "model": "m", "object": "chat.completion", "choices": []}
    )
    assert pickle.loads(pickle.dumps(answer)) == answer == answer.model_copy() == copy.deepcopy(answer)
    assert str(answer) == repr(answer)
    assert repr(answer).startswith("ChatCompletion(id='x', choices=[], created=1, model='m', object=")
    answer._request_id = "req_1"
    assert "req_1" not in json.dumps(answer.to_dict())
    assert pickle.loads(pickle.dumps(answer))._request_id == "req_1"


@pytest.mark.parametrize(
    "output",
    [
        [],
        [{"type": "message", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal"}]}],
        [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "alien", "content": "x"},
            {"type": "message", "content": [{"type": "output_text", "text": "b"}]},
        ],
    ],
)
def test_output_text_equals_the_openai_clients(output: list[Any]) -> None:
    body = {"id": "r", "output": output}
    expected = openai.types.responses.Response.construct(**copy.deepcopy(body)).output_text
    assert Response.received(json.dumps(body).encode()).output_text == expected


def test_equality_ignores_request_id_and_meta() -> None:
    body = b'{"id": "x", "choices": [], "vendor": 1}'
    one, other = ChatCompletion.received(body), ChatCompletion.received(body)
    one._request_id, other._request_id = "req_1", "req_2"
    one._meta = Call(
        id="1", started_at=datetime.now(UTC), operation="chat", model="m", route=Decision("p/m", "p", "m")
    )
    assert one == other
    assert one != ChatCompletion.received(body.replace(b"1", b"2"))
    assert one != ChatCompletion.received(body.replace(b"x", b"y"))
