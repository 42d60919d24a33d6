"""Choosing a drafter: predicted speed-ups against hand-computed values, and tiny models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.measure.expected_speedup import PositionAcceptance
from specclient_local.measure.pick import selection as picking
from specclient_local.measure.pick.candidates import parse_candidate
from specclient_local.measure.pick.selection import (
    ADAPTIVE,
    CandidateResult,
    PickResult,
    PickSettings,
    break_even,
    pick,
    rejection_reason,
)
from specclient_local.model.config import read_config
from specclient_local.model.weights import count_numbers
from tiny_heads import medusa
from tiny_models import load, write_checkpoint

from specclient.errors import CheckpointError, ConfigurationError

COSTS = RoundCosts(draft=0.2, verify=(1.0, 1.1, 1.2, 1.3))


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("target"), num_hidden_layers=4, eos_token_id=None)


@pytest.fixture(scope="module")
def draft(tmp_path_factory) -> Path:
    """Write a draft that is unrelated to the target."""
    return write_checkpoint(tmp_path_factory.mktemp("draft"), seed=5, num_hidden_layers=1)


def pick_settings(**changes) -> PickSettings:
    prompts = [[0, 70, 71, 72, 73, 74], [0, 90, 91, 92], [0, 70, 71, 72, 73, 75]]
    return PickSettings(prompts, ["code", "chat", "code"], **{"new": 24, "depth": 3, "repeat": 1, **changes})


def candidate_result(**changes) -> CandidateResult:
    values = {
        "name": "one", "method": "draft", "alpha": 0.7, "by_position": (0.8, 0.6), "by_task": {}, "cost": 0.2,
        "memory": 0, "depth": 2, "expected": 1.3, "closed_form": 1.4, "break_even": 0.5, "measured": {},
    }  # fmt: skip
    return CandidateResult(**{**values, **changes})


def test_break_even_is_the_smallest_profitable_acceptance_at_any_depth() -> None:
    # One drafted token gives 1 + α tokens for 0.2 + 1.1 plain steps; deeper drafts need a higher acceptance.
    assert break_even(COSTS, 1) == pytest.approx(0.3, abs=1e-6)
    assert break_even(COSTS, 3) == pytest.approx(0.3, abs=1e-6)
    cheap = RoundCosts(draft=0.0, verify=(1.0, 1.5, 1.5, 1.5))
    found = break_even(cheap, 3)
    assert 1 + found + found**2 + found**3 == pytest.approx(1.5, abs=1e-6)
    assert found < break_even(cheap, 1)
    assert break_even(RoundCosts(draft=2.0, verify=(1.0, 1.0, 1.0)), 2) == 1.0, (
        "a draft that costs more than its target"
    )


def test_the_best_depth_maximises_tokens_per_cost() -> None:
    counted = PositionAcceptance(tried=(100, 80, 40), kept=(80, 40, 4), rounds=100)
    ups = [1.8 / 1.3, (1 + 0.8 + 0.4) / 1.6, (1 + 0.8 + 0.4 + 0.04) / 1.9]
    depth, expected = picking._best_depth(counted, COSTS, 1.0)
    assert (depth, expected) == (1, pytest.approx(max(ups)))
    deeper = replace(counted, kept=(80, 76, 36), tried=(100, 80, 76))
    assert picking._best_depth(deeper, COSTS, 1.0)[0] == 2


def test_the_cost_of_a_look_up_round_counts_only_found_tokens() -> None:
    look_up = RoundCosts(draft=0.0, verify=(1.0, 1.1, 1.2, 1.3))
    assert picking._round_cost(look_up, 2, 0.5) == pytest.approx(1.1)
    assert picking._round_cost(look_up, 2, 1.0) == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, None),
        ({"alpha": 0.41}, r"acceptance 0.41 is under the break-even of 0.50 \(a draft pass costs 0.20 plain"),
        ({"measured": {"chain": 0.93, ADAPTIVE: 0.9}}, r"0.93× plain decoding as timed, at acceptance 0.70"),
        ({"expected": 0.98}, r"0.98× plain decoding expected"),
        ({"expected": 0.98, "measured": {"chain": 1.1}}, None),
    ],
)
def test_the_rejection_reason_has_the_figures(changes, wanted) -> None:
    import re

    reason = rejection_reason(candidate_result(**changes))
    assert (reason is None) == (wanted is None)
    assert wanted is None or re.match(wanted, reason)


@pytest.mark.parametrize(
    ("measured", "widths"),
    [
        ({"chain": 1.2, ADAPTIVE: 1.1, "2,1": 1.1}, (1, 1)),
        ({"chain": 1.2, ADAPTIVE: 1.3, "2,1": 1.1}, None),
        ({"chain": 1.2, ADAPTIVE: 1.3, "2,1": 1.4}, (2, 1)),
    ],
)
def test_the_fastest_tree_widths_are_recommended(measured, widths) -> None:
    assert picking._fastest_widths(candidate_result(measured=measured)) == widths


def pick_among(target, names, **changes) -> PickResult:
    candidates = [parse_candidate(name, target, context=64) for name in names]
    return pick(candidates, lambda each: load(target, slots=1, **each.load_options), pick_settings(**changes))


def test_a_useless_draft_is_rejected_and_a_perfect_one_has_acceptance_one(target, draft) -> None:
    found = pick_among(target, [str(draft), str(target), "ngram"])
    by_name = {one.name: one for one in found.results}
    wrong, right = by_name[str(draft)], by_name[str(target)]
    assert wrong.alpha < 0.2
    assert wrong.break_even > wrong.alpha
    assert (
        f"acceptance {wrong.alpha:.2f} is under the break-even of {wrong.break_even:.2f}"
        in rejection_reason(wrong)
    )
    assert right.alpha == 1.0
    assert right.by_position == (1.0, 1.0, 1.0)
    assert right.by_task == {"chat": 1.0, "code": 1.0}
    assert right.closed_form == pytest.approx((right.depth + 1) / (right.depth * right.cost + 1))
    assert right.memory > wrong.memory > by_name["ngram"].memory == 0
    assert [one.expected for one in found.results] == sorted(
        (one.expected for one in found.results), reverse=True
    )
    assert [bool(one.measured) for one in found.results] == [True, True, False], "only the best two are timed"
    assert found.best is None or found.best.worth
    assert found.speed_up >= 1.0


def test_skipped_layers_and_heads_can_be_candidates(target, tmp_path) -> None:
    heads = medusa(tmp_path / "heads")
    found = pick_among(target, ["layer_skip:1", str(heads)])
    methods = {one.name: one for one in found.results}
    assert methods["layer_skip:1"].method == "layer_skip"
    own = methods[str(heads)]
    assert own.method == "medusa"
    assert len(own.by_position) <= 3
    assert set(own.measured) == {
        "chain",
        ADAPTIVE,
        *(picking.tree_name(tree) for tree in picking._trees(own.depth)),
    }


def test_layer_skip_without_a_number_uses_half_of_the_layers(target) -> None:
    assert parse_candidate("layer_skip", target, context=64).load_options == {"layer_skip": 2}
    assert read_config(target).layers == 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_candidates_memory_equals_that_of_a_loaded_one(target, dtype) -> None:
    placed, context = ModelPlacement(dtype, "cpu"), 128
    skipping = parse_candidate("layer_skip:1", target, context=context, dtype=dtype)
    caches = load_model(target, placed, slots=1, context=context).cache.rows.nbytes
    assert skipping.memory == caches // 4, "one of four layers, whose weights are the target's"
    whole = parse_candidate(str(target), target, context=context, dtype=dtype)
    biases_and_norms = 0.03
    numbers = count_numbers(target) * (1 - biases_and_norms)
    assert whole.memory - caches >= numbers * (2 if dtype == "bfloat16" else 4)


@pytest.mark.parametrize(
    ("name", "error", "named"),
    [
        ("layer_skip:4", ConfigurationError, "allowed is layer_skip:N with 1 to 3"),
        ("layer_skip:x", ConfigurationError, "candidate is 'layer_skip:x'"),
        ("./nowhere", CheckpointError, "nowhere is not a folder"),
    ],
)
def test_an_invalid_candidate_raises_with_its_name(target, name, error, named) -> None:
    with pytest.raises(error, match=named):
        parse_candidate(name, target, context=64)


def test_an_empty_list_of_candidates_raises(target) -> None:
    with pytest.raises(ConfigurationError, match="there are no candidates"):
        pick_among(target, [])
