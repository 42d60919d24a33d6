"""Servers' speculation telemetry reaches ``meta``: unstreamed or streamed, sync or async, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from loopback_server import OpenAIServer, events, reply
from telemetry_bodies import Case, cases, check

from specclient import AsyncOpenAI, OpenAI, Speculation
from specclient.call.recorder import CallRecorder
from specclient.config import load
from specclient.prices.prices import Prices
from specclient.types import inference_methods
from specclient.types.backend import EngineTelemetry
from specclient.types.chat import ChatCompletion
from specclient.types.request import Request
from specclient.types.route import Decision

pytestmark = pytest.mark.anyio

WHOLE = cases(lambda case: case.body and not case.record)
STREAMED = cases(lambda case: case.events)
ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def aclient(openai_server: OpenAIServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="k", base_url=openai_server.base_url, max_retries=0) as made:
        yield made


@pytest.fixture
def client(openai_server: OpenAIServer) -> Iterator[OpenAI]:
    with OpenAI(api_key="k", base_url=openai_server.base_url, max_retries=0) as made:
        yield made


def calling(client: Any, case: Case) -> tuple[Any, dict[str, Any]]:
    """Return the resource of the case's route and the arguments of the call."""
    predicted: dict[str, Any] = {"extra_body": {"prediction": "a b"}} if case.prediction else {}
    if case.operation == "chat":
        if case.prediction:
            predicted = {"prediction": {"type": "content", "content": "a b"}}
        return client.chat.completions, {"model": "m", "messages": ASK, **predicted}
    if case.operation == "completion":
        return client.completions, {"model": "m", "prompt": "hi", **predicted}
    return client.responses, {"model": "m", "input": "hi", **predicted}


def whole(case: Case) -> Any:
    return reply(200, case.body, case.headers)


def streamed(case: Case) -> Any:
    frames = [b"data: %b\n\n" % json.dumps(event).encode() for event in case.events]
    if case.operation == "response":
        kinds = [event["type"].encode() for event in case.events]
        frames = [b"event: %b\n%b" % pair for pair in zip(kinds, frames, strict=True)]
    else:
        frames.append(b"data: [DONE]\n\n")
    return events(*frames, headers=case.headers)


def check_call(call: Any, case: Case) -> None:
    assert call.status == "ok"
    check(call.speculation, case.expected)
    assert call.usage.cached == case.cached


@WHOLE
def test_an_unstreamed_call_of_the_sync_client_reports_telemetry(
    openai_server: OpenAIServer, client: OpenAI, case: Case
) -> None:
    openai_server.script(whole(case))
    resource, arguments = calling(client, case)
    check_call(resource.create(**arguments).meta, case)


@WHOLE
async def test_an_unstreamed_call_of_the_async_client_reports_telemetry(
    openai_server: OpenAIServer, aclient: AsyncOpenAI, case: Case
) -> None:
    openai_server.script(whole(case))
    resource, arguments = calling(aclient, case)
    check_call((await resource.create(**arguments)).meta, case)


@STREAMED
def test_a_stream_of_the_sync_client_reports_telemetry(
    openai_server: OpenAIServer, client: OpenAI, case: Case
) -> None:
    openai_server.script(streamed(case))
    resource, arguments = calling(client, case)
    with resource.create(**arguments, stream=True) as stream:
        for _ in stream:
            pass
    check_call(stream.meta, case)


@STREAMED
async def test_a_stream_of_the_async_client_reports_telemetry(
    openai_server: OpenAIServer, aclient: AsyncOpenAI, case: Case
) -> None:
    openai_server.script(streamed(case))
    resource, arguments = calling(aclient, case)
    stream = await resource.create(**arguments, stream=True)
    async for _ in stream:
        pass
    check_call(stream.meta, case)


@cases(lambda case: case.events and case.operation == "chat")
async def test_a_parsed_raw_stream_reports_telemetry(
    openai_server: OpenAIServer, aclient: AsyncOpenAI, case: Case
) -> None:
    openai_server.script(streamed(case))
    resource, arguments = calling(aclient, case)
    async with resource.with_streaming_response.create(**arguments, stream=True) as response:
        stream = await response.parse()
        async for _ in stream:
            pass
    check_call(stream.meta, case)


@pytest.mark.parametrize("extra", [{"prediction": "a b"}, {"speculation": [1, 2]}, {}])
async def test_a_prediction_in_extra_body_counts_as_sent(
    openai_server: OpenAIServer, aclient: AsyncOpenAI, extra: dict[str, Any]
) -> None:
    details = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": details}
    openai_server.script(reply(200, {"choices": [choice], "model": "m", "usage": usage}))
    answer = await aclient.chat.completions.create(model="m", messages=ASK, extra_body=extra)
    found = answer.meta.speculation
    assert (None if found is None else found.predicted_accepted) == (0 if extra else None)


async def test_an_engines_record_takes_precedence_over_its_response() -> None:
    request = Request(inference_methods.CHAT, "local/m", {"messages": [], "prediction": "a b"})
    record = CallRecorder(
        request, Decision("local/m", "local", "m"), Prices(load()), clock=lambda: 0.0, hosted=False
    )
    measured = Speculation(method="prediction", steps=4, predicted_accepted=6, source="engine")
    record.note_engine_telemetry(EngineTelemetry(speculation=measured))
    details = {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 4}
    answer = ChatCompletion.model_validate({"choices": [], "usage": {"completion_tokens_details": details}})
    record.note_answer(answer, None)
    assert record.snapshot().speculation == measured


async def test_an_open_stream_reports_the_telemetry_received_so_far(
    openai_server: OpenAIServer, aclient: AsyncOpenAI
) -> None:
    chunk = {
        "choices": [{"index": 0, "delta": {"content": "a"}}],
        "timings": {"draft_n": 4, "draft_n_accepted": 3},
    }
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    openai_server.script(
        events(*[b"data: %b\n\n" % json.dumps(each).encode() for each in (chunk, end)], gap=0.05)
    )
    stream = await aclient.chat.completions.create(model="m", messages=ASK, stream=True)
    await anext(stream)
    assert stream.meta.status == "open"
    assert stream.meta.speculation is not None
    assert stream.meta.speculation.drafted == 4
    await stream.close()
    assert stream.meta.speculation.drafted == 4


BROKEN = [
    {"timings": "fast", "metrics": [1], "stats": None, "sglext": 3, "specclient": "x", "perf_metrics": []},
    {
        "timings": {"draft_n": None, "draft_n_accepted": -3},
        "specclient": {"speculation": {"drafted": "many"}},
    },
    {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "acceptance_rate": "NaN"}},
    {
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": 1,
            "completion_tokens_details": {"accepted_prediction_tokens": -1},
        }
    },
    {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": "none"}},
]


@pytest.mark.parametrize("fields", BROKEN)
@pytest.mark.parametrize("stream", [False, True])
async def test_broken_telemetry_does_not_break_a_response(
    openai_server: OpenAIServer, aclient: AsyncOpenAI, fields: dict[str, Any], stream: bool
) -> None:
    content = {"role": "assistant", "content": "a"}
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "delta" if stream else "message": content,
        "meta_info": "x",
    }
    body = {"id": "1", "choices": [choice], "model": "m", **fields}
    case = Case(
        "", "", None, body=body, events=[body], headers={"fireworks-speculation-prompt-tokens": "nan"}
    )
    openai_server.script((streamed if stream else whole)(case))
    answer: Any = await aclient.chat.completions.create(model="m", messages=ASK, stream=stream)
    if stream:
        assert [chunk.choices[0].delta.content async for chunk in answer] == ["a"]
    else:
        assert answer.choices[0].message.content == "a"
    assert answer.meta.status == "ok"
    assert answer.meta.speculation is None
