"""Trees in passes: a node has the logits of its path alone, scored at once or level by level."""

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
    """Run a test with compiled passes and with torch's."""
    if request.param == "torch":
        monkeypatch.setattr(decoder, "native_passes", lambda *_: None)
    return request.param


@pytest.fixture(params=[None, 4], ids=["full", "sliding"])
def runner(checkpoint, passes, request):
    kind = {"kind": "mistral", "sliding_window": request.param} if request.param else {}
    return DecoderRunner.load(checkpoint(**kind), dtype="float32", slots=2, context=100)


def random_tree(seed, nodes):
    rng, tree = np.random.default_rng(seed), TokenTree()
    for _ in range(nodes):
        tree.add(int(rng.integers(ROOT, len(tree))), int(rng.integers(2, 300)))
    return tree


def first_nodes(tree, count):
    """Return the tree of the first ``count`` nodes."""
    top = TokenTree()
    for parent, token in zip(tree.parents[:count], tree.tokens, strict=False):
        top.add(parent, token)
    return top


def logits_of_path(runner, tree, node):
    """Return the logits after a node whose path is scored as a plain sequence."""
    path = tree.paths()[node + 1]
    runner.truncate(1, 0)
    runner.prefill(1, PROMPT[:-1])
    logits = runner.score(1, [PROMPT[-1]])
    for token in path:
        logits = runner.score(1, [token])
    return logits[-1]


@pytest.mark.parametrize("nodes", [7, 2 * MAX_ROWS_PER_REQUEST + 5])
def test_a_node_has_the_logits_of_its_path_alone(runner, nodes):
    tree = random_tree(1, nodes)
    runner.prefill(0, PROMPT[:-1])
    logits = runner.score(0, PROMPT[-1:], tree)
    assert len(logits) == nodes + 1
    # Up to rounding: a node's ancestors are not adjacent in the cache, so sums have another order.
    for node in (ROOT, 0, nodes // 2, nodes - 1):
        torch.testing.assert_close(logits[node + 1], logits_of_path(runner, tree, node), atol=1e-5, rtol=0)


@pytest.mark.parametrize("steps", [(3, 4), (1, 1, 5), (0, 7)])
def test_nodes_in_the_cache_are_not_scored_again(runner, steps):
    tree = random_tree(2, 7)
    whole = runner.score_all([SlotInput(0, PROMPT, tree)])[0]
    assert runner.length(0) == len(PROMPT) + 7
    held, parts = steps[0], [runner.score_all([SlotInput(1, PROMPT, first_nodes(tree, steps[0]))])[0]]
    for count in steps[1:]:
        parts += runner.score_all([SlotInput(1, (), first_nodes(tree, held + count), held=held)])
        held += count
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(*(runner.cache.rows[:, slot, :, : len(PROMPT) + 7] for slot in (0, 1)))


def test_trees_of_several_slots_grow_in_one_pass(runner):
    trees = [random_tree(3, 6), random_tree(4, 5)]
    whole = [runner.score_all([SlotInput(i, PROMPT, tree)])[0] for i, tree in enumerate(trees)]
    for slot in (0, 1):
        runner.truncate(slot, 0)
    begun = runner.score_all([SlotInput(i, PROMPT, first_nodes(tree, 2)) for i, tree in enumerate(trees)])
    rest = runner.score_all([SlotInput(i, (), tree, held=2) for i, tree in enumerate(trees)])
    for i in (0, 1):
        assert torch.equal(torch.cat([begun[i], rest[i]]), whole[i])


def test_the_cache_after_an_accepted_path_equals_a_prefill(runner):
    tree = random_tree(5, 9)
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
