"""Scenarios of hosted agent sessions for OpenAI's client and ours, both synchronous and asynchronous."""

from __future__ import annotations

import json
import re

import anyio
import openai_tree as oracle
import pydantic
from loopback_server import events, reply

from specclient import AsyncOpenAI, OpenAI

#: Warning filter: with httpx2, but not httpx, the OpenAI client leaves the generator of a cut stream open.
LEFT = (
    "ignore:Exception ignored in. <async_generator object Response.aiter_raw"
    ":pytest.PytestUnraisableExceptionWarning"
)

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


def session(status="idle", **more):
    return {"id": "s-1", "object": "agent.session", "status": status, **more}


def turn(status="in_progress", **more):
    return {"id": "t-1", "object": "agent.session.turn", "session_id": "s-1", "status": status, **more}


def event(kind, number, **more):
    return {"type": kind, "event_id": f"e-{number}", "session_id": "s-1", **more}


def turn_event(status, number, **more):
    kind = "created" if status == "in_progress" else status
    return event(f"agent.session.turn.{kind}", number, turn_id="t-1", turn=turn(status, **more))


def call(name, arguments, number, call_id="c-1"):
    item = {"id": f"i-{number}", "type": "function_call", "turn_id": "t-1", "call_id": call_id, "name": name}
    item |= {"arguments": arguments, "status": "in_progress"}
    return event("agent.session.turn.item.added", number, item=item, output_index=number)


def message_done(text, number, phase="final_answer", status="completed"):
    item = {"id": f"i-{number}", "type": "message", "turn_id": "t-1", "role": "assistant", "phase": phase}
    item |= {"status": status, "content": [{"type": "output_text", "text": text, "annotations": []}]}
    return event("agent.session.turn.item.done", number, item=item, output_index=number, turn_id="t-1")


def requires_action(name, number, kind="function_call"):
    actions = [{"type": kind, "name": name, "call_id": "c-1", "turn_id": "t-1"}]
    held = session("requires_action", required_actions=actions)
    return event("agent.session.requires_action", number, session=held)


FIRST = event("agent.session.idle", 89, session=session())
IDLE = event("agent.session.idle", 90, session=session())
FAILED = event("agent.session.failed", 91, session=session("failed"))
ERROR = event("error", 92, error={"message": "odd", "code": "x"})
BEGIN, END = turn_event("in_progress", 1), turn_event("completed", 80)
GOOD = [BEGIN, message_done('{"number": 5}', 6), message_done('{"number": 4}', 5), END, IDLE]


def follow(*agent_events):
    return events(*[f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in agent_events])


def plain(value):
    if isinstance(value, pydantic.BaseModel):
        # The OpenAI client fills in fields of other item types.
        value = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def described(value):
    """Convert a result or an error to plain values that can be compared."""
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


def comparable_requests(requests):
    keys = {}
    found = []
    for one in requests:
        key = one.headers.get("idempotency-key")
        if key is not None and UUID.fullmatch(key):
            key = f"new {keys.setdefault(key, len(keys))}"
        headers = {name: one.headers.get(name) for name in HEADERS}
        body = {} if not one.body else one.json
        if body.get("stream") is False:
            del body["stream"]  # the OpenAI client sends this default explicitly
        found.append((one.method, one.path, one.query, key, headers, body))
    return found


async def same(server, script, act):
    """Check that all clients send the same requests and give the same result.

    Args:
        server: the loopback server.
        script: its answers, in order; each client gets them all.
        act: coroutine function of a :class:`Side`, used for synchronous and asynchronous clients alike.

    Returns:
        The result or error, and the requests sent, as plain values.
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
        found[name] = (got, comparable_requests(server.requests[before:]))
        assert len(server.requests) - before <= len(script), name
        server._script.clear()
    for name, one in found.items():
        assert one == found["theirs"], name
    return found["theirs"]


def run(coroutine):
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the coroutine suspended")


class Side:
    """A synchronous or asynchronous client with one interface, so that a scenario is written once."""

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
        """Return a function as a tool handler: a coroutine function if the client is asynchronous."""
        if not self.is_async:
            return function

        async def handler(arguments):
            await anyio.sleep(0)
            return function(arguments)

        return handler


def add(arguments):
    return str(arguments["a"] + arguments["b"])


def scripted(*agent_events, posts=0, status="idle"):
    """Return the server's answers to: session status, event stream, input, and ``posts`` tool results."""
    accepted = reply(202, b"")
    return [reply(200, session(status)), follow(*agent_events), accepted, *[accepted] * posts]


async def final(side, stream):
    return await side.within(stream, lambda entered: side.get(entered.get_final_result()))


SUB = event("agent.session.turn.created", 3, turn_id="t-9", turn={**turn(), "id": "t-9", "subagent_id": "a"})
ENDINGS = {
    "well": GOOD,
    "a commentary": [
        BEGIN,
        message_done("x", 2, "commentary"),
        message_done("y", 3, status="incomplete"),
        *GOOD[1:],
    ],
    "a failed turn": [BEGIN, message_done("x", 2), turn_event("failed", 80, error={"message": "m"}), IDLE],
    "a cancelled turn": [BEGIN, turn_event("cancelled", 80), IDLE],
    "a failed session": [BEGIN, message_done("x", 2), FAILED],
    "a tool without a handler": [BEGIN, call("t", "{}", 2), requires_action("t", 3), IDLE],
    "an approval": [BEGIN, requires_action("t", 3, "computer_use_approval"), IDLE],
    "a cut": [BEGIN, message_done("x", 2)],
    "an error event": [BEGIN, ERROR, *GOOD[1:]],
    "events twice": [BEGIN, BEGIN, GOOD[1], GOOD[1], *GOOD[2:]],
    "a subagent": [
        SUB,
        BEGIN,
        event("agent.session.turn.completed", 4, turn_id="t-9", turn=turn()),
        FIRST,
        *GOOD[1:],
    ],
    "no messages": [BEGIN, END, IDLE],
}


#: The reasons why endings have no result; endings not listed here have one.
REASONS = {
    "a failed turn": "failed",
    "a cancelled turn": "cancelled",
    "a failed session": "failed",
    "a tool without a handler": "requires_action",
    "an approval": "requires_action",
    "a cut": "observation_failed",
}
