"""Trees in passes: a guess has the logits of its path alone, scored at once or level by level."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specclient_local.model import decoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import ROOT, TokenTree

PROMPT = [5, 6, 7, 8, 9]


@pytest.fixture(params=["compiled", "torch"])
def passes(request, monkeypatch):
    """Both ways in which a decoder computes."""
    if request.param == "torch":
        monkeypatch.setattr(decoder, "native_passes", lambda *_: None)
    return request.param


@pytest.fixture(params=[None, 4], ids=["full", "sliding"])
def runner(checkpoint, passes, request):
    kind = {"kind": "mistral", "sliding_window": request.param} if request.param else {}
    return DecoderRunner.load(checkpoint(**kind), dtype="float32", slots=2, context=100)


def bushy(seed, nodes):
    dice, tree = np.random.default_rng(seed), TokenTree()
    for _ in range(nodes):
        tree.add(int(dice.integers(ROOT, len(tree))), int(dice.integers(2, 300)))
    return tree


def first(tree, count):
    """The tree of the first nodes alone."""
    top = TokenTree()
    for parent, token in zip(tree.parents[:count], tree.tokens, strict=False):
        top.add(parent, token)
    return top


def alone(runner, tree, node):
    """The logits after a guess when its path alone is a sequence."""
    path = tree.paths()[node + 1]
    runner.truncate(1, 0)
    runner.prefill(1, PROMPT[:-1])
    logits = runner.score(1, [PROMPT[-1]])
    for token in path:
        logits = runner.score(1, [token])
    return logits[-1]


@pytest.mark.parametrize("nodes", [7, 2 * MAX_ROWS_PER_REQUEST + 5])
def test_a_guess_has_the_logits_of_its_path_alone(runner, nodes):
    tree = bushy(1, nodes)
    runner.prefill(0, PROMPT[:-1])
    logits = runner.score(0, PROMPT[-1:], tree)
    assert len(logits) == nodes + 1
    # Up to rounding: a guess's ancestors do not stand side by side in the cache, and sums run another way.
    for node in (ROOT, 0, nodes // 2, nodes - 1):
        torch.testing.assert_close(logits[node + 1], alone(runner, tree, node), atol=1e-5, rtol=0)


@pytest.mark.parametrize("steps", [(3, 4), (1, 1, 5), (0, 7)])
def test_nodes_in_the_cache_are_not_scored_again(runner, steps):
    tree = bushy(2, 7)
    whole = runner.score_all([SlotInput(0, PROMPT, tree)])[0]
    assert runner.length(0) == len(PROMPT) + 7
    held, parts = steps[0], [runner.score_all([SlotInput(1, PROMPT, first(tree, steps[0]))])[0]]
    for count in steps[1:]:
        parts += runner.score_all([SlotInput(1, (), first(tree, held + count), held=held)])
        held += count
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(*(runner.cache.rows[:, slot, :, : len(PROMPT) + 7] for slot in (0, 1)))


def test_several_slots_grow_their_trees_in_one_pass(runner):
    trees = [bushy(3, 6), bushy(4, 5)]
    whole = [runner.score_all([SlotInput(i, PROMPT, tree)])[0] for i, tree in enumerate(trees)]
    for slot in (0, 1):
        runner.truncate(slot, 0)
    begun = runner.score_all([SlotInput(i, PROMPT, first(tree, 2)) for i, tree in enumerate(trees)])
    rest = runner.score_all([SlotInput(i, (), tree, held=2) for i, tree in enumerate(trees)])
    for i in (0, 1):
        assert torch.equal(torch.cat([begun[i], rest[i]]), whole[i])


def test_a_path_kept_is_a_sequence_read(runner):
    tree = bushy(5, 9)
    path = max(tree.paths(), key=len)
    nodes, node = [], ROOT
    for token in path:
        node = next(child for child in tree.children(node) if tree.tokens[child] == token)
        nodes.append(node)
    runner.score_all([SlotInput(0, PROMPT, tree)])
    runner.keep(0, len(PROMPT) - 1, nodes)
    runner.prefill(1, [*PROMPT, *path])
    assert runner.length(0) == len(PROMPT) + len(path)
    kept, read = (runner.cache.rows[:, slot, :, : runner.length(0)] for slot in (0, 1))
    torch.testing.assert_close(kept, read, atol=1e-5, rtol=0)
    assert torch.equal(runner.score(0, [3]).argmax(), runner.score(1, [3]).argmax())
