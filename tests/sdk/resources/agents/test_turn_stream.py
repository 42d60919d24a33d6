"""Turns of hosted agents go as with the OpenAI client, request by request: their tools, results and ends."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass

import pytest
from agents_scenarios import (
    BEGIN,
    CLIENTS,
    END,
    ENDINGS,
    FIRST,
    GOOD,
    IDLE,
    LEFT,
    REASONS,
    Answer,
    add,
    call,
    final,
    said,
    same,
    scripted,
    waits,
)
from loopback_server import OpenAIServer, broken_stream, reply

from specclient.resources.agents.turn_stream import TurnEndDetector
from specclient.types.open import OpenObject

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings(LEFT)]


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as running:
        yield running
    gc.collect()  # what is left behind is told here, and not in a test of another file


@dataclass
class Plain:
    number: int


async def test_a_turn_with_tools(server):
    told = [FIRST, BEGIN, call("add", '{"a": 1, "b": 2}', 2), waits("add", 3), *GOOD[1:]]

    async def act(side):
        stream = side.sessions.stream(
            "s-1",
            input="hi",
            output_type=Answer,
            tool_handlers={"add": side.tool(add)},
            extra_headers={"X-Mark": "m"},
        )
        return await final(side, stream)

    got, requests = await same(server, scripted(*told, posts=1), act)
    assert got["text"] == '{"number": 4}{"number": 5}'
    assert got["parsed"] == ("Answer", 4)
    assert [one[0] for one in requests] == ["GET", "GET", "POST", "POST"]
    assert requests[2][3] == "new 0"
    assert requests[3][3] == "new 1"
    assert requests[3][5]["events"][0]["output"] == "3"


OUTPUTS = {
    "text": "x",
    "nothing": None,
    "an object": {"a": [1]},
    "parts": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "u"}],
    "what is no JSON": {"a": object()},
    "a list of what is no JSON": [object()],
}


@pytest.mark.parametrize("name", OUTPUTS)
async def test_outputs(server, name):
    async def act(side):
        tools = {"t": side.tool(lambda _: OUTPUTS[name])}
        return await final(side, side.sessions.stream("s-1", input="hi", tool_handlers=tools))

    told = [BEGIN, call("t", {"a": {"b": 1}}, 2), *GOOD[1:]]
    _, requests = await same(server, scripted(*told, posts=1), act)
    assert requests[3][5]["events"][0]["success"] == ("no JSON" not in name)


@pytest.mark.parametrize(
    ("arguments", "stage"),
    [("[1]", "arguments"), ("{", "arguments"), ('{"a": 1}', "execution"), ('{"a": 0}', "output")],
)
async def test_tools_that_fail(server, arguments, stage):
    def handler(given):
        return {"x": object()} if not given["a"] else given["b"]

    heard = []

    async def act(side):
        def on_error(failure):
            heard.append(
                (failure.stage, failure.tool_name, failure.session_id, failure.turn_id, failure.call_id)
            )
            raise RuntimeError("ignored")

        stream = side.sessions.stream(
            "s-1", input="hi", tool_handlers={"t": side.tool(handler)}, on_tool_error=on_error
        )
        return await final(side, stream)

    told = [BEGIN, call("t", arguments, 2), *GOOD[1:]]
    _, requests = await same(server, scripted(*told, posts=1), act)
    assert heard == [(stage, "t", "s-1", "t-1", "c-1")] * len(CLIENTS)
    assert requests[3][5]["events"][0]["error"] == "Tool handler failed."


async def test_an_asynchronous_handler_needs_an_asynchronous_client(server):
    async def handler(arguments):
        return "x"

    async def act(side):
        tools = {"t": handler if not side.is_async else lambda _: {}["missing"]}
        heard = []

        async def watch(failure):
            heard.append(type(failure.error).__name__)

        stream = side.sessions.stream("s-1", input="hi", tool_handlers=tools, on_tool_error=watch)
        await final(side, stream)
        return heard if side.is_async else ["KeyError"]

    _, requests = await same(server, scripted(BEGIN, call("t", "{}", 2), *GOOD[1:], posts=1), act)
    assert requests[3][5]["events"][0]["success"] is False


async def test_a_result_that_comes_too_early(server):
    early = {"message": "Unknown pending tool call: c-1", "code": "invalid_request_error"}
    script = scripted(BEGIN, call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:])
    script += [reply(400, {"error": early}), reply(202, b"")]

    async def act(side):
        return await final(
            side, side.sessions.stream("s-1", input="hi", tool_handlers={"add": side.tool(add)})
        )

    _, requests = await same(server, script, act)
    assert [one[3] for one in requests] == [None, None, "new 0", "new 1", "new 1"]


async def test_a_result_that_is_refused(server):
    script = scripted(BEGIN, call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:])
    script += [reply(400, {"error": {"message": "no", "code": "invalid_request_error"}})]

    async def act(side):
        return await final(
            side, side.sessions.stream("s-1", input="hi", tool_handlers={"add": side.tool(add)})
        )

    got, _ = await same(server, script, act)
    assert (got["reason"], got["cause"]) == ("observation_failed", "BadRequestError")


@pytest.mark.parametrize("name", ENDINGS)
async def test_endings(server, name):
    async def act(side):
        return await final(side, side.sessions.stream("s-1", input="hi"))

    got, _ = await same(server, scripted(*ENDINGS[name]), act)
    assert got.get("reason") == REASONS.get(name)
    assert ("text" in got) == (name not in REASONS)


@pytest.mark.parametrize("name", ENDINGS)
async def test_events_as_they_come(server, name):
    async def act(side):
        return await side.within(side.sessions.stream("s-1", input="hi"), side.all)

    await same(server, scripted(*ENDINGS[name]), act)


async def test_output_that_does_not_fit(server):
    async def act(side):
        return await final(side, side.sessions.stream("s-1", input="hi", output_type=Answer))

    got, _ = await same(server, scripted(BEGIN, said("no number", 2), END, IDLE), act)
    assert got["class"] == "AgentOutputParseError"


async def test_result_again(server):
    async def act(side):
        async def both(stream):
            stream.with_result_collection()
            seen = await side.next(stream)
            first = await side.get(stream.get_final_result())
            second = await side.get(stream.get_final_result())
            assert first is second
            return [seen, first, first.parse(Answer)]

        return await side.within(side.sessions.stream("s-1", input="hi"), both)

    got, _ = await same(server, scripted(BEGIN, said('{"number": 7}', 2), END, IDLE), act)
    assert got[2]["parsed"] == ("Answer", 7)


async def test_result_too_late(server):
    async def act(side):
        async def late(stream):
            await side.next(stream)
            return await side.get(stream.get_final_result())

        return await side.within(side.sessions.stream("s-1", input="hi"), late)

    got, _ = await same(server, scripted(*GOOD), act)
    assert got["class"] == "RuntimeError"


async def test_a_broken_connection(server):
    script = scripted()
    script[1] = broken_stream(f"data: {json.dumps(BEGIN)}\n\n".encode())

    async def act(side):
        return await final(side, side.sessions.stream("s-1", input="hi"))

    got, _ = await same(server, script, act)
    assert (got["reason"], got["cause"]) == ("observation_failed", "APIConnectionError")


INPUTS = {
    "messages": {"input": iter([{"role": "user", "content": []}])},
    "a key": {"input": "x", "idempotency_key": "mine"},
    "a key among the headers": {
        "input": "x",
        "idempotency_key": "m",
        "extra_headers": {"IDEMPOTENCY-key": "h"},
    },
}


@pytest.mark.parametrize("name", INPUTS)
async def test_inputs(server, name):
    async def act(side):
        given = dict(INPUTS[name])
        if name == "messages":
            given["input"] = iter([{"role": "user", "content": []}])
        return await side.within(side.sessions.stream("s-1", **given), side.all)

    await same(server, scripted(*GOOD), act)


MISTAKES = {
    "empty": lambda sessions: sessions.stream("s-1", input=""),
    "no messages": lambda sessions: sessions.stream("s-1", input=[]),
    "no type": lambda sessions: sessions.stream("s-1", input="x", output_type=int),
    "not entered": lambda sessions: sessions.stream("s-1", input="x"),
    "handlers without a stream": lambda sessions: sessions.create(environment={}, tool_handlers={}),
    "two formats": lambda sessions: sessions.create(
        environment={}, agent={"text": {"format": {"type": "text"}}}, output_type=Answer
    ),
    "no type for a session": lambda sessions: sessions.create(environment={}, output_type=int),
    "no environment": lambda sessions: sessions.create(output_type=Answer),
    "an unknown argument": lambda sessions: sessions.create(environment={}, nonsense=1),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_mistakes(server, name):
    async def act(side):
        made = await side.get(MISTAKES[name](side.sessions))
        return await side.next(made)

    got, requests = await same(server, [], act)
    assert got["class"] in ("TypeError", "ValueError", "RuntimeError")
    assert not requests


@pytest.mark.parametrize("status", ["in_progress", "failed"])
async def test_a_session_that_is_not_idle(server, status):
    async def act(side):
        return await side.within(side.sessions.stream("s-1", input="x"), side.all)

    _, requests = await same(server, scripted(status=status)[:1], act)
    assert len(requests) == 1


async def test_an_input_that_is_refused(server):
    async def act(side):
        stream = side.sessions.stream("s-1", input="x")
        try:
            await side.within(stream, side.all)
        except Exception as error:  # noqa: BLE001
            again = None
            try:
                await side.within(stream, side.all)
            except Exception as second:  # noqa: BLE001
                again = second
            return [error, again]

    script = scripted(*GOOD)
    script[2] = reply(409, {"error": {"message": "busy"}})
    got, _ = await same(server, script, act)
    assert [one["class"] for one in got] == ["ConflictError", "RuntimeError"]


def test_ids_are_forgotten():
    """A stream may be endless: what it has seen must not grow with it."""
    end = TurnEndDetector()
    seen = [OpenObject.model_validate({"type": "x", "event_id": str(number)}) for number in range(1026)]
    assert all(map(end.is_new, seen))
    assert not end.is_new(seen[-1])
    assert end.is_new(seen[0])


def test_plain_dataclasses_are_types_too(server):
    server.script(*scripted(BEGIN, said('{"number": 3}', 2), END, IDLE))
    with (
        CLIENTS["ours"](server.base_url) as client,
        client.beta.agents.sessions.stream("s-1", input="x", output_type=Plain) as stream,
    ):
        assert stream.get_final_result().output_parsed == Plain(3)


async def test_a_call_told_twice_runs_once(server):
    ran = []

    async def act(side):
        tools = {"t": side.tool(lambda given: ran.append(given) or "x")}
        return await final(side, side.sessions.stream("s-1", input="hi", tool_handlers=tools))

    told = [BEGIN, call("t", "{}", 2), call("t", "{}", 3), call("t", "{}", 4, "c-2"), *GOOD[1:]]
    _, requests = await same(server, scripted(*told, posts=2), act)
    assert [one[5]["events"][0]["call_id"] for one in requests[3:]] == ["c-1", "c-2"]
    assert ran == [{}] * 2 * len(CLIENTS)


async def test_an_error_stays(server):
    """What there is no result for is told again, and what comes later does not count."""

    async def act(side):
        async def twice(stream):
            stream.with_result_collection()
            errors = []
            for _ in range(2):
                try:
                    await side.get(stream.get_final_result())
                except Exception as error:  # noqa: BLE001
                    errors.append(error)
            assert errors[0] is errors[1]
            return errors

        return await side.within(side.sessions.stream("s-1", input="hi"), twice)

    got, _ = await same(server, scripted(BEGIN, said("x", 2), waits("t", 3), *GOOD[1:]), act)
    assert [one["reason"] for one in got] == ["requires_action"] * 2
