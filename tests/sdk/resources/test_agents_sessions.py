"""Sessions of hosted agents: local tools, results and their files go as with the OpenAI client, request by request."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import anyio
import openai
import openai_tree as oracle
import pydantic
import pytest
from openai.lib.beta import agents as their_agents
from servers import OpenAIServer, broken_stream, events, reply

from specclient import AsyncOpenAI, AsyncStream, OpenAI, Stream
from specclient.resources.agents_turns import TurnEnd
from specclient.types.open import OpenObject

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as running:
        yield running


CLIENTS = {
    "theirs": oracle.sync_client,
    "theirs async": oracle.async_client,
    "ours": lambda url: OpenAI(api_key="k", base_url=url, ledger="off", max_retries=0),
    "ours async": lambda url: AsyncOpenAI(api_key="k", base_url=url, ledger="off", max_retries=0),
}
HEADERS = ("openai-beta", "accept", "x-mark", "content-type")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Answer(pydantic.BaseModel):
    number: int


@dataclass
class Plain:
    number: int


def session(status="idle", **more):
    return {"id": "s-1", "object": "agent.session", "status": status, **more}


def turn(status="in_progress", **more):
    return {"id": "t-1", "object": "agent.session.turn", "session_id": "s-1", "status": status, **more}


def event(kind, number, **more):
    return {"type": kind, "event_id": f"e-{number}", "session_id": "s-1", **more}


def turned(status, number, **more):
    kind = "created" if status == "in_progress" else status
    return event(f"agent.session.turn.{kind}", number, turn_id="t-1", turn=turn(status, **more))


def call(name, arguments, number, call_id="c-1"):
    item = {"id": f"i-{number}", "type": "function_call", "turn_id": "t-1", "call_id": call_id, "name": name}
    item |= {"arguments": arguments, "status": "in_progress"}
    return event("agent.session.turn.item.added", number, item=item, output_index=number)


def said(text, number, phase="final_answer", status="completed"):
    item = {"id": f"i-{number}", "type": "message", "turn_id": "t-1", "role": "assistant", "phase": phase}
    item |= {"status": status, "content": [{"type": "output_text", "text": text, "annotations": []}]}
    return event("agent.session.turn.item.done", number, item=item, output_index=number, turn_id="t-1")


def waits(name, number, kind="function_call"):
    actions = [{"type": kind, "name": name, "call_id": "c-1", "turn_id": "t-1"}]
    held = session("requires_action", required_actions=actions)
    return event("agent.session.requires_action", number, session=held)


FIRST = event("agent.session.idle", 89, session=session())
IDLE = event("agent.session.idle", 90, session=session())
FAILED = event("agent.session.failed", 91, session=session("failed"))
ERROR = event("error", 92, error={"message": "odd", "code": "x"})
BEGIN, END = turned("in_progress", 1), turned("completed", 80)
GOOD = [BEGIN, said('{"number": 5}', 6), said('{"number": 4}', 5), END, IDLE]


def follow(*told):
    return events(*[f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in told])


def plain(value):
    if isinstance(value, pydantic.BaseModel):
        # theirs fills in what an item of another kind would have
        value = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def described(value):
    """Return a result, or an error, as values that compare."""
    if type(value).__name__ == "AgentTurnResult":
        parsed = value.output_parsed
        return {
            "turn": plain(value.turn),
            "messages": plain(value.messages),
            "texts": [one.output_text for one in value.messages],
            "parsed": None if parsed is None else (type(parsed).__name__, parsed.number),
            "ids": (value.session_id, value.turn_id),
            "text": value.output_text,
        }
    if isinstance(value, Exception):
        names = ("reason", "turn", "session_id", "turn_id", "messages", "required_actions", "status_code")
        fields = {name: plain(getattr(value, name)) for name in names if hasattr(value, name)}
        found = {"class": type(value).__name__, **fields}
        if hasattr(value, "reason"):
            found["cause"] = type(value.__cause__).__name__
        if hasattr(value, "result"):
            found["result"] = described(value.result)
        return found
    return plain(value)


def asked(requests):
    keys = {}
    found = []
    for one in requests:
        key = one.headers.get("idempotency-key")
        if key is not None and UUID.fullmatch(key):
            key = f"new {keys.setdefault(key, len(keys))}"
        headers = {name: one.headers.get(name) for name in HEADERS}
        body = {} if not one.body else one.json
        if body.get("stream") is False:
            del body["stream"]  # theirs says what is so anyway
        found.append((one.method, one.path, one.query, key, headers, body))
    return found


async def same(server, script, act):
    """Check that all clients send and get the same; return what came of it, and what was sent.

    ``act`` gets the client, and whether it is asynchronous; it runs as a coroutine for either.
    """
    found = {}
    for name, make in CLIENTS.items():
        server.script(*script)
        before = len(server.requests)
        client = make(server.base_url)
        try:
            if "async" in name:
                async with client:
                    got = await act(Side(client, is_async=True))
            else:
                with client:
                    got = await anyio.to_thread.run_sync(lambda c=client: run(act(Side(c, is_async=False))))
        except Exception as error:  # noqa: BLE001  # compared below
            got = error
        got = [described(one) for one in got] if isinstance(got, list) else described(got)
        found[name] = (got, asked(server.requests[before:]))
        assert len(server.requests) - before <= len(script), name
        server._script.clear()
    for name, one in found.items():
        assert one == found["theirs"], name
    return found["theirs"]


def run(coroutine):
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Side:
    """A client of either kind, for one text of a scenario."""

    def __init__(self, client, *, is_async):
        self.client = client
        self.sessions = client.beta.agents.sessions
        self.is_async = is_async
        self.ours = type(client).__module__.startswith("specclient")

    async def get(self, value):
        return await value if hasattr(value, "__await__") else value

    async def next(self, stream):
        return await anext(stream) if self.is_async else next(stream)

    async def all(self, stream):
        return [one async for one in stream] if self.is_async else list(stream)

    async def within(self, manager, act):
        if self.is_async:
            async with manager as entered:
                return await act(entered)
        with manager as entered:
            return await act(entered)

    def tool(self, function):
        """Return a function as a handler: of an asynchronous client, a coroutine function."""
        if not self.is_async:
            return function

        async def handler(arguments):
            await anyio.sleep(0)
            return function(arguments)

        return handler


def add(arguments):
    return str(arguments["a"] + arguments["b"])


def scripted(*told, posts=0, status="idle"):
    """Return answers to: is it idle, its events, the input, and the results of tools."""
    accepted = reply(202, b"")
    return [reply(200, session(status)), follow(*told), accepted, *[accepted] * posts]


async def final(side, stream):
    return await side.within(stream, lambda entered: side.get(entered.get_final_result()))


async def test_a_turn_with_tools(server):
    told = [FIRST, BEGIN, call("add", '{"a": 1, "b": 2}', 2), waits("add", 3), *GOOD[1:]]

    async def act(side):
        stream = side.sessions.stream(
            "s-1", input="hi", output_type=Answer, tool_handlers={"add": side.tool(add)}, extra_headers={"X-Mark": "m"}
        )
        return await final(side, stream)

    got, requests = await same(server, scripted(*told, posts=1), act)
    assert got["text"] == '{"number": 4}{"number": 5}' and got["parsed"] == ("Answer", 4)
    assert [one[0] for one in requests] == ["GET", "GET", "POST", "POST"]
    assert requests[2][3] == "new 0" and requests[3][3] == "new 1"
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
            heard.append((failure.stage, failure.tool_name, failure.session_id, failure.turn_id, failure.call_id))
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
        return await final(side, side.sessions.stream("s-1", input="hi", tool_handlers={"add": side.tool(add)}))

    _, requests = await same(server, script, act)
    assert [one[3] for one in requests] == [None, None, "new 0", "new 1", "new 1"]


async def test_a_result_that_is_refused(server):
    script = scripted(BEGIN, call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:])
    script += [reply(400, {"error": {"message": "no", "code": "invalid_request_error"}})]

    async def act(side):
        return await final(side, side.sessions.stream("s-1", input="hi", tool_handlers={"add": side.tool(add)}))

    got, _ = await same(server, script, act)
    assert (got["reason"], got["cause"]) == ("observation_failed", "BadRequestError")


SUB = event("agent.session.turn.created", 3, turn_id="t-9", turn={**turn(), "id": "t-9", "subagent_id": "a"})
ENDINGS = {
    "well": GOOD,
    "a commentary": [BEGIN, said("x", 2, "commentary"), said("y", 3, status="incomplete"), *GOOD[1:]],
    "a failed turn": [BEGIN, said("x", 2), turned("failed", 80, error={"message": "m"}), IDLE],
    "a cancelled turn": [BEGIN, turned("cancelled", 80), IDLE],
    "a failed session": [BEGIN, said("x", 2), FAILED],
    "a tool nobody has": [BEGIN, call("t", "{}", 2), waits("t", 3), IDLE],
    "an approval": [BEGIN, waits("t", 3, "computer_use_approval"), IDLE],
    "a cut": [BEGIN, said("x", 2)],
    "an error event": [BEGIN, ERROR, *GOOD[1:]],
    "events twice": [BEGIN, BEGIN, GOOD[1], GOOD[1], *GOOD[2:]],
    "a subagent": [SUB, BEGIN, event("agent.session.turn.completed", 4, turn_id="t-9", turn=turn()), FIRST, *GOOD[1:]],
    "no messages": [BEGIN, END, IDLE],
}


#: Why there is no result; of the others, there is one.
REASONS = {
    "a failed turn": "failed",
    "a cancelled turn": "cancelled",
    "a failed session": "failed",
    "a tool nobody has": "requires_action",
    "an approval": "requires_action",
    "a cut": "observation_failed",
}


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
    "a key among the headers": {"input": "x", "idempotency_key": "m", "extra_headers": {"IDEMPOTENCY-key": "h"}},
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


CREATED = [event("agent.session.created", 0, session=session("in_progress")), *GOOD]
CREATE = {"environment": {"type": "hosted"}, "agent": {"model": "m", "text": {"verbosity": "low"}}, "input": "hi"}


async def test_a_created_session_answers_in_a_form(server):
    async def act(side):
        return await side.get(side.sessions.create(**CREATE, output_type=Answer))

    got, requests = await same(server, [reply(200, session())], act)
    assert got["id"] == "s-1"
    text = requests[0][5]["agent"]["text"]
    assert text["verbosity"] == "low" and text["format"]["schema"]["required"] == ["number"]


async def test_a_created_session_runs_tools(server):
    told = [*CREATED[:2], call("add", {"a": 1, "b": 2}, 2), waits("add", 3), said('{"number": 42}', 5), END, IDLE]
    headers = {"Idempotency-Key": "of the session", "X-Mark": "m"}

    async def act(side):
        tools = {"add": side.tool(add)}
        stream = await side.get(
            side.sessions.create(**CREATE, stream=True, output_type=Answer, tool_handlers=tools, extra_headers=headers)
        )
        assert isinstance(stream, (openai.Stream, openai.AsyncStream, Stream, AsyncStream))
        return await side.get(stream.get_final_result())

    got, requests = await same(server, [follow(*told), reply(202, b"")], act)
    assert got["parsed"] == ("Answer", 42)
    assert [one[3] for one in requests] == ["of the session", "new 0"]


@pytest.mark.parametrize("name", [*ENDINGS, "idle first"])
@pytest.mark.parametrize("whole", [False, True])
async def test_created_sessions_end(server, name, whole):
    told = [CREATED[0], *ENDINGS.get(name, [FIRST, *GOOD])]

    async def act(side):
        stream = await side.get(side.sessions.create(**CREATE, stream=True))
        return await (side.get(stream.get_final_result()) if whole else side.all(stream))

    await same(server, [follow(*told)], act)


async def test_a_created_session_left_early(server):
    """After the stream is closed, a call that was read is not answered any more."""

    async def act(side):
        stream = await side.get(
            side.sessions.create(**CREATE, stream=True, tool_handlers={"add": side.tool(add)})
        )
        seen = [await side.next(stream) for _ in range(3)]
        await side.get(stream.close())
        assert not side.ours or await side.all(stream) == []  # theirs goes on with what it has read
        return seen

    told = [*CREATED[:2], call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:]]
    _, requests = await same(server, [follow(*told)], act)
    assert len(requests) == 1


@pytest.mark.parametrize("how", ["raw", "streaming"])
async def test_created_through_a_raw_response(server, how):
    async def act(side):
        given = {**CREATE, "stream": True, "tool_handlers": {"add": side.tool(add)}}
        if how == "raw":
            response = await side.get(side.sessions.with_raw_response.create(**given))
            return await side.get((await side.get(response.parse())).get_final_result())

        async def read(response):
            return await side.get((await side.get(response.parse())).get_final_result())

        return await side.within(side.sessions.with_streaming_response.create(**given), read)

    told = [*CREATED[:2], call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:]]
    await same(server, [follow(*told), reply(202, b"")], act)


def artifact(number, path="/workspace/outputs/a.txt", turn_id="t-1"):
    return {"id": f"f-{number}", "path": path, "session_id": "s-1", "turn_id": turn_id, "object": "o"}


def listed(*found, more=False):
    return reply(200, {"object": "list", "data": list(found), "has_more": more, "last_id": found[-1]["id"]})


LISTS = {
    "on the second page": [listed(artifact(1, turn_id="t-0"), more=True), listed(artifact(2))],
    "nowhere": [listed(artifact(1, "/workspace/outputs/b.txt"))],
    "twice": [listed(artifact(1), artifact(2))],
}


@pytest.mark.parametrize("how", ["content", "download"])
@pytest.mark.parametrize("name", LISTS)
async def test_artifacts(server, name, how, tmp_path):
    async def act(side):
        library = their_agents.AgentTurnResult
        result = library(turn=OpenObject.model_validate(turn("completed")), messages=[])
        files = side.sessions.artifacts.for_result(result)
        path, options = "/workspace/outputs/a.txt", {"extra_headers": {"X-Mark": "m"}}
        if how == "content":
            return (await side.get(files.content(path, **options))).read().decode()
        to = tmp_path / "a.txt"
        to.unlink(missing_ok=True)
        found = await side.get(files.download(path, to=to, **options))
        assert to.read_bytes() == b"abc"
        return found

    script = LISTS[name] + ([reply(200, b"abc")] if name == "on the second page" else [])
    got, requests = await same(server, script, act)
    assert len(requests) == len(script)
    assert name == "on the second page" or got == {"class": "ValueError"}


def test_ids_are_forgotten():
    """A stream may be endless: what it has seen must not grow with it."""
    end = TurnEnd()
    seen = [OpenObject.model_validate({"type": "x", "event_id": str(number)}) for number in range(1026)]
    assert all(map(end.is_new, seen))
    assert not end.is_new(seen[-1])
    assert end.is_new(seen[0])


def test_plain_dataclasses_are_types_too(server):
    server.script(*scripted(BEGIN, said('{"number": 3}', 2), END, IDLE))
    with CLIENTS["ours"](server.base_url) as client:
        with client.beta.agents.sessions.stream("s-1", input="x", output_type=Plain) as stream:
            assert stream.get_final_result().output_parsed == Plain(3)
