"""Trees as the drafters grow and join them, against exact enumeration: every draw, every acceptance.

The draft's laws are random ones for every context; growing, drawing, joining and verifying are the engine's.
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
    """Grow a tree as the draft model does, its laws being those of ``drafts``."""
    growth, nodes = growing.tree_growth_for(shape), [ROOT]
    while growth.going and nodes:
        laws = [drafts(path_to(growth.scored, node)) for node in nodes]
        before = len(growth.scored)
        growth.grow(torch.zeros(len(nodes), VOCAB), laws, nodes, choose)
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
    """Draft models with laws of their own: a tree of one, a chain of the other."""
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
def test_drafters_trees_leave_the_targets_law_as_it_is(name, greedy):
    family, seeds = FAMILIES[name]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        propose, target = family(rng), Target(rng, greedy=greedy)
        assert worst_error(propose, target, horizon=3) < 1e-12


def found_out(family, seeds=12):
    wrong = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        propose, target = family(rng), Target(rng)
        wrong += worst_error(propose, target, horizon=2) > 1e-6
    return wrong > seeds / 2


def picks_that_claim_draws(rng):
    drafts = Target(rng)

    def propose(choose):
        tree = grow(GrownTree(2, 4), drafts, choose)
        tree.q = [drafts(path_to(tree, parent)) for parent in tree.parents]
        return tree

    return propose


def what_is_left_unscaled(p, q):
    rest = np.maximum(p - q, 0.0)
    return rest if rest.any() else p


@pytest.mark.parametrize(
    ("module", "name", "mutant", "family"),
    [
        (walk, "acceptance_probability", lambda p, q, token: 1.0, static(2)),
        (walk, "acceptance_probability", lambda p, q, token: 1.0, grown(2, 4)),
        (walk, "residual", lambda p, q: p, two_models),
        (walk, "residual", what_is_left_unscaled, two_models),
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
def test_the_same_enumeration_finds_what_is_wrong(monkeypatch, module, name, mutant, family):
    assert not found_out(family)
    if name == "without_token":
        # Siblings drawn with replacement that say they were drawn without.
        monkeypatch.setattr(TokenTree, "branch", claiming_no_replacement)
    monkeypatch.setattr(module, name, mutant)
    assert found_out(family)


def claiming_no_replacement(tree, parent, tokens, q):
    left = q
    for token in tokens:
        tree.add(parent, token, left)
        rest = left.copy()
        rest[token] = 0.0
        left = rest / rest.sum() if rest.sum() else left


def test_the_same_enumeration_finds_picks_that_claim_to_be_drawn():
    assert found_out(picks_that_claim_draws)


def test_a_grown_tree_keeps_the_likeliest_guesses_of_all_it_looked_at():
    drafts = Target(np.random.default_rng(3))
    tree = grow(GrownTree(3, 6), drafts, None)
    looked_at = {}

    def look(path, value, depth):
        for token in np.argsort(-drafts(path))[: growing.GROWN_TREE_BREADTH]:
            below = (*path, int(token))
            looked_at[below] = value * drafts(path)[token]
            if depth < 3:
                look(below, looked_at[below], depth + 1)

    look((), 1.0, 1)
    best = set(sorted(looked_at, key=lambda path: -looked_at[path])[:6])
    assert {path_to(tree, node) for node in range(len(tree))} == best
    assert tree.q == [None] * 6
