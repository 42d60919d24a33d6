"""Fleets from their tables."""

from __future__ import annotations

import pytest
from ray_clusters import fleet_of
from specclient_local.fleets.fleet import size_in_bytes

from specclient import ConfigurationError


def test_a_pool_has_the_options_of_an_export_with_its_own_draft_length() -> None:
    fleet = fleet_of(dtype="bfloat16", slots=16, arguments={"enforce_eager": True})
    plain, drafting = map(fleet.engine_arguments, fleet.pools)
    assert plain == {
        "max_num_seqs": 16,
        "max_model_len": 512,
        "dtype": "bfloat16",
        "enforce_eager": True,
    }
    assert drafting["speculative_config"]["num_speculative_tokens"] == 3
    assert drafting["speculative_config"]["model"].endswith("bundled/draft")
    assert drafting["per_request_spec_decode_metrics"] == "summary"


def test_a_pool_may_change_its_length_by_the_requests_of_a_step() -> None:
    lengths = {9: 2, 1: 5, 33: 0}
    main = {"draft_length": None, "draft_lengths": lengths, "replicas": 1}
    fleet = fleet_of(slots=64, pools={"main": main})
    [pool] = fleet.pools
    config = fleet.engine_arguments(pool)["speculative_config"]
    assert (pool.draft_length, config["num_speculative_tokens"]) == (5, 5)
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 8, 5], [9, 32, 2], [33, 64, 0]]
    plain = fleet_of(pools={"main": {**main, "draft_lengths": {1: 0}}})
    assert "speculative_config" not in plain.engine_arguments(plain.pools[0])


def test_a_fleet_without_pools_has_one() -> None:
    fleet = fleet_of(pools={}, replicas=[1, 4], draft_length=2)
    [pool] = fleet.pools
    assert (pool.name, pool.draft_length, pool.least, pool.most, pool.scales) == ("main", 2, 1, 4, True)
    assert fleet.resized({"main": (2, 2)}).pool("main").least == 2


def test_the_cluster_is_the_tables_or_that_of_the_environment() -> None:
    assert fleet_of().address == "local"
    assert fleet_of(address="ray://head:10001").address == "ray://head:10001"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"draft": None}, "pool 'd3' is 3, but the fleet has no draft"),
        ({"accelerator": "H100", "gpus": 2}, "gpus is 2, but tp × pp is 1"),
        ({"memory": "lots"}, "memory is 'lots'; write a size such as 80GiB"),
        ({"method": "layer_skip", "draft": None}, "vLLM cannot draft with layers of the target"),
        ({"tp": 2, "pp": 2}, "pipeline_parallel is 2, which does not work with 'draft'"),
    ],
)
def test_what_cannot_be_served_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        fleet_of(**values)


def test_sizes() -> None:
    assert size_in_bytes("big", "80GiB") == 80 * 2**30
    assert size_in_bytes("big", "24 GB") == 24 * 10**9
    for text in ("", "-1GiB", "80 parsecs", "infGiB"):
        with pytest.raises(ConfigurationError):
            size_in_bytes("big", text)


def test_an_unknown_pool_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="no pool 'd9'; its pools are d0, d3"):
        fleet_of().pool("d9")
