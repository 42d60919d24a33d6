"""Prompt caches of simulated hosts: blocks, lifetimes and sizes, and what a hit saves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specclient.errors import ConfigurationError
from specclient.routing.simulate.arrivals import read_arrivals
from specclient.routing.simulate.baselines import FixedRoute, GroundTruth, Oracle
from specclient.routing.simulate.host_caches import HostCaches
from specclient.routing.simulate.hosts import MIXED_WORLD
from specclient.routing.simulate.policy_selector import PolicySelector
from specclient.routing.simulate.replay import attempt_sample, replay_calls
from specclient.routing.simulate.scenario import PrefixCacheSpec, SimulatedCall
from specclient.routing.simulate.world import World
from specclient.types.policy import Policy

LPU = "lpu/llama-70b"


def _world(**caches: PrefixCacheSpec) -> World:
    world = World(MIXED_WORLD, 1, calls=2)
    world.caches = {f"{name}/llama-70b": cache for name, cache in caches.items()}
    return world


def _call(*prefix: int, prompt: int = 10_000) -> SimulatedCall:
    return SimulatedCall(
        index=0, at=0.0, task="chat", prompt_tokens=prompt, completion_tokens=100, prefix=prefix,
        max_ttft_s=1.0, max_latency_s=10.0,
    )  # fmt: skip


def test_a_host_holds_the_common_beginning_for_its_lifetime() -> None:
    caches = HostCaches(_world(lpu=PrefixCacheSpec(lifetime_s=60, hits=1)))
    assert caches.held(_call(1, 2, 3), LPU, 0) == 0
    caches.served(_call(1, 2, 3), LPU, 0)
    assert caches.held(_call(1, 2, 9), LPU, 60) == 2 * 512
    assert caches.held(_call(9, 2, 3), LPU, 60) == 0
    assert caches.held(_call(1, 2, 3, prompt=1500), LPU, 60) == 1499
    assert caches.held(_call(1, 2, 3), LPU, 61) == 0
    assert caches.held(_call(1, 2, 3), "own/llama-70b", 0) == 0


def test_a_full_cache_drops_the_end_of_what_was_used_least_recently() -> None:
    caches = HostCaches(_world(lpu=PrefixCacheSpec(lifetime_s=60, hits=1, tokens=4 * 512)))
    caches.served(_call(1, 2, 3), LPU, 0)
    caches.served(_call(1, 8, 9), LPU, 1)
    assert caches.held(_call(1, 2, 3), LPU, 1) == 2 * 512
    assert caches.held(_call(1, 8, 9), LPU, 1) == 3 * 512


def test_a_hit_makes_a_call_faster_cheaper_and_surer() -> None:
    world = _world(lpu=PrefixCacheSpec(lifetime_s=60, hits=1))
    call = _call(1, 2, prompt=20_000)
    cold, warm = (world.outcome(call, LPU, 0.0, held=held) for held in (0, 16_000))
    assert cold.ttft_s is not None
    assert warm.ttft_s is not None
    assert (cold.cached, warm.cached) == (0, 16_000)
    assert warm.ttft_s < 0.5 * cold.ttft_s
    assert world.kept(call, LPU, 0.0, held=16_000) > world.kept(call, LPU, 0.0) + 0.2
    assert world.rates[LPU].cost(20_000, 0, 16_000) == pytest.approx(0.59e-6 * 12_000)
    half = _world(lpu=PrefixCacheSpec(lifetime_s=60, hits=0.5))
    both = [world.kept(call, LPU, 0.0, held=held) for held in (0, 16_000)]
    assert half.kept(call, LPU, 0.0, held=16_000) == pytest.approx(sum(both) / 2)


def _trace(folder: Path, **changes: Any) -> Path:
    """Return a trace of 40 conversations of five turns that begin with the same block."""
    lines = []
    for turn in range(5):
        for number in range(40):
            blocks = [0, *(1000 * (number + 1) + k for k in range(6 + 4 * turn))]
            at = 1000 * (40 * turn + number)
            line = {"timestamp": at, "input_length": 512 * len(blocks) - 5, "output_length": 150}
            lines.append(json.dumps({**line, "hash_ids": blocks, **changes}))
    file = folder / "mooncake.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_conversations_of_a_trace_share_all_but_a_common_first_block(tmp_path: Path) -> None:
    calls = read_arrivals(_trace(tmp_path)).calls
    assert len({call.session for call in calls}) == 40
    assert all(calls[k].session == calls[k + 40].session for k in range(160))
    assert calls[0].prefix == (0, *range(1000, 1006))
    with pytest.raises(ConfigurationError, match=r"mooncake.jsonl:1: hash_ids is \[0, 'x'\]; it must be a"):
        read_arrivals(_trace(tmp_path, hash_ids=[0, "x"]))


def test_selectors_meet_the_caches_that_their_own_calls_left(tmp_path: Path) -> None:
    arrivals = read_arrivals(_trace(tmp_path), stretch=4)
    world = World(MIXED_WORLD, 3, arrivals=arrivals)
    assert world.caches[LPU].lifetime_s == 4 * 7200
    cold = World(MIXED_WORLD, 3, arrivals=replace(arrivals, calls=tuple(
        call._replace(session=None, prefix=()) for call in arrivals.calls
    )))  # fmt: skip
    policy = Policy()
    costs = {}
    for name, ground in (("warm", world), ("cold", cold)):
        judge = GroundTruth(ground, policy)
        for selector in (FixedRoute(LPU), Oracle(judge)):
            played = replay_calls(ground, selector, judge)
            costs[name, selector.name] = sum(step.cost for step in played.steps)
    assert costs["warm", LPU] < 0.8 * costs["cold", LPU]
    assert costs["warm", "oracle"] < costs["cold", "oracle"]


def test_the_router_keeps_a_session_where_its_prompt_is_held() -> None:
    """There are two routes: a cheap one without a cache, and one whose cached tokens cost a tenth."""
    hosts = tuple(
        replace(host, cache=PrefixCacheSpec(lifetime_s=600, hits=1, price=0.1)) if host.route == LPU else host
        for host in MIXED_WORLD.hosts
        if host.route in {LPU, "steady/llama-70b"}
    )
    world = World(replace(MIXED_WORLD, hosts=hosts), 3, calls=1)
    router = PolicySelector(world, Policy(explore=0))
    router.warm_up(4, world.routes)
    first = SimulatedCall(
        index=0, at=10.0, task="document", prompt_tokens=8000, completion_tokens=100, session="s"
    )
    router.learn(first, attempt_sample(first, LPU, 12.0, world.outcome(first, LPU, 10.0)))
    for at, session, chosen in ((60.0, "s", LPU), (60.0, "t", "steady/llama-70b")):
        call = replace(first, at=at, session=session)
        assert router.order(call, lambda _: 0.0, lambda _: 0)[0] == chosen
