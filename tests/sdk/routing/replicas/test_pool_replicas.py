"""Calls placed on the replicas of a pool, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from gateway_server import Served
from loopback_server import reply, reset
from replica_server import ReplicaServer

from specclient import AsyncOpenAI, InternalServerError, OpenAI
from specclient.config import Settings
from specclient.errors import CircuitOpenError
from specclient.routing.pools.pool_speed import PoolSample
from specclient.routing.replicas.pool_replicas import PoolReplicas
from specclient.routing.replicas.prefix_index import PrefixIndex
from specclient.routing.replicas.prompt_blocks import BLOCK_BYTES, PromptBlocks
from specclient.routing.replicas.replica_chooser import ReplicaChooser

SYSTEM = {"role": "system", "content": "Answer in one sentence. " * 60}
MODEL = "big/main"
DIED = reply(500, {"error": {"message": "the engine has died"}})
CIRCUIT = {"failures": 2, "lasting_s": 0, "rest_s": 60}


@pytest.fixture
def servers() -> Iterator[list[ReplicaServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ReplicaServer()) for _ in range(3)]


def settings_of(servers: list[ReplicaServer], circuit: Any = False, **more: Any) -> Settings:
    pool = {"draft_length": 0, "urls": [f"{server.base_url}/" for server in servers]}
    fleet = {"path": "Qwen/Qwen3-8B", "pools": {"main": pool}, **more}
    return Settings.model_validate({"fleets": {"big": fleet}, "circuit": circuit, "ledger": "off"})


def turns(user: int, count: int) -> list[dict[str, str]]:
    """Return the messages of a user's conversation after so many turns."""
    text = f"user {user} says that " + f"{user} is a number and " * 50
    return [SYSTEM, *({"role": "user", "content": f"{turn} {text}"} for turn in range(count))]


@pytest.mark.anyio
async def test_sessions_go_where_their_prefix_is_cached(servers: list[ReplicaServer]) -> None:
    for server in servers:
        server.byte_s = 1e-5
    async with AsyncOpenAI(config=settings_of(servers)) as client:
        for turn in range(1, 7):
            calls = [
                client.chat.completions.create(model=MODEL, messages=turns(user, turn)) for user in range(6)
            ]
            await asyncio.gather(*calls)
    users = [{turns_of(call) for call in server.calls[-8:]} for server in servers]
    assert sum(map(len, users)) <= 10, "in the end, most users have one replica each"
    assert min(map(len, users)) >= 1, "and they are spread"
    cached = [tokens for server in servers for tokens in server.cached[-8:]]
    assert sum(cached) > 0.5 * sum(len(str(turns(0, 5))) / 4 for _ in cached)


def turns_of(call: Any) -> str:
    user: str = call.json["messages"][1]["content"].split(" says")[0]
    return user


def test_by_load_alone_sessions_wander(servers: list[ReplicaServer]) -> None:
    with OpenAI(config=settings_of(servers, prefix_blocks=0)) as client:
        for turn in range(12):
            client.chat.completions.create(model=MODEL, messages=turns(1, 1 + turn % 3))
    assert sum(bool(server.calls) for server in servers) > 1


@pytest.mark.anyio
async def test_a_busy_replica_is_left(servers: list[ReplicaServer]) -> None:
    async with AsyncOpenAI(config=settings_of(servers)) as client:

        async def call(user: int, turn: int, **more: Any) -> Any:
            return await client.chat.completions.create(model=MODEL, messages=turns(user, turn), **more)

        for server in servers:
            server.byte_s = 1e-5
        for user in range(12):
            await call(user, 1 + user % 3)
        chooser = client._core.shared.fleets.chooser("big")
        for load in (1, 2, 4, 8) * 10:  # which a busy machine blurs
            chooser.learn("main", PoolSample(load, None, 100, 9, None, 0.05 * load))
        before = [len(server.calls) for server in servers]
        await asyncio.gather(*(call(99, 4) for _ in range(9)))
        after = [len(server.calls) - count for server, count in zip(servers, before, strict=True)]
        assert sorted(after)[1] > 0, f"nine calls of one prompt at once: {after}"


@pytest.mark.parametrize("how", ["reset", "500"])
def test_a_failed_attempt_goes_to_another_replica(servers: list[ReplicaServer], how: str) -> None:
    failure = reset if how == "reset" else DIED
    with OpenAI(config=settings_of(servers), max_retries=2) as client:
        client.chat.completions.create(model=MODEL, messages=turns(1, 1))
        [home] = [server for server in servers if server.calls]
        home.script(failure)
        client.chat.completions.create(model=MODEL, messages=turns(1, 2))
        assert [len(server.calls) for server in servers if server is not home] in ([0, 1], [1, 0])
        chooser = client._core.shared.fleets.replicas("big", "main").chooser
        assert [chooser.load(number) for number in range(3)] == [0, 0, 0]


def test_a_dead_replica_costs_no_call(servers: list[ReplicaServer]) -> None:
    with ReplicaServer() as dead:
        settings = settings_of([dead, *servers])
    with OpenAI(config=settings, max_retries=2) as client:
        for user in range(12):
            client.chat.completions.create(model=MODEL, messages=turns(user, 1))
    assert sum(len(server.calls) for server in servers) == 12


@pytest.mark.anyio
async def test_calls_of_other_programs_and_sizes_of_caches_are_read(servers: list[ReplicaServer]) -> None:
    servers[0].reported = servers[1].reported = 30
    async with AsyncOpenAI(config=settings_of(servers)) as client:
        for user in range(12):  # until the time of a prompt is known
            await client.chat.completions.create(model=MODEL, messages=turns(user, 1 + user % 4))
        replicas = client._core.shared.fleets.replicas("big", "main")
        for _ in range(200):
            if replicas.chooser.load(0) and replicas.chooser.load(1):
                break
            await asyncio.sleep(0.01)
        before = len(servers[2].calls)
        for user in range(20, 24):
            await client.chat.completions.create(model=MODEL, messages=turns(user, 1))
        assert len(servers[2].calls) - before == 4
        index = replicas.chooser._index
        assert index is not None
        assert index._replicas[0].length == pytest.approx(4096 * 16 / 256, rel=0.2)
        assert {request.path for request in servers[0].requests if not request.body} == {"/metrics"}


def test_streams_are_placed_as_well(servers: list[ReplicaServer]) -> None:
    with OpenAI(config=settings_of(servers)) as client:
        for turn in range(1, 4):
            chunks = list(client.chat.completions.create(model=MODEL, messages=turns(1, turn), stream=True))
            assert len(chunks) > 2
    assert sorted(len(server.calls) for server in servers) == [0, 0, 3]


def test_the_gateway_places_calls(servers: list[ReplicaServer]) -> None:
    with Served(settings_of(servers)) as gateway, OpenAI(base_url=gateway.base_url, api_key="k") as client:
        for turn in range(1, 4):
            for user in range(4):
                client.chat.completions.create(model="big/auto", messages=turns(user, turn))
    assert sum(len({turns_of(call) for call in server.calls[-4:]}) for server in servers) <= 6
    cached = [tokens for server in servers for tokens in server.cached]
    assert sum(tokens > 0 for tokens in cached) >= 8, "of twelve, of which four begin a conversation"


def test_a_call_finds_a_replica_at_any_moment_while_all_are_replaced() -> None:
    """Another thread may place one between any two steps of the update."""
    prompt, found = PromptBlocks([1, 2], 2 * BLOCK_BYTES), []

    class Stepped(ReplicaChooser):
        def add(self, again: int | None = None) -> int:
            number = super().add(again)
            found.append(self.choose(prompt).replica)
            return number

        def remove(self, replica: int) -> None:
            super().remove(replica)
            found.append(self.choose(prompt).replica)

    replicas = PoolReplicas(Stepped(lambda load: None, index=PrefixIndex(64)), ["http://10.0.0.1/v1"])
    replicas.update(["http://10.0.0.2/v1", "http://10.0.0.3/v1"])
    assert len(found) == 4
    assert found[-1] in replicas.numbers.values()


def test_addresses_that_come_and_go_take_no_more_memory_each_time() -> None:
    """The name of a host may have some of its addresses at a time."""
    chooser = ReplicaChooser(lambda load: None, index=None)
    replicas = PoolReplicas(chooser, ["http://10.0.0.1/v1"])
    choice = chooser.choose(PromptBlocks([], 0))
    chooser.began(choice)
    for turn in range(20):
        replicas.update([f"http://10.0.0.{1 + turn % 4}/v1"])
    assert len(chooser._replicas) == 4
    replicas.update(["http://10.0.0.1/v1"])
    assert replicas.numbers == {"http://10.0.0.1/v1": 0}
    assert chooser.load(0) == 1, "the call is still in progress there"
    chooser.ended(choice)
    assert chooser.load(0) == 0


def test_a_failing_replica_does_not_open_the_circuit_for_its_neighbours(servers: list[ReplicaServer]) -> None:
    failing, *healthy = servers
    failing.script(*[DIED] * 200)
    with OpenAI(config=settings_of(servers, circuit=CIRCUIT), max_retries=0) as client:
        chooser = client._core.shared.fleets.replicas("big", "main").chooser
        chooser._replicas[1].own = chooser._replicas[2].own = 9  # so that it is preferred
        failed = 0
        for user in range(60):
            chooser._replicas[0].closed_until = 0.0  # its rest has ended
            try:
                client.chat.completions.create(model=MODEL, messages=turns(user, 1))
            except InternalServerError:
                failed += 1
    assert failed > 5
    assert sum(len(server.calls) for server in healthy) == 60 - failed
    assert len(failing.calls) == failed


def test_the_circuit_of_a_pool_opens_when_all_replicas_fail(servers: list[ReplicaServer]) -> None:
    for server in servers:
        server.script(*[DIED] * 200)
    with OpenAI(config=settings_of(servers, circuit=CIRCUIT), max_retries=0) as client:
        for user in range(30):
            try:
                client.chat.completions.create(model=MODEL, messages=turns(user, 1))
            except InternalServerError:
                continue
            except CircuitOpenError as error:
                assert "big/main has failed 2 times" in str(error)  # noqa: PT017 - one of two kinds
                break
    assert all(server.calls for server in servers), "each has been tried"
    assert sum(len(server.calls) for server in servers) < 15
