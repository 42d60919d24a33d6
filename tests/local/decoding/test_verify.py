"""The verification walk against an exact enumeration of all outcomes and their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from enumeration import VOCAB, Target, random_distribution, worst_error
from specclient_local.decoding import verify as module
from specclient_local.decoding.verify import acceptance_probability, residual
from specclient_local.request.token_tree import ROOT, TokenTree, without_token


def chain(rng, length):
    drafts = Target(rng)

    def propose(choose):
        tree, context = TokenTree(), ()
        for _ in range(length):
            q = drafts(context)
            token = choose.draw(q)
            tree.add(len(tree) - 1, token, q)
            context = (*context, token)
        return tree

    return propose


def picked_chain(rng, length):
    """Return a chain of picked (not drawn) tokens with one-hot q, as from n-gram drafters or greedy heads."""
    tokens = rng.integers(0, VOCAB, length).tolist()
    return lambda choose: TokenTree.chain(tokens)


def independent_siblings(rng, length):
    """Return siblings drawn independently by two drafters; equal draws are not merged."""
    one, other = random_distribution(rng), random_distribution(rng)

    def propose(choose):
        tree = TokenTree()
        for q in (one, other)[:length]:
            tree.add(ROOT, choose.draw(q), q)
        return tree

    return propose


def siblings_without_replacement(rng, width):
    q = random_distribution(rng)

    def propose(choose):
        tree, left, tokens = TokenTree(), q, []
        for _ in range(width):
            tokens.append(choose.draw(left))
            left = without_token(left, tokens[-1])
        tree.branch(ROOT, tokens, q)
        return tree

    return propose


def mixed_tree(rng, _):
    """Return siblings drawn without replacement, one of them with a drawn child, and a picked sibling."""
    drafts = Target(rng)

    def propose(choose):
        tree, q = TokenTree(), drafts(())
        first = choose.draw(q)
        second = choose.draw(without_token(q, first))
        nodes = tree.branch(ROOT, [first, second], q)
        tree.add(ROOT, 3)
        below = drafts((second,))
        tree.add(nodes[1], choose.draw(below), below)
        tree.add(nodes[0], 0)
        return tree

    return propose


FAMILIES = [
    (chain, 0),
    (chain, 1),
    (chain, 2),
    (picked_chain, 2),
    (independent_siblings, 2),
    (siblings_without_replacement, 2),
    (siblings_without_replacement, 3),
    (mixed_tree, 0),
]


@pytest.mark.parametrize(("family", "size"), FAMILIES, ids=lambda v: getattr(v, "__name__", str(v)))
@pytest.mark.parametrize("greedy", [False, True])
def test_the_walk_yields_the_targets_distribution(family, size, greedy):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        propose, target = family(rng, size), Target(rng, greedy=greedy)
        assert worst_error(propose, target, horizon=3) < 1e-12


def claim_unnormalised_q(rng, width):
    original = siblings_without_replacement(rng, width)

    def propose(choose):
        tree = original(choose)
        tree.q = [tree.q[0]] * len(tree)
        return tree

    return propose


def merged_equal_draws(rng, length):
    original = independent_siblings(rng, length)

    def propose(choose):
        tree = original(choose)
        if tree.tokens[0] != tree.tokens[1]:
            return tree
        return TokenTree.chain(tree.tokens[:1], tree.q[:1])

    return propose


def picked_token_with_drawn_q(rng, _):
    q = random_distribution(rng)
    return lambda choose: TokenTree.chain([int(q.argmax())], [q])


@pytest.mark.parametrize(
    ("family", "size"),
    [(claim_unnormalised_q, 2), (merged_equal_draws, 2), (picked_token_with_drawn_q, 1)],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_the_enumeration_detects_a_drafter_with_a_wrong_q(family, size):
    wrong = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        propose, target = family(rng, size), Target(rng)
        wrong += worst_error(propose, target, horizon=2) > 1e-6
    assert wrong > 12


@pytest.mark.parametrize(
    ("name", "mutant"),
    [("acceptance_probability", lambda p, q, token: 1.0), ("residual", lambda p, q: p)],
)
def test_the_enumeration_detects_a_wrong_walk(monkeypatch, name, mutant):
    rng = np.random.default_rng(0)
    propose, target = chain(rng, 2), Target(rng)
    monkeypatch.setattr(module, name, mutant)
    assert worst_error(propose, target, horizon=2) > 1e-3


def test_acceptance_probability_is_p_over_q_capped_at_one():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.0, 0.75])
    assert acceptance_probability(p, q, 0) == 1.0
    assert acceptance_probability(p, q, 2) == 0.0
    assert acceptance_probability(p, np.array([1.0, 0.0, 0.0]), 0) == 0.5
    assert acceptance_probability(p, 0, 0) == 0.5
    assert acceptance_probability(1, q, 2) == 0.0


def test_the_residual_is_normalised_even_if_p_equals_q():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.6, 0.2])
    np.testing.assert_allclose(residual(p, q), [1.0, 0.0, 0.0])
    np.testing.assert_allclose(residual(p, 0), [0.0, 0.6, 0.4])
    np.testing.assert_allclose(residual(p, p.copy()), p)
    assert residual(2, q) == 2
