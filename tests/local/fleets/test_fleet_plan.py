"""Plans: memory and dollars, before anything is started."""

from __future__ import annotations

import pytest
from ray_clusters import fleet_of
from specclient_local.fleets.fleet_plan import check_memory, plan_fleet

from specclient import ConfigurationError


def test_memory_is_that_of_the_shapes() -> None:
    plain, drafting = plan_fleet(fleet_of(dtype="float32", memory="2GiB")).pools
    assert plain.memory is not None
    assert drafting.memory is not None
    # 10.2 million numbers of the target, and 7 layers with 5 heads of 64 keys and values, in float32
    assert plain.memory.weights == pytest.approx(10.2e6 * 4, rel=0.01)
    assert plain.memory.kv_per_token == 2 * 7 * 5 * 64 * 4
    assert plain.memory.draft_weights == 0
    assert drafting.memory.draft_weights > 0
    assert drafting.memory.kv_per_token > plain.memory.kv_per_token
    left = int(2 * 2**30 * 0.9) - plain.memory.weights
    assert plain.memory.requests(int(2 * 2**30 * 0.9)) == left // (plain.memory.kv_per_token * 512)


def test_dollars_follow_devices_and_bounds() -> None:
    pools = {"d0": {"draft_length": 0, "replicas": [1, 3]}, "d3": {"replicas": 2}}
    plan = plan_fleet(fleet_of(pools=pools, tp=2, device_cost_per_hour="1.5"))
    assert [pool.devices for pool in plan.pools] == [(2, 6), (4, 4)]
    assert plan.dollars == (9.0, 15.0)
    assert plan_fleet(fleet_of()).dollars is None


def test_a_pool_that_cannot_hold_the_model_is_refused() -> None:
    plan = plan_fleet(fleet_of(dtype="float32", memory="40MiB"))
    assert [pool.fits for pool in plan.pools] == [False, False]
    with pytest.raises(
        ConfigurationError, match=r"pool 'd0' cannot hold the model: its weights take 38\.9 MiB"
    ):
        check_memory(plan)
    check_memory(plan_fleet(fleet_of(dtype="float32", memory="40MiB", tp=2)))
    check_memory(plan_fleet(fleet_of()))


def test_a_context_beyond_the_models_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="context is 4096; allowed is 2 to 1024"):
        plan_fleet(fleet_of(context=4096))
