"""The router in simulated worlds: its cost is near the oracle's, below fixed routes', within the limits."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median

import pytest

from specclient.errors import ConfigurationError
from specclient.routing.simulate.baselines import GroundTruth, Oracle
from specclient.routing.simulate.comparison import compare
from specclient.routing.simulate.hosts import MIXED_WORLD
from specclient.routing.simulate.policy_selector import PolicySelector, policy_for_call
from specclient.routing.simulate.replay import ReplayResult, replay_calls
from specclient.routing.simulate.results import find_recoveries
from specclient.routing.simulate.scenario import RouteChange
from specclient.routing.simulate.trace import Trace
from specclient.routing.simulate.trace_format import TraceCall, TraceOutcome
from specclient.routing.simulate.world import World
from specclient.types.policy import Policy


def test_the_router_costs_little_and_meets_the_limits() -> None:
    """The bounds are loose because learning from nothing takes a large part of a short run."""
    found = compare(World(MIXED_WORLD, 3, calls=1000), Policy(), seed=3)
    assert found.policy.over <= 0.02
    assert found.policy.answered == 1000
    assert found.under_fixed >= 0.2
    assert found.over_oracle <= 0.5
    assert found.equal.violations <= max(found.policy.violations, found.oracle.violations)
    assert found.clairvoyant.violations <= found.oracle.violations


def test_equal_seeds_give_equal_runs() -> None:
    world, policy = World(MIXED_WORLD, 4, calls=300), Policy()
    judge = GroundTruth(world, policy)
    first, again, other = (
        replay_calls(world, PolicySelector(world, policy, seed), judge) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_route_denied_by_the_policy_is_never_chosen() -> None:
    world = World(MIXED_WORLD, 3, calls=300)
    found = compare(world, Policy(deny=("lpu/", "own/")), seed=1)
    served = {step.served for played in found.replays.values() for step in played.steps}
    assert not served & {"lpu/llama-70b", "own/llama-70b"}
    with pytest.raises(ConfigurationError, match=r"permits none of the routes in mixed: budget/llama-70b"):
        compare(world, Policy(allow=("nobody/",)))


def test_a_policys_limits_override_those_of_the_calls() -> None:
    call = World(MIXED_WORLD, 3, calls=1).calls[0]
    policy = policy_for_call(replace(call, max_ttft_s=1.0, max_latency_s=9.0), Policy(max_latency_s=2))
    assert (policy.max_ttft_s, policy.max_latency_s) == (1.0, 2)


@pytest.mark.parametrize(
    ("policy", "call_limits"),
    [
        (Policy(max_latency_s=5), {}),
        (Policy(max_ttft_s=2), {}),
        (Policy(max_latency_s=5), {"max_latency_s": 60.0}),
        (Policy(max_ttft_s=2), {"max_ttft_s": 60.0}),
        (Policy(), {"max_latency_s": 5.0}),
    ],
)
def test_all_strategies_are_judged_by_the_limits_in_force(
    policy: Policy, call_limits: dict[str, float]
) -> None:
    found = compare(_slow_and_fast(**call_limits), policy, seed=1)
    missed = {each.name: each.violations for each in found.fixed}
    assert missed == {"a/slow": 1.0, "a/fast": 0.0}
    assert found.best_fixed.name == "a/fast"
    for knowing in (found.oracle, found.equal, found.clairvoyant):
        assert (knowing.routes, knowing.violations) == ({"a/fast": 1.0}, 0.0)
    assert found.policy.violations == pytest.approx(found.policy.routes.get("a/slow", 0.0))


def test_a_policys_wider_limits_override_the_calls_for_all_strategies() -> None:
    found = compare(_slow_and_fast(max_latency_s=5.0), Policy(max_latency_s=60), seed=1)
    assert found.oracle.routes == {"a/slow": 1.0}
    assert {each.violations for each in found.fixed} == {0.0}


def _slow_and_fast(**limits: float) -> Trace:
    """Return 60 calls with outcomes on a cheap route (nine seconds) and on an expensive one (one second)."""
    slow = TraceOutcome(latency_s=9.0, ttft_s=8.0, cost=0.001)
    fast = TraceOutcome(latency_s=1.0, ttft_s=0.5, cost=0.004)
    return Trace("calls", [
        TraceCall(at=10.0 * i, task="chat", prompt_tokens=100, completion_tokens=50,
             outcomes={"a/slow": slow, "a/fast": fast}, **limits)
        for i in range(60)
    ])  # fmt: skip


def test_recovery_counts_the_calls_until_choices_are_good_again() -> None:
    world = World(MIXED_WORLD, 1, calls=900)
    judge = GroundTruth(world, Policy())
    played = replay_calls(world, Oracle(judge), judge)
    assert not find_recoveries(_WorldWithChanges(world), judge, played)
    change = next(
        (c for c in world.changes if find_recoveries(_WorldWithChanges(world, c), judge, played)), None
    )
    assert change is not None, "no change of this seed moves the best choice; use another seed"
    start = next(i for i, step in enumerate(played.steps) if step.call.at >= change.at)
    steps = [replace(s, good=not start <= i < start + 30) for i, s in enumerate(played.steps)]
    (recovery,) = find_recoveries(_WorldWithChanges(world, change), judge, ReplayResult("x", tuple(steps)))
    assert recovery.calls is not None
    assert 25 <= recovery.calls <= 30
    assert recovery.rarer == (1.0, 1.0, 1.0, 0.0, 0.0), (
        "compared with the later half, in which all choices were good"
    )


class _WorldWithChanges:
    """A world that lists only the given changes."""

    def __init__(self, world: World, *changes: RouteChange) -> None:
        self._world, self.changes = world, changes

    def __getattr__(self, name: str) -> object:
        return getattr(self._world, name)


@pytest.mark.soak
def test_the_router_reaches_the_targets_over_ten_seeds() -> None:
    """Checks the simulation targets that the README reports as reached."""
    runs = [compare(World(MIXED_WORLD, seed), Policy(), seed=seed) for seed in range(6, 16)]
    assert all(run.policy.over <= 0.02 for run in runs)
    assert all(run.under_fixed >= 0.2 for run in runs)
    assert median(run.over_oracle for run in runs) <= 0.1
    counts = [each.calls for run in runs for each in run.settled]
    assert sum(calls is not None and calls <= 50 for calls in counts) >= 0.8 * len(counts)
    after = [each.rarer for run in runs for each in run.settled if each.rarer]
    assert all(mean(tens) <= 0.05 for tens in list(zip(*after, strict=True))[3:]), (
        "choices recover before the 31st call"
    )
