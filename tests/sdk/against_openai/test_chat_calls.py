"""chat.completions: the same requests, responses, chunks and errors as with the OpenAI client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from both_clients import Both, Side, differences
from loopback_server import Behaviour, Received, Wire, events, reply

ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}


def test_a_complete_response(both: Both) -> None:
    happened = both.same(lambda side: side.get(side.client.chat.completions.create(**ASK)))
    assert happened.result["request_id"] == "req-whole"


def test_a_streamed_response(both: Both) -> None:
    happened = both.same(lambda side: side.get(side.client.chat.completions.create(**ASK, stream=True)))
    assert len(happened.result) > 5


def test_a_streamed_response_ends_with_usage_on_request(both: Both) -> None:
    options = {"include_usage": True}
    happened = both.same(
        lambda side: side.get(side.client.chat.completions.create(**ASK, stream=True, stream_options=options))
    )
    assert happened.result[-1]["dump"]["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 500, 503, 418])
def test_error_statuses_raise_the_same_errors(both: Both, status: int) -> None:
    body = {"error": {"message": "no such luck", "type": "t", "param": "p", "code": "c"}}
    both.same(
        lambda side: side.get(side.client.chat.completions.create(**ASK)),
        reply(status, body, {"x-request-id": "req-1"}),
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"plain text",
        b"<html>",
        {"message": "m"},
        {"error": "text"},
        {"detail": "d"},
        [1],
        {"error": {"code": 7}},
    ],
    ids=str,
)
def test_error_bodies_of_other_shapes_raise_the_same_errors(both: Both, body: Any) -> None:
    both.same(lambda side: side.get(side.client.chat.completions.create(**ASK)), reply(400, body))


async def _unasked_usage(received: Received, wire: Wire) -> None:
    """Refuse ``stream_options``, and end a stream without them by its usage."""
    if "stream_options" in received.json:
        refused = reply(400, {"error": {"message": "Unknown parameter: 'stream_options'."}})
        await refused(received, wire)
        return
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-large"}
    deltas = [({"content": "Hi"}, None), ({}, "stop")]
    frames = [
        {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in deltas
    ]
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    frames.append({**frame, "choices": [], "usage": usage})
    pieces = (b"data: " + json.dumps(each).encode() + b"\n\n" for each in frames)
    await events(*pieces, b"data: [DONE]\n\n")(received, wire)


def _final_usage(side: Side) -> Any:
    with side.within(side.client.chat.completions.stream(**ASK)) as stream:
        kinds = [event.type for event in side.items(stream)]
        return [kinds, side.get(stream.get_final_completion()).usage]


@pytest.mark.parametrize(
    "scenario",
    [lambda side: side.get(side.client.chat.completions.create(**ASK, stream=True)), _final_usage],
    ids=["chunks", "events"],
)
def test_usage_that_a_server_sends_without_a_request_is_delivered(
    both: Both, scenario: Callable[[Side], Any]
) -> None:
    theirs, ours = both.run(scenario, _unasked_usage, _unasked_usage)
    assert (theirs.error, ours.error) == (None, None)
    assert list(differences(ours.result, theirs.result)) == []


def test_usage_that_only_the_record_requested_is_in_the_final_completion(both: Both) -> None:
    theirs, ours = both.run(_final_usage)
    assert theirs.result[1] is None, "the caller has not requested usage"
    assert ours.result[0] == theirs.result[0], "the chunk with it is no event"
    assert ours.result[1]["set"] == {"prompt_tokens": 4, "completion_tokens": 9, "total_tokens": 13}


TEXT = {"content-type": "text/plain"}
#: Answers that are not as documented, with status 200 unless stated.
ODD_ANSWERS = {
    "nothing": reply(200, {}),
    "no choices": reply(200, {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}),
    "choices null": reply(200, {"id": "x", "choices": None}),
    "choices of another type": reply(200, {"choices": ["a", None, 3]}),
    "choices as an object": reply(200, {"choices": {"a": 1}}),
    "no message": reply(200, {"choices": [{"index": 0}]}),
    "a message as text": reply(200, {"choices": [{"index": 0, "message": "hi"}]}),
    "usage as text": reply(200, {"choices": [], "usage": "many"}),
    "usage out of range": reply(200, {"choices": [], "usage": {"prompt_tokens": -1, "total_tokens": "x"}}),
    "text": reply(200, b"hello", TEXT),
    "text without a type": reply(200, b"hello"),
    "JSON as text": reply(200, b'{"id":"x"}', TEXT),
    "HTML": reply(200, b"<html></html>", {"content-type": "text/html; charset=latin-1"}),
    "status 204": reply(204, b""),
    "an empty body": reply(200, b""),
    "an error": reply(200, {"error": {"message": "boom", "code": "c", "type": "t"}}),
    "an error as text": reply(200, {"error": "boom"}),
    "a list": reply(200, [1, 2]),
    "null": reply(200, None),
    "numbers as text": reply(200, {"created": "123", "choices": [{"index": "0", "message": {}}]}),
    "fractions": reply(200, {"created": 123.5, "choices": [], "model": 7}),
}


def _created(side: Side) -> Any:
    return side.get(side.client.chat.completions.create(**ASK))


def _raw(side: Side) -> Any:
    response = side.get(side.client.chat.completions.with_raw_response.create(**ASK))
    return [response.status_code, side.get(response.parse())]


def _streamed(side: Side) -> Any:
    with side.within(side.client.chat.completions.with_streaming_response.create(**ASK)) as response:
        return side.get(response.parse())


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("name", ODD_ANSWERS)
def test_answers_that_are_not_as_documented_are_given_as_sent(both: Both, name: str) -> None:
    answer = ODD_ANSWERS[name]

    def scenario(side: Side) -> Any:
        return [_created(side), _raw(side), _streamed(side)]

    assert both.same(scenario, answer, answer, answer).error is None


def _chunk_stream(*frames: Any) -> Behaviour:
    pieces = (b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)
    return events(*pieces, b"data: [DONE]\n\n")


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    "frame",
    [
        {"choices": [{"delta": {"content": "a"}}]},
        {"created": "123", "model": 3, "choices": [{"index": "0", "delta": {"content": "a"}}]},
        {"created": 123.5, "choices": None},
        {"id": "x", "object": "chat.completion.chunk"},
        {"choices": [{"index": 0, "delta": None}], "usage": {"prompt_tokens": "3", "total_tokens": 1.5}},
    ],
    ids=["missing fields", "other types", "a fraction", "no choices", "nulls"],
)
def test_chunks_that_are_not_as_documented_are_given_as_sent(both: Both, frame: Any) -> None:
    def scenario(side: Side) -> Any:
        plain = side.get(side.client.chat.completions.create(**ASK, stream=True))
        create = side.client.chat.completions.with_streaming_response.create
        with side.within(create(**ASK, stream=True)) as response:
            return [plain, side.get(side.get(response.parse()))]

    stream = _chunk_stream(frame, END)
    assert both.same(scenario, stream, stream).error is None
