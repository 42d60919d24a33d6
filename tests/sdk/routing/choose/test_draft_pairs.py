"""The tables of draft pairs and quality tiers are consistent, and lookups accept the usual model names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.draft_target import PAIRS
from specclient.routing.choose.draft_pairs import CLIENT_SIDE_PAIRS, KNOWN_PAIRS, pair_facts
from specclient.routing.choose.quality_tiers import TIERS, tier_of
from specclient.routing.learn.draft_depth import best_depth

TASKS = {"chat", "code", "document", "long_context"}


@pytest.mark.parametrize(
    "row", [*KNOWN_PAIRS, *CLIENT_SIDE_PAIRS.values()], ids=lambda row: f"{row.target}+{row.draft}"
)
def test_every_pair_row_is_complete_and_consistent(row):
    assert set(row.acceptance) == TASKS
    assert all(0 < rate < 1 for rate in row.acceptance.values())
    assert row.cost_ratio is None or set(row.cost_ratio) == TASKS
    assert row.size_ratio is None or 0 < row.size_ratio < 1
    assert row.quality is None or row.quality == tier_of(row.target)
    if row.cost_ratio is not None:  # a recommended pair pays off without load
        assert all(best_depth(row.acceptance[t], row.cost_ratio[t], task=t) > 0 for t in TASKS)


@pytest.mark.parametrize(
    ("target", "draft", "family", "same"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct", "llama-3", True),
        ("/models/Meta-Llama-3.1-70B-Instruct/", "/models/Llama-3.1-8B", "llama-3", True),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen/Qwen2.5-Coder-1.5B", "qwen2.5", True),
        ("demo-target", "demo-draft", "bundled", True),
        ("acme/Wonder-30B", "acme/Wonder-1B", "wonder", True),
        ("acme/wonder-30b", "other/thing-1b", "", None),
        ("openai/gpt-4.1", "deepseek/deepseek-chat", "", False),
    ],
)
def test_pairs_are_found_by_their_names(target, draft, family, same):
    row = pair_facts(target, draft)
    assert (row.family, row.same_tokenizer) == (family, same)


def test_estimates_for_unlisted_pairs_follow_sizes_and_families():
    small, tiny = pair_facts("x/foo-70b", "x/foo-8b"), pair_facts("x/foo-70b", "x/foo-500m")
    assert (round(small.size_ratio, 3), round(tiny.size_ratio, 4)) == (0.114, 0.0071)
    assert small.acceptance["chat"] > tiny.acceptance["chat"]
    assert small.cost_ratio["chat"] > tiny.cost_ratio["chat"]
    assert pair_facts("x/foo", "x/foo-draft").cost_ratio is None  # unknown until it is measured
    assert pair_facts("x/foo-70b", "y/bar-1b").acceptance["chat"] < tiny.acceptance["chat"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_every_pair_of_names_gets_facts(target, draft):
    row = pair_facts(target, draft)
    assert row.size_ratio is None or row.size_ratio > 0


def test_the_workflows_pairs_are_the_shipped_ones():
    assert {name: (pair.target, pair.draft) for name, pair in PAIRS.items()} == {
        name: (row.target, row.draft) for name, row in CLIENT_SIDE_PAIRS.items()
    }


@pytest.mark.parametrize(
    ("route", "tier"),
    [
        ("openai/gpt-4.1-mini-2025-04-14", TIERS["gpt-4.1-mini"]),
        ("openai/gpt-4.1", TIERS["gpt-4.1"]),
        ("openrouter/anthropic/claude-sonnet-4.5", TIERS["claude-sonnet-4"]),
        ("openai/o1-2024-12-17", TIERS["o1"]),
        ("openai/o10", None),
        ("local/demo-target", TIERS["demo"]),
        ("vllm/meta-llama/Llama-3.1-8B-Instruct", 0.4),
        ("ollama/qwen3:0.6b", 0.1),
        ("x/llama-3.3-70b", 0.65),
        ("mine/unheard-of", None),
        ("mine/acme-70b", None),
    ],
)
def test_tiers_are_found_by_a_models_name(route, tier):
    assert tier_of(route) == tier


def test_configured_tiers_take_precedence_and_the_longest_prefix_wins():
    own = {"openai/": 0.1, "openai/gpt-4.1": 0.2, "mine/": 0.9}
    assert [tier_of(r, own) for r in ("openai/gpt-4.1-mini", "openai/o3", "mine/x", "local/demo")] == [
        0.2, 0.1, 0.9, TIERS["demo"],
    ]  # fmt: skip
