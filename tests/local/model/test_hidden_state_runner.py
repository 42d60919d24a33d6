"""Hidden states for heads, and drafting from them: caches, Medusa's trees, and prompts of any length."""

from __future__ import annotations

import math
from itertools import product

import pytest
import tiny_heads
import torch
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.drafter import GrownTree
from specclient_local.drafting.tree_growth import sparse_tree
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model import decoder
from specclient_local.model.config import read_config
from specclient_local.model.heads.checkpoint import required_hidden_layers
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.request.params import MAX_TREE_NODES
from specclient_local.request.token_tree import ROOT, TokenTree
from tiny_models import load, run, sequence, write_checkpoint

DEPTHS = (0, 1, 3, 4)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    return write_checkpoint(folder, spread=0.1, max_position_embeddings=700, **tiny_heads.TARGET)


@pytest.fixture(params=["native", "torch"])
def runner(target, request, monkeypatch) -> HiddenStateRunner:
    if request.param == "torch":
        monkeypatch.setattr(decoder, "native_passes", lambda *_: None)
    opened = load_model(target, ModelPlacement(), slots=3, context=128, taps=DEPTHS)
    assert isinstance(opened, HiddenStateRunner)
    return opened


def transformers_states(target, tokens):
    """Return hidden states after ``DEPTHS`` layers, ``[N, depths, hidden]``, the last before its norm."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    last: list[torch.Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _, given: last.append(given[0][0]))
    with torch.inference_mode():
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    return torch.stack([states[0][0], states[1][0], states[3][0], last[0]], dim=1)


def test_hidden_states_equal_those_of_transformers(target, runner):
    tokens = [5, 17, 120, 33, 80, 201, 9]
    runner.prefill(0, tokens[:4])
    runner.score_all([SlotInput(1, [7, 8]), SlotInput(0, tokens[4:])])
    found = runner.features(0, 0, 7, DEPTHS)
    torch.testing.assert_close(found, transformers_states(target, tokens), atol=1e-4, rtol=1e-4)
    assert torch.equal(runner.features(0, 2, 7, (3,)), found[2:, 2:3])


def test_hidden_states_are_kept_copied_and_erased_with_the_cache(runner):
    tree = TokenTree()
    first, second = tree.add(ROOT, 40), tree.add(ROOT, 41)
    tree.add(first, 42)
    below = tree.add(second, 43)
    last = tree.add(below, 44)
    runner.prefill(0, [5, 6, 7])
    runner.score(0, [8], tree)
    runner.keep(0, 3, [second, below, last])
    runner.score(0, [9])
    tokens = [5, 6, 7, 8, 41, 43, 44, 9]
    assert runner.length(0) == len(tokens)
    runner.prefill(1, tokens)
    torch.testing.assert_close(
        runner.features(0, 0, 8, DEPTHS), runner.features(1, 0, 8, DEPTHS), atol=1e-4, rtol=1e-4
    )
    runner.copy(0, 2, 0, 5)
    runner.score(2, tokens[5:])
    torch.testing.assert_close(
        runner.features(2, 0, 8, DEPTHS), runner.features(0, 0, 8, DEPTHS), atol=1e-4, rtol=1e-4
    )
    runner.erase(0)
    assert not runner.features(0, 0, 8, DEPTHS).any()


@pytest.mark.parametrize("make", [tiny_heads.eagle, tiny_heads.eagle3], ids=["eagle", "eagle3"])
def test_a_heads_cache_equals_a_fresh_prefill_after_rejected_tokens(target, tmp_path, make):
    folder = make(tmp_path)
    opened = load_model(target, ModelPlacement(), slots=2, context=128, taps=_taps(folder, target))
    _, drafter = drafter_for_heads(opened, folder)
    accepted = 0
    for seed in range(6):
        tree = [None, (2, 2), "grow"][seed % 3]
        request = sequence(
            [7, 8, 9],
            method="eagle",
            max_tokens=30,
            temperature=1.0,
            seed=seed,
            draft_length=3,
            draft_tree=tree,
        )
        speculator = Speculator(opened, {"eagle": drafter})
        run(speculator, request)
        accepted += request.counts.accepted
        length = drafter.runner.length(0)
        assert length >= len(request.tokens) - 6
        other = sequence(request.tokens[: length + 2], slot=1)
        opened.prefill(1, other.tokens[:-1])
        assert drafter.begin(other)
        assert drafter.runner.length(1) == length
        used, fresh = (drafter.runner.cache.rows[:, slot, :, :length] for slot in (0, 1))
        torch.testing.assert_close(used, fresh, atol=1e-4, rtol=1e-4)
        for ended in (request, other):
            speculator.end(ended)
        opened.truncate(1, 0)
    assert accepted > 0


def _taps(folder, target):
    return tuple(sorted(set(required_hidden_layers(folder, read_config(target)))))


def medusa_trees(target, folder, shape, **params):
    opened = load_model(target, ModelPlacement(), slots=1, context=128, taps=(4,))
    _, drafter = drafter_for_heads(opened, tiny_heads.medusa(folder, spread=0.1))
    request = sequence([7, 8, 9], method="medusa", **params)
    opened.prefill(0, request.tokens[:-1])
    (tree,) = drafter.propose([request], [shape])
    with torch.inference_mode():
        rows = drafter.heads.logits(drafter.heads.read(opened.features(0, 1, 2, (4,))), 3)[0]
    return tree, rows.topk(4).indices.tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_medusas_tree_has_fixed_widths_and_picked_tokens(target, tmp_path, temperature):
    tree, likeliest = medusa_trees(target, tmp_path, (3, 2, 1, 1), temperature=temperature)
    assert tree.depths() == sorted(tree.depths())
    assert max(tree.depths()) == 3, "there are three heads"
    for node, depth in zip((ROOT, *range(len(tree))), (0, *tree.depths()), strict=True):
        wanted = likeliest[depth][: (3, 2, 1)[depth]] if depth < 3 else []
        assert [tree.tokens[child] for child in tree.children(node)] == wanted
    assert all(q in (None, token) for q, token in zip(tree.q, tree.tokens, strict=True))


def test_medusas_grown_tree_combines_predictions_of_two_positions(target, tmp_path):
    """A head's prediction is combined with the next head's at the previous position (the same token)."""
    opened = load_model(target, ModelPlacement(), slots=1, context=128, taps=(4,))
    _, drafter = drafter_for_heads(opened, tiny_heads.medusa(tmp_path, spread=0.1))
    request = sequence([7, 8, 9], method="medusa", temperature=0.9)
    opened.prefill(0, request.tokens[:-1])
    (tree,) = drafter.propose([request], [GrownTree(3, 6)])
    with torch.inference_mode():
        before, now = drafter.heads.logits(drafter.heads.read(opened.features(0, 0, 2, (4,))), 3)
        wanted = now.log_softmax(-1)
        wanted[:2] += 0.2 * before.log_softmax(-1)[1:]
    assert tree.paths() == sparse_tree(wanted, GrownTree(3, 6)).paths()
    assert len(tree) == 6
    assert all(q is None for q in tree.q)


@pytest.mark.parametrize("shape", [GrownTree(3, 1), GrownTree(3, 20), GrownTree(2, 63), GrownTree(3, 63)])
def test_a_sparse_tree_has_the_most_likely_paths(shape):
    """The expected paths come from an enumeration; one token of a level is forbidden."""
    rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(3)) * 2.0
    rows[1, 2] = -torch.inf
    shares = torch.softmax(rows.double(), -1)
    paths = [path for depth in range(1, shape.depth + 1) for path in product(range(5), repeat=depth)]
    value = {path: math.prod(shares[k, token].item() for k, token in enumerate(path)) for path in paths}
    possible = [path for path in paths if value[path] > 0]
    wanted = sorted(possible, key=lambda path: -value[path])[: shape.nodes]
    tree = sparse_tree(rows, shape)
    assert set(map(tuple, tree.paths()[1:])) == set(wanted)
    assert all(q is None for q in tree.q)


def test_non_finite_head_logits_give_an_empty_tree():
    assert len(sparse_tree(torch.full((2, 5), torch.nan), GrownTree(2, 8))) == 0
    assert len(sparse_tree(torch.zeros(0, 5), GrownTree(0, 8))) == 0


def test_medusas_grown_trees_use_the_maximum_tree_size(target, tmp_path):
    with load(target, heads=tiny_heads.medusa(tmp_path)) as engine:
        answer = engine.generate("def f(x):", max_tokens=12, draft_tree="grow", draft_length=3)
        wanted = engine.generate("def f(x):", max_tokens=12, method="plain")
    assert answer.token_ids == wanted.token_ids
    assert answer.speculation.drafted > 0.75 * MAX_TREE_NODES * answer.speculation.steps


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3"])
def test_heads_draft_after_prompts_of_any_length_and_with_prompt_scores(target, tmp_path, kind):
    folder = getattr(tiny_heads, kind)(tmp_path)
    with load(target, heads=folder, slots=2) as engine:
        for length in (1, 2, MAX_PASS_ROWS, MAX_PASS_ROWS + 1, 2 * MAX_PASS_ROWS + 3):
            prompt = [3 + i * 7 % 290 for i in range(length)]
            wanted = engine.generate(prompt, max_tokens=8, method="plain")
            for scored in (None, 0):
                answer = engine.generate(prompt, max_tokens=8, draft_length=3, prompt_logprobs=scored)
                assert answer.token_ids == wanted.token_ids, (length, scored)
                assert answer.speculation.drafted > 0


@pytest.mark.parametrize("kind", ["medusa", "eagle3"])
def test_heads_work_with_logits_processors_and_sliding_contexts(target, tmp_path, kind):
    folder = getattr(tiny_heads, kind)(tmp_path)
    with load(target, heads=folder, context=40) as engine:
        for params in (
            {"max_tokens": 20, "regex": "[a-z ]{5,40}", "repetition_penalty": 1.2},
            {"max_tokens": 90, "overflow": "slide"},
        ):
            wanted = engine.generate("def f(x):", method="plain", **params)
            for tree in (None, (2, 2), "grow"):
                answer = engine.generate("def f(x):", draft_tree=tree, draft_length=3, **params)
                assert answer.token_ids == wanted.token_ids, (params, tree)
                assert answer.speculation.drafted > 0
