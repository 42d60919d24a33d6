"""A simulated world depends only on its seed, and its outcomes follow the stated distributions."""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import replace
from random import Random
from statistics import mean, median

import pytest

from specclient.routing.simulate.baselines import Clairvoyant, FixedRoute, GroundTruth, Oracle, RoundRobin
from specclient.routing.simulate.hosts import ACCEPTANCE_BY_TASK, LOAD_CURVE, MIXED_WORLD
from specclient.routing.simulate.noise import LatencyNoise, normal_points
from specclient.routing.simulate.replay import replay_calls
from specclient.routing.simulate.results import best_fixed, summarize
from specclient.routing.simulate.world import World, crowded_speed, drafting_speedup
from specclient.types.policy import Policy

WORLD = World(MIXED_WORLD, 3, calls=600)


def observable_state(world: World) -> list[object]:
    """Return everything of a world that a policy can observe."""
    return [
        world.calls,
        world.incidents,
        [world.outcome(call, route, call.at) for call in world.calls[:50] for route in world.routes],
        [world.kept(call, route, call.at) for call in world.calls[:20] for route in world.routes],
    ]


def test_a_world_depends_only_on_its_seed() -> None:
    assert observable_state(World(MIXED_WORLD, 3, calls=600)) == observable_state(WORLD)
    assert observable_state(World(MIXED_WORLD, 4, calls=600)) != observable_state(WORLD)


def test_an_outcome_does_not_depend_on_the_order_of_lookups() -> None:
    call = WORLD.calls[7]
    other = World(MIXED_WORLD, 3, calls=600)
    for route in reversed(other.routes):
        assert other.outcome(call, route, call.at) == WORLD.outcome(call, route, call.at)
    again = WORLD.outcome(call, WORLD.routes[0], call.at, attempt=1)
    assert again != WORLD.outcome(call, WORLD.routes[0], call.at)


@pytest.mark.parametrize(
    "noise",
    [
        LatencyNoise(0.3, tail=0.02, tail_median=4.0),
        LatencyNoise(0.12, tail=0.01, tail_median=2.5, tail_spread=0.4),
    ],
)
def test_noise_quantiles_and_cdf_match_its_draws(noise: LatencyNoise) -> None:
    rng = Random(1)
    drawn = sorted(noise.draw(rng) for _ in range(20_000))
    for share in (0.05, 0.5, 0.9, 0.95, 0.99):
        assert bisect(drawn, noise.quantile(share)) / len(drawn) == pytest.approx(share, abs=0.006)
        assert noise.cdf(noise.quantile(share)) == pytest.approx(share, abs=0.002)
    assert noise.mean == pytest.approx(mean(drawn), rel=0.02)
    assert (noise.cdf(0), noise.cdf(1e-9), noise.cdf(1e9)) == (0, 0, 1)
    assert normal_points(3)[1] == pytest.approx(0)


def test_the_probability_given_to_the_oracle_matches_outcome_frequencies() -> None:
    world = World(MIXED_WORLD, 5, calls=2500)
    for route in world.routes[:5]:
        for task in ("chat", "code"):
            calls = [call for call in world.calls if call.task == task]
            likely = mean(world.kept(call, route, call.at) for call in calls)
            outs = [(call, world.outcome(call, route, call.at)) for call in calls]
            held = mean(not out.failed and call.keeps(out.ttft_s, out.latency_s) for call, out in outs)
            assert held == pytest.approx(likely, abs=0.03), (route, task)


def test_drafting_helps_code_most_and_slows_a_full_host() -> None:
    plain, drafts = "turbo/llama-70b", "draft/llama-70b"
    calls = WORLD.calls[:300]

    def speed_up(task: str) -> float:
        return median(
            WORLD.pace(plain, task, 100, call.at).token_s / WORLD.pace(drafts, task, 100, call.at).token_s
            for call in calls
        )

    assert speed_up("code") > 1.15 * speed_up("chat") > speed_up("chat") > 1
    code, chat = ACCEPTANCE_BY_TASK["code"], ACCEPTANCE_BY_TASK["chat"]
    assert drafting_speedup(code, 0.0) == pytest.approx(2.46, rel=0.05)  # Chen et al., HumanEval
    assert drafting_speedup(chat, 0.0) == pytest.approx(1.92, rel=0.05)  # the same, text
    assert drafting_speedup(chat, 1.0) == pytest.approx(1 / 1.4, rel=0.05)  # vLLM, at high rates


def test_a_loaded_host_slows_down_as_in_the_published_table() -> None:
    for at_once, wait, speed in LOAD_CURVE:
        assert crowded_speed(math.log(at_once, 256)) == pytest.approx((wait, speed))


def test_no_strategy_beats_the_oracles_by_their_own_measures() -> None:
    """Without rate limits, the better-informed strategy pays less, per call and in total."""
    hosts = tuple(replace(host, per_minute=None) for host in MIXED_WORLD.hosts)
    world, policy = World(replace(MIXED_WORLD, hosts=hosts, calls=500), 2), Policy()
    judge = GroundTruth(world, policy)
    others = [*map(FixedRoute, world.routes), RoundRobin(world.routes), RoundRobin(world.routes, 1)]
    plays = [
        replay_calls(world, player, judge) for player in (Oracle(judge), Clairvoyant(world, judge), *others)
    ]
    oracle, clairvoyant, *rest = plays
    assert all(step.regret == 0 and step.good for step in oracle.steps)
    assert all(step.regret >= 0 for played in plays for step in played.steps)
    seen = [step.cost for step in clairvoyant.steps if step.tries == 1]
    assert len(seen) > 480
    for played in (oracle, *rest):
        for mine, best in zip(played.steps, clairvoyant.steps, strict=True):
            if mine.kept and mine.tries == 1:
                assert best.kept
                assert best.cost <= mine.cost + 1e-12
        assert summarize(clairvoyant, 0.95).violations <= summarize(played, 0.95).violations
    assert all(sum(step.regret for step in played.steps) > 0 for played in rest)


def test_a_fixed_route_waits_for_its_rate_limit_and_retries() -> None:
    world, policy = World(MIXED_WORLD, 3, calls=1500), Policy()
    judge = GroundTruth(world, policy)
    limited = replay_calls(world, FixedRoute("lpu/llama-70b"), judge)
    assert max(step.ttft_s or 0 for step in limited.steps) > 5 * median(
        step.ttft_s or 0 for step in limited.steps
    )
    assert not any(step.refused for step in limited.steps)
    assert any(
        step.refused
        for step in replay_calls(world, RoundRobin(["lpu/llama-70b", "own/llama-70b"]), judge).steps
    )
    failing = replay_calls(world, FixedRoute("budget/llama-70b"), judge)
    assert {step.tries for step in failing.steps} >= {1, 2}


def test_the_best_fixed_route_meets_the_limits() -> None:
    world = World(MIXED_WORLD, 3, calls=800)
    judge = GroundTruth(world, Policy())
    fixed = [summarize(replay_calls(world, FixedRoute(route), judge), 0.95) for route in world.routes]
    best = best_fixed(fixed)
    assert best.over <= 0.02
    assert all(best.cost <= each.cost for each in fixed if each.over <= 0.02)
    assert min(fixed, key=lambda each: each.cost) is not best
    assert best_fixed(fixed, slack=-1) is min(fixed, key=lambda each: (each.violations, each.cost))
