"""New sessions of hosted agents and a turn's files: the same requests and results as the OpenAI client."""

from __future__ import annotations

import gc

import openai
import pytest
from agents_scenarios import (
    END,
    ENDINGS,
    FIRST,
    GOOD,
    IDLE,
    LEFT,
    Answer,
    add,
    call,
    event,
    follow,
    message_done,
    requires_action,
    same,
    session,
    turn,
)
from loopback_server import OpenAIServer, reply
from openai.lib.beta import agents as their_agents

from specclient import AsyncStream, Stream
from specclient.types.open import OpenObject

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings(LEFT)]


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as running:
        yield running
    gc.collect()  # leaked objects warn here and not in another file's test


CREATED = [event("agent.session.created", 0, session=session("in_progress")), *GOOD]
CREATE = {
    "environment": {"type": "hosted"},
    "agent": {"model": "m", "text": {"verbosity": "low"}},
    "input": "hi",
}


async def test_a_created_session_requests_the_output_type(server):
    async def act(side):
        return await side.get(side.sessions.create(**CREATE, output_type=Answer))

    got, requests = await same(server, [reply(200, session())], act)
    assert got["id"] == "s-1"
    text = requests[0][5]["agent"]["text"]
    assert text["verbosity"] == "low"
    assert text["format"]["schema"]["required"] == ["number"]


async def test_a_created_session_runs_tools(server):
    agent_events = [
        *CREATED[:2],
        call("add", {"a": 1, "b": 2}, 2),
        requires_action("add", 3),
        message_done('{"number": 42}', 5),
        END,
        IDLE,
    ]
    headers = {"Idempotency-Key": "of the session", "X-Mark": "m"}

    async def act(side):
        tools = {"add": side.tool(add)}
        stream = await side.get(
            side.sessions.create(
                **CREATE, stream=True, output_type=Answer, tool_handlers=tools, extra_headers=headers
            )
        )
        assert isinstance(stream, (openai.Stream, openai.AsyncStream, Stream, AsyncStream))
        return await side.get(stream.get_final_result())

    got, requests = await same(server, [follow(*agent_events), reply(202, b"")], act)
    assert got["parsed"] == ("Answer", 42)
    assert [one[3] for one in requests] == ["of the session", "new 0"]


@pytest.mark.parametrize("name", [*ENDINGS, "idle first"])
@pytest.mark.parametrize("whole", [False, True])
async def test_created_sessions_end_like_the_openai_clients(server, name, whole):
    agent_events = [CREATED[0], *ENDINGS.get(name, [FIRST, *GOOD])]

    async def act(side):
        stream = await side.get(side.sessions.create(**CREATE, stream=True))
        return await (side.get(stream.get_final_result()) if whole else side.all(stream))

    await same(server, [follow(*agent_events)], act)


async def test_a_closed_session_stream_runs_no_more_tools(server):
    """After the stream is closed, a tool call that was already read is not answered."""

    async def act(side):
        stream = await side.get(
            side.sessions.create(**CREATE, stream=True, tool_handlers={"add": side.tool(add)})
        )
        seen = [await side.next(stream) for _ in range(3)]
        await side.get(stream.close())
        assert (
            not side.ours or await side.all(stream) == []
        )  # the OpenAI client yields the events it has already read
        return seen

    agent_events = [*CREATED[:2], call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:]]
    _, requests = await same(server, [follow(*agent_events)], act)
    assert len(requests) == 1


@pytest.mark.parametrize("how", ["raw", "streaming"])
async def test_a_session_can_be_created_through_a_raw_response(server, how):
    async def act(side):
        given = {**CREATE, "stream": True, "tool_handlers": {"add": side.tool(add)}}
        if how == "raw":
            response = await side.get(side.sessions.with_raw_response.create(**given))
            return await side.get((await side.get(response.parse())).get_final_result())

        async def read(response):
            return await side.get((await side.get(response.parse())).get_final_result())

        return await side.within(side.sessions.with_streaming_response.create(**given), read)

    agent_events = [*CREATED[:2], call("add", '{"a": 1, "b": 2}', 2), *GOOD[1:]]
    await same(server, [follow(*agent_events), reply(202, b"")], act)


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
async def test_a_results_artifact_is_found_by_its_turn_and_path(server, name, how, tmp_path):
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
