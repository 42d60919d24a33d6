"""Calls of ``NAME/auto`` over HTTP: two servers with other speeds by load, one of which speculates."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_server import OpenAIServer, Received, Wire, behave, reply

from specclient import AsyncOpenAI, NotFoundError, OpenAI, UnsupportedParameterError
from specclient.config import Settings
from specclient.errors import APIError
from specclient.routing.pools.pool_chooser import PoolChooser
from specclient.routing.pools.pool_speed import PoolSample


class PoolServer(OpenAIServer):
    """A server whose answers take longer with the number of requests in progress, by a line."""

    def __init__(self, base_s: float, each_s: float) -> None:
        super().__init__(self._behave)
        self._base_s, self._each_s = base_s, each_s
        self.running = self.most = 0
        self._lock = threading.Lock()

    async def _behave(self, received: Received, wire: Wire) -> None:
        if not received.body:  # the page of metrics
            await reply(404)(received, wire)
            return
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self._base_s + self._each_s * self.running)
            await behave(received, wire)
        finally:
            self.running -= 1


@pytest.fixture
def pools() -> Iterator[tuple[PoolServer, PoolServer]]:
    """Return a server that decodes plainly, 40 ms for any number, and one that drafts, 5 ms and 15 for
    each.
    """
    with PoolServer(0.040, 0.0) as plain, PoolServer(0.005, 0.015) as drafting:
        yield plain, drafting


def settings_of(plain: OpenAIServer, drafting: OpenAIServer) -> Settings:
    fleet = {
        "path": "Qwen/Qwen3-8B",
        "draft": "Qwen/Qwen3-0.6B",
        "pools": {
            "d0": {"draft_length": 0, "url": plain.base_url},
            "d5": {"draft_length": 5, "url": drafting.base_url},
        },
    }
    return Settings.model_validate({"fleets": {"big": fleet}, "circuit": False})


CODE = "def area(width, height):\n    return (width + 1) * (height + 1);  # `area`"
MESSAGES = [{"role": "user", "content": CODE}]


def teach(chooser: PoolChooser) -> None:
    """Let a chooser know the servers' times, which a busy machine blurs."""
    for _ in range(30):
        for n in (1, 2, 3, 4, 6, 8, 12):
            for pool, token_s in (("d0", 0.040), ("d5", 0.005 + 0.015 * n)):
                chooser.learn(pool, PoolSample(n, "code", 20, 11, None, 11 * token_s))


@pytest.mark.anyio
async def test_calls_follow_the_load(pools: tuple[PoolServer, PoolServer]) -> None:
    async with AsyncOpenAI(config=settings_of(*pools), ledger="off") as client:
        teach(client._core.shared.fleets.chooser("big"))

        async def call() -> str:
            answer = await client.chat.completions.create(model="big/auto", messages=MESSAGES, max_tokens=9)
            return answer.meta.route.chosen

        assert [await call() for _ in range(3)] == ["big/d5"] * 3, (
            "the pool that drafts is faster for one call"
        )
        pools[1].most = 0
        crowd = Counter(await asyncio.gather(*(call() for _ in range(12))))
        assert crowd["big/d0"] > crowd["big/d5"] > 0, "and the other one for many"
        assert pools[1].most <= crowd["big/d5"]
    sent = {request.json["model"] for server in pools for request in server.requests if request.body}
    assert sent == {"d0", "d5"}


def test_a_decision_tells_of_all_pools(pools: tuple[PoolServer, PoolServer]) -> None:
    with OpenAI(config=settings_of(*pools), ledger="off") as client:
        for _ in range(7):
            answer = client.chat.completions.create(model="big/auto", messages=MESSAGES, max_tokens=9)
        route = answer.meta.route
        assert route.provider == "big"
        assert [candidate.route for candidate in route.candidates] == ["big/d0", "big/d5"]
        assert route.candidates[route.chosen_index].route == route.chosen
        assert "the fastest pool at this load, in 0.0" in route.reason
        assert route.task == "code"
        named = client.chat.completions.create(model="big/d0", messages=MESSAGES, max_tokens=9).meta.route
        assert (named.chosen, named.reason) == ("big/d0", "named by the caller")


def test_a_restarted_client_knows_the_pools_from_the_ledger(
    pools: tuple[PoolServer, PoolServer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"config": settings_of(*pools), "ledger": str(tmp_path / "l.db")}
    with OpenAI(**options) as client:
        for pool in ("d0", "d5") * 4:
            client.chat.completions.create(model=f"big/{pool}", messages=MESSAGES, max_tokens=9)
    with OpenAI(**options) as client:
        assert [row.in_progress for row in client.ledger.rows()] == [1.0] * 8
        route = client.chat.completions.create(model="big/auto", messages=MESSAGES, max_tokens=9).meta.route
        assert (route.chosen, route.reason[:16]) == ("big/d5", "the fastest pool")
    (tmp_path / "l.db").write_bytes(b"no database" * 100)
    with OpenAI(**options) as client:
        route = client.chat.completions.create(model="big/auto", messages=MESSAGES, max_tokens=9).meta.route
        assert route.reason == "its speed is not known yet"
    assert "the pools of fleets start without earlier calls: cannot" in caplog.text


def test_parameters_that_drafts_refuse(pools: tuple[PoolServer, PoolServer]) -> None:
    with OpenAI(config=settings_of(*pools), ledger="off") as client:
        for _ in range(4):
            answer = client.chat.completions.create(
                model="big/auto", messages=MESSAGES, max_tokens=9, logit_bias={"5": 1}
            )
            assert answer.meta.route.chosen == "big/d0"
        with pytest.raises(UnsupportedParameterError, match="big/d5 rejects it while it speculates"):
            client.chat.completions.create(
                model="big/d5", messages=MESSAGES, max_tokens=9, logit_bias={"5": 1}
            )
        with pytest.raises(NotFoundError, match="no pool 'd7'"):
            client.chat.completions.create(model="big/d7", messages=MESSAGES)


def test_a_failing_pool_is_left() -> None:
    failing = reply(500, {"error": {"message": "the engine has died"}})
    with OpenAIServer() as plain, OpenAIServer(failing) as drafting:
        settings = settings_of(plain, drafting)
        with OpenAI(config=settings, ledger="off", max_retries=0) as client:
            outcomes = []
            for _ in range(10):
                try:
                    answer = client.chat.completions.create(model="big/auto", messages=MESSAGES, max_tokens=9)
                    outcomes.append(answer.meta.route.chosen)
                except APIError:
                    outcomes.append("failed")
    assert outcomes.count("failed") == 2
    second = [at for at, outcome in enumerate(outcomes) if outcome == "failed"][1]
    assert outcomes[second + 1 :] == ["big/d0"] * (9 - second) != []


def test_calls_that_the_caller_leaves_are_no_longer_counted(pools: tuple[PoolServer, PoolServer]) -> None:
    settings = settings_of(*pools)

    async def leave() -> float:
        async with AsyncOpenAI(config=settings, ledger="off") as client:
            call = client.chat.completions.create(model="big/d0", messages=MESSAGES, max_tokens=9)
            task = asyncio.ensure_future(call)
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            chooser = client._core.shared.fleets.chooser("big")
            [view, _] = chooser.choose("code", 10, 10).views
            return view.in_progress

    assert asyncio.run(leave()) == 0.0
