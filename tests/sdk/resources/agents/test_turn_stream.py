"""Turns of hosted agents: the same requests, tool calls, results and endings as with the OpenAI client."""

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
    message_done,
    requires_action,
    same,
    scripted,
)
from loopback_server import OpenAIServer, broken_stream, reply

from specclient.resources.agents.turn_stream import TurnEndDetector
from specclient.types.open import OpenObject

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings(LEFT)]


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as running:
        yield running
    gc.collect()  # leaked objects warn here and not in another file's test


@dataclass
class Plain:
    number: int


async def test_a_turn_runs_its_tools(server):
    agent_events = [FIRST, BEGIN, call("add", '{"a": 1, "b": 2}', 2), requires_action("add", 3), *GOOD[1:]]

    async def act(side):
        stream = side.sessions.stream(
            "s-1",
            input="hi",
            output_type=Answer,
            tool_handlers={"add": side.tool(add)},
            extra_headers={"X-Mark": "m"},
        )
        return await final(side, stream)

    got, requests = await same(server, scripted(*agent_events, posts=1), act)
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
    "not JSON": {"a": object()},
    "a list that is not JSON": [object()],
}


@pytest.mark.parametrize("name", OUTPUTS)
async def test_tool_outputs_are_sent_in_the_right_form(server, name):
    async def act(side):
        tools = {"t": side.tool(lambda _: OUTPUTS[name])}
        return await final(side, side.sessions.stream("s-1", input="hi", tool_handlers=tools))

    agent_events = [BEGIN, call("t", {"a": {"b": 1}}, 2), *GOOD[1:]]
    _, requests = await same(server, scripted(*agent_events, posts=1), act)
    assert requests[3][5]["events"][0]["success"] == ("not JSON" not in name)


@pytest.mark.parametrize(
    ("arguments", "stage"),
    [("[1]", "arguments"), ("{", "arguments"), ('{"a": 1}', "execution"), ('{"a": 0}', "output")],
)
async def test_a_failed_tool_is_reported_and_answered_with_an_error(server, arguments, stage):
    def handler(given):
        return {"x": object()} if not given["a"] else given["b"]

    failures = []

    async def act(side):
        def on_error(failure):
            failures.append(
                (failure.stage, failure.tool_name, failure.session_id, failure.turn_id, failure.call_id)
            )
            raise RuntimeError("ignored")

        stream = side.sessions.stream(
            "s-1", input="hi", tool_handlers={"t": side.tool(handler)}, on_tool_error=on_error
        )
        return await final(side, stream)

    agent_events = [BEGIN, call("t", arguments, 2), *GOOD[1:]]
    _, requests = await same(server, scripted(*agent_events, posts=1), act)
    assert failures == [(stage, "t", "s-1", "t-1", "c-1")] * len(CLIENTS)
    assert requests[3][5]["events"][0]["error"] == "Tool handler failed."


async def test_an_asynchronous_handler_needs_an_asynchronous_client(server):
    async def handler(arguments):
        return "x"

    async def act(side):
        tools = {"t": handler if not side.is_async else lambda _: {}["missing"]}
        failures = []

        async def watch(failure):
            failures.append(type(failure.error).__name__)

        stream = side.sessions.stream("s-1", input="hi", tool_handlers=tools, on_tool_error=watch)
        await final(side, stream)
        return failures if side.is_async else ["KeyError"]

    _, requests = await same(server, scripted(BEGIN, call("t", "{}", 2), *GOOD[1:], posts=1), act)
    assert requests[3][5]["events"][0]["success"] is False


async def test_a_result_sent_too_early_is_sent_again(server):
    early = {"message": "Unknown pending tool call: c-1", "code": "invalid_request_error"}
    script = scripted(BEGIN, call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:])
    script += [reply(400, {"error": early}), reply(202, b"")]

    async def act(side):
        return await final(
            side, side.sessions.stream("s-1", input="hi", tool_handlers={"add": side.tool(add)})
        )

    _, requests = await same(server, script, act)
    assert [one[3] for one in requests] == [None, None, "new 0", "new 1", "new 1"]


async def test_a_refused_tool_result_ends_the_turn(server):
    script = scripted(BEGIN, call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:])
    script += [reply(400, {"error": {"message": "no", "code": "invalid_request_error"}})]

    async def act(side):
        return await final(
            side, side.sessions.stream("s-1", input="hi", tool_handlers={"add": side.tool(add)})
        )

    got, _ = await same(server, script, act)
    assert (got["reason"], got["cause"]) == ("observation_failed", "BadRequestError")


@pytest.mark.parametrize("name", ENDINGS)
async def test_every_ending_of_a_turn_gives_its_result_or_reason(server, name):
    async def act(side):
        return await final(side, side.sessions.stream("s-1", input="hi"))

    got, _ = await same(server, scripted(*ENDINGS[name]), act)
    assert got.get("reason") == REASONS.get(name)
    assert ("text" in got) == (name not in REASONS)


@pytest.mark.parametrize("name", ENDINGS)
async def test_iterated_events_equal_the_openai_clients(server, name):
    async def act(side):
        return await side.within(side.sessions.stream("s-1", input="hi"), side.all)

    await same(server, scripted(*ENDINGS[name]), act)


async def test_output_that_does_not_match_the_type_raises(server):
    async def act(side):
        return await final(side, side.sessions.stream("s-1", input="hi", output_type=Answer))

    got, _ = await same(server, scripted(BEGIN, message_done("no number", 2), END, IDLE), act)
    assert got["class"] == "AgentOutputParseError"


async def test_the_result_can_be_read_twice(server):
    async def act(side):
        async def both(stream):
            stream.with_result_collection()
            seen = await side.next(stream)
            first = await side.get(stream.get_final_result())
            second = await side.get(stream.get_final_result())
            assert first is second
            return [seen, first, first.parse(Answer)]

        return await side.within(side.sessions.stream("s-1", input="hi"), both)

    got, _ = await same(server, scripted(BEGIN, message_done('{"number": 7}', 2), END, IDLE), act)
    assert got[2]["parsed"] == ("Answer", 7)


async def test_collecting_the_result_after_reading_events_is_an_error(server):
    async def act(side):
        async def late(stream):
            await side.next(stream)
            return await side.get(stream.get_final_result())

        return await side.within(side.sessions.stream("s-1", input="hi"), late)

    got, _ = await same(server, scripted(*GOOD), act)
    assert got["class"] == "RuntimeError"


async def test_a_broken_connection_ends_the_turn(server):
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
async def test_every_form_of_input_is_sent(server, name):
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
async def test_mistaken_arguments_are_refused_before_any_request(server, name):
    async def act(side):
        made = await side.get(MISTAKES[name](side.sessions))
        return await side.next(made)

    got, requests = await same(server, [], act)
    assert got["class"] in ("TypeError", "ValueError", "RuntimeError")
    assert not requests


@pytest.mark.parametrize("status", ["in_progress", "failed"])
async def test_a_busy_or_failed_session_is_not_sent_input(server, status):
    async def act(side):
        return await side.within(side.sessions.stream("s-1", input="x"), side.all)

    _, requests = await same(server, scripted(status=status)[:1], act)
    assert len(requests) == 1


async def test_a_refused_input_raises_and_the_stream_cannot_be_reused(server):
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


def test_old_event_ids_are_dropped():
    """A stream may be endless; the set of seen event ids must not grow with it."""
    end = TurnEndDetector()
    seen = [OpenObject.model_validate({"type": "x", "event_id": str(number)}) for number in range(1026)]
    assert all(map(end.is_new, seen))
    assert not end.is_new(seen[-1])
    assert end.is_new(seen[0])


def test_a_plain_dataclass_can_be_the_output_type(server):
    server.script(*scripted(BEGIN, message_done('{"number": 3}', 2), END, IDLE))
    with (
        CLIENTS["ours"](server.base_url) as client,
        client.beta.agents.sessions.stream("s-1", input="x", output_type=Plain) as stream,
    ):
        assert stream.get_final_result().output_parsed == Plain(3)


async def test_a_repeated_tool_call_runs_once(server):
    ran = []

    async def act(side):
        tools = {"t": side.tool(lambda given: ran.append(given) or "x")}
        return await final(side, side.sessions.stream("s-1", input="hi", tool_handlers=tools))

    agent_events = [BEGIN, call("t", "{}", 2), call("t", "{}", 3), call("t", "{}", 4, "c-2"), *GOOD[1:]]
    _, requests = await same(server, scripted(*agent_events, posts=2), act)
    assert [one[5]["events"][0]["call_id"] for one in requests[3:]] == ["c-1", "c-2"]
    assert ran == [{}] * 2 * len(CLIENTS)


async def test_the_first_error_is_raised_again(server):
    """Reading a failed result again raises the same error; later events do not change it."""

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

    got, _ = await same(
        server, scripted(BEGIN, message_done("x", 2), requires_action("t", 3), *GOOD[1:]), act
    )
    assert [one["reason"] for one in got] == ["requires_action"] * 2
