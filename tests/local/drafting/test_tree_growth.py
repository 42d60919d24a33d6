"""Grown and joined draft trees against exact enumeration of every draw and acceptance.

The draft's distributions are random for every context; growing, joining and verifying are the engine's code.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from enumeration import VOCAB, Target, path_to, worst_error
from specclient_local.decoding import verify as walk
from specclient_local.drafting import tree_growth as growing
from specclient_local.drafting import union
from specclient_local.drafting.drafter import GrownTree, chain
from specclient_local.request.token_tree import ROOT, TokenTree


def grow(shape, drafts, choose):
    """Grow a tree as the draft model does, with the distributions of ``drafts``."""
    growth, nodes = growing.tree_growth_for(shape), [ROOT]
    while growth.going and nodes:
        all_p = [drafts(path_to(growth.scored, node)) for node in nodes]
        before = len(growth.scored)
        growth.grow(torch.zeros(len(nodes), VOCAB), all_p, nodes, choose)
        nodes = list(range(before, len(growth.scored)))
    return growth.finish()[0]


def joined(*trees):
    tree = TokenTree()
    for part in trees:
        union.add_to_union(tree, part)
    return tree


def static(*widths):
    def family(rng):
        drafts = Target(rng)
        return lambda choose: grow(widths, drafts, choose)

    return family


def grown(depth, nodes):
    def family(rng):
        drafts = Target(rng)
        return lambda choose: grow(GrownTree(depth, nodes), drafts, choose)

    return family


def two_models(rng):
    """Return a joined tree of one draft model and chain of another, with different distributions."""
    one, other = Target(rng), Target(rng)
    return lambda choose: joined(grow((2,), one, choose), grow((1,), other, choose))


def chain_and_lookup(rng):
    drafts, looked_up = Target(rng), rng.integers(0, VOCAB, 3).tolist()
    return lambda choose: joined(grow(chain(2), drafts, choose), TokenTree.chain(looked_up))


def tree_and_lookup(rng):
    drafts, looked_up = Target(rng), rng.integers(0, VOCAB, 2).tolist()
    return lambda choose: joined(grow((2, 1), drafts, choose), TokenTree.chain(looked_up))


def grown_and_lookup(rng):
    drafts, looked_up = Target(rng), rng.integers(0, VOCAB, 3).tolist()
    return lambda choose: joined(grow(GrownTree(2, 5), drafts, choose), TokenTree.chain(looked_up))


FAMILIES = {
    "chain": (static(1, 1), 12),
    "three siblings": (static(3), 12),
    "tree": (static(2, 1), 4),
    "grown": (grown(2, 4), 12),
    "grown deeper": (grown(3, 7), 6),
    "two models": (two_models, 6),
    "chain and look-up": (chain_and_lookup, 6),
    "tree and look-up": (tree_and_lookup, 3),
    "grown and look-up": (grown_and_lookup, 12),
}


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_drafted_trees_yield_the_targets_distribution(name, greedy):
    family, seeds = FAMILIES[name]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        propose, target = family(rng), Target(rng, greedy=greedy)
        assert worst_error(propose, target, horizon=3) < 1e-12


def is_detected(family, seeds=12):
    wrong = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        propose, target = family(rng), Target(rng)
        wrong += worst_error(propose, target, horizon=2) > 1e-6
    return wrong > seeds / 2


def picked_tokens_with_drawn_q(rng):
    drafts = Target(rng)

    def propose(choose):
        tree = grow(GrownTree(2, 4), drafts, choose)
        tree.q = [drafts(path_to(tree, parent)) for parent in tree.parents]
        return tree

    return propose


def unnormalised_residual(p, q):
    rest = np.maximum(p - q, 0.0)
    return rest if rest.any() else p


@pytest.mark.parametrize(
    ("module", "name", "mutant", "family"),
    [
        (walk, "acceptance_probability", lambda p, q, token: 1.0, static(2)),
        (walk, "acceptance_probability", lambda p, q, token: 1.0, grown(2, 4)),
        (walk, "residual", lambda p, q: p, two_models),
        (walk, "residual", unnormalised_residual, two_models),
        (union, "_picked", lambda q, token: True, two_models),
        (growing, "without_token", lambda q, token: q, static(3)),
    ],
    ids=[
        "accept always",
        "accept picks always",
        "residual forgotten",
        "residual not renormalised",
        "equal draws merged",
        "drawn with replacement",
    ],
)
def test_the_enumeration_detects_wrong_implementations(monkeypatch, module, name, mutant, family):
    assert not is_detected(family)
    if name == "without_token":
        # Siblings are drawn with replacement, but have the q of draws without replacement.
        monkeypatch.setattr(TokenTree, "branch", branch_without_replacement_q)
    monkeypatch.setattr(module, name, mutant)
    assert is_detected(family)


def branch_without_replacement_q(tree, parent, tokens, q):
    left = q
    for token in tokens:
        tree.add(parent, token, left)
        rest = left.copy()
        rest[token] = 0.0
        left = rest / rest.sum() if rest.sum() else left


def test_the_enumeration_detects_picked_tokens_with_a_drawn_q():
    assert is_detected(picked_tokens_with_drawn_q)


def test_a_grown_tree_keeps_the_most_likely_of_the_scored_tokens():
    drafts = Target(np.random.default_rng(3))
    tree = grow(GrownTree(3, 6), drafts, None)
    values = {}

    def look(path, value, depth):
        for token in np.argsort(-drafts(path))[: growing.GROWN_TREE_BREADTH]:
            below = (*path, int(token))
            values[below] = value * drafts(path)[token]
            if depth < 3:
                look(below, values[below], depth + 1)

    look((), 1.0, 1)
    best = set(sorted(values, key=lambda path: -values[path])[:6])
    assert {path_to(tree, node) for node in range(len(tree))} == best
    assert tree.q == [None] * 6
