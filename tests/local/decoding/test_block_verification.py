"""Verification of chains as a block, by enumeration of all outcomes: exact, with no fewer tokens accepted."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from enumeration import VOCAB, Target, emitted_path, random_distribution, worst_error
from specclient_local.decoding import verify as module
from specclient_local.decoding.round_entry import RoundEntry
from specclient_local.decoding.verify import prefix_acceptance, prefix_chances, verify
from specclient_local.drafting.drafter import (
    DrafterChosenChain,
    GrownTree,
    UnionShape,
    chain,
    is_chain_shape,
)
from specclient_local.drafting.union import add_to_union
from specclient_local.request.sequence import NO_TOKEN
from specclient_local.request.token_tree import ROOT, TokenTree
from specclient_local.request.validation import EmptyConstraintError
from tiny_models import enumerate_outcomes, sequence

block = partial(verify, rule="block")
token = partial(verify, rule="token")


class Model:
    """A draft whose distribution after each context is made by a function of the target's, on first use."""

    def __init__(self, make, target):
        self.make, self.target, self.known = make, target, {}

    def __call__(self, context):
        if context not in self.known:
            p = self.target(context)
            p = np.eye(VOCAB)[p] if isinstance(p, int) else p
            self.known[context] = self.make(p)
        return self.known[context]


class TiedTarget(Target):
    """A target whose probabilities are multiples of a small fraction: many are equal, and some are zero."""

    def __call__(self, context):
        if context not in self.known:
            weights = self.rng.integers(0, 3, VOCAB)
            weights[self.rng.integers(VOCAB)] += 1
            self.known[context] = weights / weights.sum()
        return self.known[context]


def disjoint(p):
    """Return a draft's distribution over the tokens that the target never gives, if there are any."""
    free = p == 0.0
    return free / free.sum() if free.any() else np.full(VOCAB, 1.0 / VOCAB)


def half_of(rng):
    """Return a function that mixes the target's distribution with a random one: most tokens are right."""
    return lambda p: 0.5 * p + 0.5 * random_distribution(rng)


DRAFTS = {
    "random": lambda rng: lambda p: random_distribution(rng),
    "zeros": lambda rng: lambda p: random_distribution(rng, zeros=2),
    "equal": lambda rng: lambda p: p.copy(),
    "equal or random": lambda rng: lambda p: p.copy() if rng.random() < 0.5 else random_distribution(rng),
    "near": half_of,
    "disjoint": lambda rng: disjoint,
    "one-hot": lambda rng: lambda p: np.eye(VOCAB)[rng.integers(VOCAB)],
    "uniform": lambda rng: lambda p: np.full(VOCAB, 1.0 / VOCAB),
}


def drawn_chain(draft, length, stops=lambda context: False):
    """Return a function that draws a chain of a draft; ``stops`` may end it after any of its prefixes."""

    def propose(choose):
        tree, context = TokenTree(), ()
        while len(tree) < length and not (context and stops(context)):
            q = draft(context)
            drawn = choose.draw(q)
            tree.add(len(tree) - 1, drawn, q)
            context = (*context, drawn)
        return tree

    return propose


def mean_accepted(propose, target, walk):
    """Return the exact mean number of accepted drafted tokens."""
    outcomes = enumerate_outcomes(lambda c: len(emitted_path(propose(c), target, c, walk).path))
    return sum(weight * accepted for weight, accepted in outcomes)


def survival(propose, target, walk, length):
    """Return the exact probabilities that at least 1, …, ``length`` tokens are accepted."""
    reached = np.zeros(length)
    for weight, accepted in enumerate_outcomes(lambda c: len(emitted_path(propose(c), target, c, walk).path)):
        reached[:accepted] += weight
    return reached


def case(name, seed, *, kind=Target, greedy=False):
    rng = np.random.default_rng([seed, sorted(DRAFTS).index(name)])
    target = kind(rng, greedy=greedy)
    return Model(DRAFTS[name](rng), target), target


@pytest.mark.parametrize("kind", [Target, TiedTarget])
@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("length", [1, 2])
def test_a_block_has_the_targets_distribution_and_no_fewer_tokens(name, length, kind):
    for seed in range(8):
        draft, target = case(name, seed, kind=kind)
        propose = drawn_chain(draft, length)
        assert worst_error(propose, target, horizon=length + 1, walk=block) < 1e-12
        one, other = (mean_accepted(propose, target, walk) for walk in (block, token))
        assert one > other - 1e-12
        if length == 1 or name == "equal":
            assert one == pytest.approx(other, abs=1e-12)


@pytest.mark.parametrize("name", DRAFTS)
def test_a_block_of_three_has_the_targets_distribution_and_no_fewer_tokens(name):
    for seed, kind in ((0, Target), (1, TiedTarget)):
        draft, target = case(name, seed, kind=kind)
        propose = drawn_chain(draft, 3)
        assert worst_error(propose, target, horizon=4, walk=block) < 1e-12
        assert mean_accepted(propose, target, block) > mean_accepted(propose, target, token) - 1e-12


def test_more_tokens_are_accepted_as_a_block_where_p_and_q_differ():
    gains = []
    for seed in range(20):
        draft, target = case("random", seed)
        propose = drawn_chain(draft, 2)
        gains.append(mean_accepted(propose, target, block) - mean_accepted(propose, target, token))
    assert np.mean(gains) > 0.01
    assert sum(gain > 1e-6 for gain in gains) > 10


def test_the_example_of_the_paper():
    """Two tokens, p = (1/3, 2/3) and q = (2/3, 1/3) at each position: 11/9 tokens instead of 10/9."""
    p, q = np.array([1.0, 2.0, 0.0, 0.0]) / 3, np.array([2.0, 1.0, 0.0, 0.0]) / 3
    target = Target(np.random.default_rng(0))
    target.known = dict.fromkeys(((), *np.ndindex(4), *np.ndindex(4, 4)), p)
    propose = drawn_chain(lambda context: q, 2)
    assert mean_accepted(propose, target, token) == pytest.approx(10 / 9)
    assert mean_accepted(propose, target, block) == pytest.approx(11 / 9)
    assert worst_error(propose, target, horizon=2, walk=block) < 1e-12


def verdicts(propose, target, walk):
    """Return every outcome of a walk: its probability, the accepted path and the token after it."""
    outcomes = enumerate_outcomes(lambda c: emitted_path(propose(c), target, c, walk))
    return [(weight, found.path, found.token) for weight, found in outcomes]


@pytest.mark.parametrize("name", DRAFTS)
def test_at_temperature_0_both_rules_accept_the_same_tokens(name):
    for seed in range(8):
        draft, target = case(name, seed, greedy=True)
        for length in (1, 2, 3):
            propose = drawn_chain(draft, length)
            assert verdicts(propose, target, block) == verdicts(propose, target, token)


def test_the_chance_of_a_position_does_not_depend_on_the_length_of_the_chain():
    """Statistics of acceptance by position, and what chooses lengths by them, rest on this."""
    for seed in range(5):
        draft, target = case("random", seed)
        reached = [survival(drawn_chain(draft, length), target, block, length) for length in (1, 2, 3)]
        np.testing.assert_allclose(reached[2][:2], reached[1], atol=1e-12)
        np.testing.assert_allclose(reached[1][:1], reached[0], atol=1e-12)


def test_a_chain_may_end_by_what_is_known_before_the_next_token_is_drawn():
    for seed in range(10):
        draft, target = case("near", seed)
        propose = drawn_chain(draft, 3, stops=lambda context: context[-1] % 2 == 0)
        assert worst_error(propose, target, horizon=3, walk=block) < 1e-12


def test_a_chain_that_ends_by_a_token_drawn_later_is_not_exact():
    """The enumeration detects what :func:`verify` forbids."""

    def propose(choose):
        tree = drawn_chain(draft, 2)(choose)
        return tree if tree.tokens[1] == 0 else TokenTree.chain(tree.tokens[:1], tree.q[:1])

    wrong = 0
    for seed in range(10):
        draft, target = case("random", seed)
        wrong += worst_error(propose, target, horizon=2, walk=block) > 1e-6
    assert wrong > 5


def union_of_chains(rng, draft):
    """Return a function that joins a drawn chain and a picked one; whether the union is a chain varies."""
    picked = rng.integers(0, VOCAB, 2).tolist()

    def propose(choose):
        union = TokenTree()
        for tree in (drawn_chain(draft, 2)(choose), TokenTree.chain(picked)):
            add_to_union(union, tree)
        return union

    return propose


def test_unions_are_verified_token_by_token_even_where_they_are_chains():
    """A union is a chain or not by the tokens drawn, and a block would then not be exact."""

    def by_tree(tree, rows, choose):
        return verify(tree, rows, choose, "block" if tree.is_chain else "token")

    wrong = 0
    for seed in range(10):
        draft, target = case("random", seed)
        propose = union_of_chains(np.random.default_rng(seed), draft)
        assert worst_error(propose, target, horizon=2, walk=token) < 1e-12
        wrong += worst_error(propose, target, horizon=2, walk=by_tree) > 1e-6
    assert wrong > 3
    shape, tree = UnionShape(chain(2), chain(2), 1), TokenTree.chain([1, 2])
    union = RoundEntry(sequence([1], temperature=1.0), shape, tree)
    assert union.verification == "token"


def test_the_shape_and_the_request_choose_the_rule():
    def rule(shape, tree=None, **params):
        request = sequence([1], temperature=1.0, **params)
        return RoundEntry(request, shape, tree or TokenTree.chain([1, 2])).verification

    assert rule(chain(2)) == rule(chain(2), verification="block") == "block"
    assert rule(chain(2), verification="token") == "token"
    assert rule(DrafterChosenChain(4, lambda alpha: 1)) == "block"
    assert rule((2, 1)) == rule(GrownTree(2, 2)) == "token"
    wide = TokenTree()
    wide.add(ROOT, 1)
    wide.add(ROOT, 2)
    assert rule(chain(2), wide) == "token"
    assert not is_chain_shape(UnionShape(chain(1), chain(1), 1))


def test_picked_tokens_are_tried_one_after_another():
    tried = []

    class Random:
        def accept(self, probability):
            tried.append(probability)
            return False

        def draw(self, p):
            return int(p.argmax())

    rows = [np.array([0.5, 0.3, 0.2, 0.0])] * 3
    verify(TokenTree.chain([1, 0]), rows, Random(), "block")
    assert tried == [0.3]
    q = np.array([0.25, 0.25, 0.5, 0.0])
    tried.clear()
    verify(TokenTree.chain([2, 0], [q, q]), rows, Random(), "block")
    # p_1 = 0.4 and p_2 = 0.8; of the first token alone, (0.4 p - q)+ is zero: it is never kept alone.
    assert tried == pytest.approx([0.8, 0.0])


def test_a_chain_ends_where_a_grammar_is_complete():
    p, q = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])
    tree = TokenTree.chain([1, 1, 1], [q, q, q])
    assert prefix_chances(tree, [p, p, NO_TOKEN, p]) == [1.0, 0.5, 0.25]

    def emitted(choose):
        found = verify(tree, [p, p, NO_TOKEN, p], choose, "block")
        return (*(tree.tokens[node] for node in found.path), found.token)

    answers = {}
    for weight, tokens in enumerate_outcomes(emitted):
        answers[tokens] = answers.get(tokens, 0.0) + weight
    assert answers == pytest.approx({(0,): 0.5, (1, 0): 0.25, (1, 1): 0.25})
    with pytest.raises(EmptyConstraintError):
        verify(tree, [NO_TOKEN, p, p, p], sequence([1], seed=1).random, "block")


def test_an_accepted_prefix_is_certain_at_chance_1():
    assert prefix_acceptance(1.0, 0.0) == prefix_acceptance(1.0, 0.3) == 1.0
    assert prefix_acceptance(0.5, 0.5) == 0.5
    assert prefix_acceptance(0.5, 0.0) == prefix_acceptance(0.0, 0.0) == 0.0


def uncapped_chances(tree, target):
    """Return the chances of prefixes whose ratios are multiplied without a cap at 1 in between."""
    ratios = [target[i][x] / tree.q[i][x] for i, x in enumerate(tree.tokens)]
    return [1.0, *np.cumprod(ratios).clip(0.0, 1.0).tolist()]


MUTANTS = {
    "prefix_acceptance": lambda chance, remaining: chance,
    "prefix_chances": uncapped_chances,
    "excess": lambda p, q, scale: (p.copy(), float(np.maximum(scale * p - q, 0.0).sum())),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_enumeration_detects_a_wrong_block(monkeypatch, name):
    """Accepting prefixes by their own chance, no cap at 1 before later factors, and drawing from p."""
    monkeypatch.setattr(module, name, MUTANTS[name])
    wrong = 0
    for seed in range(10):
        draft, target = case("near", seed)
        wrong += worst_error(drawn_chain(draft, 2), target, horizon=3, walk=block) > 1e-6
    assert wrong > 5
