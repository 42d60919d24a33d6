"""Additions to the OpenAI client's interface: calls that run a model are recorded in the ledger."""

from __future__ import annotations

from typing import Any

import pytest
from both_clients import Both, Side
from loopback_server import reply
from openai_calls import CALLS, MODERATED, RESPONSE, VECTOR

import specclient

ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}
EMBEDDED = {
    "object": "list",
    "model": "m",
    "data": [{"object": "embedding", "index": 0, "embedding": VECTOR}],
    "usage": {"prompt_tokens": 2, "total_tokens": 2},
}
IMAGE = {
    "created": 1,
    "data": [{"b64_json": "aGk="}],
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
}

METERED: dict[str, tuple[Any, Any, str]] = {
    "chat": (lambda c: c.chat.completions.create(**ASK), None, "chat"),
    "completion": (lambda c: c.completions.create(model="m-large", prompt="x"), None, "completion"),
    "embedding": (lambda c: c.embeddings.create(model="m", input="x"), EMBEDDED, "embedding"),
    "moderation": (lambda c: c.moderations.create(input="x"), MODERATED, "moderation"),
    "response": (lambda c: c.responses.create(model="m", input="x"), RESPONSE, "response"),
}


@pytest.fixture
def ours(both: Both) -> Both:
    """The same runner, for scenarios of this client alone; the OpenAI client records nothing."""
    return both


def rows(side: Side) -> list[Any]:
    return [(row.operation, row.status) for row in side.client.ledger.rows()]


def run(both: Both, scenario: Any, *answers: Any) -> Any:
    _, happened = both.run(lambda side: scenario(side) if side.ours else None, *answers)
    assert happened.error is None, happened.error
    return happened.result


@pytest.mark.parametrize("name", METERED)
def test_each_kind_of_model_call_is_recorded(ours: Both, name: str) -> None:
    call, body, operation = METERED[name]

    def scenario(side: Side) -> Any:
        answer = side.get(call(side.client))
        return [rows(side), answer.meta.status, answer.meta.operation, "meta" in answer.to_dict()]

    answers = [] if body is None else [reply(200, body), reply(200, body)]
    assert run(ours, scenario, *answers) == [[[operation, "ok"]], "ok", operation, False]


def test_images_are_recorded(ours: Both) -> None:
    def scenario(side: Side) -> Any:
        side.get(side.client.images.generate(model="m", prompt="x"))
        return len(rows(side))

    assert run(ours, scenario, reply(200, IMAGE)) == 1


def test_streams_and_raw_calls_are_recorded(ours: Both) -> None:
    def scenario(side: Side) -> Any:
        create = side.client.chat.completions
        stream = side.get_unread(create.create(**ASK, stream=True))
        side.items(stream)
        meta = stream.meta.status
        side.get(create.with_raw_response.create(**ASK))
        with side.within(create.with_streaming_response.create(**ASK)) as response:
            side.get(response.read())
        return [meta, rows(side)]

    assert run(ours, scenario) == ["ok", [["chat", "ok"]] * 3]


@pytest.mark.parametrize(
    "name",
    [
        "models.list",
        "models.retrieve",
        "chat.completions.retrieve",
        "chat.completions.list",
        "responses.delete",
    ],
)
def test_calls_that_run_no_model_are_not_recorded(ours: Both, name: str) -> None:
    call, answer = CALLS[name]

    def scenario(side: Side) -> Any:
        side.get(call(side.client))
        return rows(side)

    assert run(ours, scenario, answer) == []


def test_a_call_rejected_by_the_server_is_recorded(ours: Both) -> None:
    def scenario(side: Side) -> Any:
        with pytest.raises(specclient.BadRequestError):
            side.get(side.client.chat.completions.create(**ASK))
        return rows(side)

    assert run(ours, scenario, reply(400, {"error": {"message": "no"}})) == [["chat", "error"]]
