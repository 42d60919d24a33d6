"""Bursts of long prompts: every call is answered, near the oracle's cost, in spite of rate limits."""

from __future__ import annotations

from random import Random

from specclient.routing.simulate.arrivals import Arrival, Arrivals
from specclient.routing.simulate.comparison import compare
from specclient.routing.simulate.hosts import MIXED_WORLD
from specclient.routing.simulate.trace_format import task_of
from specclient.routing.simulate.world import World
from specclient.types.policy import Policy


def bursts(calls: int, seed: int) -> Arrivals:
    """Return calls in bursts of ten every 36 seconds, with prompts of 500 to 120,000 tokens.

    So come the calls of Mooncake's conversation trace, stretched twelve times.
    """
    rng, found = Random(seed), []
    for n in range(calls):
        prompt = min(max(round(8000 * rng.lognormvariate(0, 1.1)), 500), 120_000)
        answer = min(max(round(350 * rng.lognormvariate(0, 0.6)), 1), 2000)
        found.append(Arrival(36.0 * (n // 10), task_of(None, prompt, "a burst"), prompt, answer))
    return Arrivals("bursts", tuple(found))


def test_long_prompts_in_bursts_are_answered_near_the_oracles_cost() -> None:
    world = World(MIXED_WORLD, 1, arrivals=bursts(1500, 1))
    found = compare(world, Policy(), seed=1, first=500)
    assert found.policy.answered == 1500
    assert found.policy.violations <= max(found.oracle.violations, 0.05) + 0.02
    assert found.over_oracle <= 0.15
    assert found.at_first is not None
    mine, equal = found.at_first
    assert mine.calls == equal.calls == 500
    assert mine.cost <= 1.4 * equal.cost


def test_a_warmed_router_starts_with_measurements_of_every_route() -> None:
    world = World(MIXED_WORLD, 1, calls=400)
    world.priors = {}  # published speeds help as much
    found = compare(world, Policy(), seed=1, warm=4, first=100)
    cold = compare(world, Policy(), seed=1, first=100)
    assert 0 < found.warm_cost < 0.05
    assert cold.warm_cost == 0
    assert found.replays["policy"] != cold.replays["policy"]
    assert found.at_first is not None
    assert cold.at_first is not None
    assert found.at_first[0].regret <= cold.at_first[0].regret
