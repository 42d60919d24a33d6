"""Searching for skipped layers while requests run: answers stay exact, and trials have a time limit."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from drafted_answers import target_distribution
from p_values import chi_square_p
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.layer_search import LayerSearch, first_layers
from specclient_local.drafting.layer_skip import SEARCH_TIME_SHARE, LayerSkipDrafter
from specclient_local.loading.options import EngineOptions
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.layer_subset import LayerSubsetRunner
from tiny_models import (
    as_table,
    distribution_of_rounds,
    letter_tokenizer,
    load,
    run,
    sequence,
    write_checkpoint,
)

from specclient.errors import ConfigurationError

VOCAB = 8
PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """Write a target with four layers over eight letters."""
    shape = {"vocab_size": VOCAB, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    return write_checkpoint(
        tmp_path_factory.mktemp("letters") / "t",
        seed=5,
        spread=0.2,
        num_hidden_layers=4,
        eos_token_id=None,
        bos_token_id=None,
        tokenizer=letter_tokenizer(VOCAB),
        **shape,
    )


@pytest.fixture(scope="module")
def bytes_target(tmp_path_factory):
    """Write a target with six layers over bytes."""
    folder = tmp_path_factory.mktemp("bytes")
    return write_checkpoint(folder / "t", seed=1, spread=0.12, num_hidden_layers=6, eos_token_id=None)


class Clock:
    """A clock that advances by ``step`` seconds per call."""

    def __init__(self, step=1.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


class ChangingSearch(LayerSearch):
    """A search that changes the layers in every round."""

    def candidate(self):
        self.best = self._changed(self.best)
        return self.best

    def learn(self, layers, right, seen):
        """Ignore the result."""


def speculator(target, search=None, clock=None):
    runner = DecoderRunner.load(target, dtype="float32", slots=1, context=128)
    drafter = LayerSkipDrafter(runner, search, clock or Clock())
    return Speculator(runner, {"layer_skip": drafter}), drafter


def round_distribution(target, **params):
    speculating, _ = speculator(target)
    distribution, kept = distribution_of_rounds(speculating, PROMPT, method="layer_skip", **params)
    return as_table(distribution, VOCAB), kept


SHAPES = {
    "chain": {"draft_length": 2},
    "tree": {"draft_tree": (2,), "draft_length": 1},
    "grown": {"draft_tree": "grow", "draft_length": 2},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_rounds_follow_the_targets_distribution(letters, shape, monkeypatch):
    least = 0.3 if shape == "chain" else 0.0  # chains end early at some positions only
    monkeypatch.setattr(
        LayerSkipDrafter, "worth", lambda self, draft, logits: float(logits.softmax(-1).amax()) > least
    )
    distribution, kept = round_distribution(letters, temperature=1.1, top_k=3, **SHAPES[shape])
    np.testing.assert_allclose(distribution, target_distribution(letters, PROMPT, VOCAB, 1.1, 3), atol=1e-5)
    assert kept > 0


def test_the_comparison_detects_a_drafter_with_a_wrong_q(letters, monkeypatch):
    propose = LayerSkipDrafter.propose

    def with_uniform_q(self, requests, shapes):
        trees = propose(self, requests, shapes)
        for tree in trees:
            tree.q = [np.full(VOCAB, 1.0 / VOCAB) for _ in tree.q]
        return trees

    monkeypatch.setattr(LayerSkipDrafter, "propose", with_uniform_q)
    monkeypatch.setattr(LayerSkipDrafter, "worth", lambda *_: True)
    distribution, _ = round_distribution(letters, temperature=1.1, top_k=3, draft_length=2)
    assert np.abs(distribution - target_distribution(letters, PROMPT, VOCAB, 1.1, 3)).max() > 1e-3


@pytest.mark.parametrize("tree", [None, (2, 2, 1), "grow"], ids=str)
def test_greedy_answers_and_caches_equal_plain_decoding_while_layers_change(bytes_target, tree, monkeypatch):
    """Each round uses other layers, after a trial over the target's cached rows."""
    monkeypatch.setattr("specclient_local.drafting.layer_skip.SEARCH_TIME_SHARE", 1e9)
    speculating, drafter = speculator(bytes_target, ChangingSearch(6, random.Random(3)))
    plain = Speculator(DecoderRunner.load(bytes_target, dtype="float32", slots=1, context=128))
    sets = set()
    for prompt in ([5, 6, 7, 8] * 16, [9] * 70, list(range(2, 80))):
        request = sequence(prompt, max_tokens=40, method="layer_skip", draft_tree=tree, draft_length=3)
        wanted = run(plain, sequence(prompt, max_tokens=40, method="plain"))
        assert run(speculating, request) == wanted
        own, other = speculating.target, plain.target
        assert own.length(0) == other.length(0)
        for mine, theirs in zip(own.cache.views(0), other.cache.views(0), strict=True):
            rows = own.length(0)
            torch.testing.assert_close(mine[:, :rows], theirs[:, :rows], atol=1e-5, rtol=1e-5)
        speculating.end(request)
        plain.end(request)
        sets.add(drafter.search.best)
    assert len(drafter._runners) > 3
    assert len(sets) > 1


def test_a_trial_leaves_the_targets_cache_bit_identical(bytes_target):
    target = DecoderRunner.load(bytes_target, dtype="float32", slots=2, context=128)
    tokens = list(range(2, 90))
    target.prefill(1, tokens)
    before = target.cache.rows.clone()
    all_layers = LayerSubsetRunner(target, range(6)).predict_tokens(1, 40, tokens[40:80])
    assert torch.equal(target.cache.rows, before)
    assert target.length(1) == len(tokens)
    fresh = DecoderRunner.load(bytes_target, dtype="float32", slots=1, context=128)
    assert all_layers == fresh.read(0, tokens)[40:80].argmax(-1).tolist(), "with all layers, it is the target"
    LayerSubsetRunner(target, (0, 5)).predict_tokens(1, 40, tokens[40:80])
    assert torch.equal(target.cache.rows, before)


def test_sampled_continuations_follow_the_targets_distribution(letters):
    counts, long = np.zeros((VOCAB, VOCAB)), [1, 2, 3, 4, 5, 6, 7] * 9
    with load(letters, layer_skip="search", slots=4) as engine:
        assert engine.method == "layer_skip"
        engine.generate(long, max_tokens=40)  # runs a search
        for first in range(0, 400, 4):
            sinks = [[] for _ in range(4)]
            for i, sink in enumerate(sinks):
                seed = {"seed": first + i} if first % 8 else {}
                engine.add(PROMPT, sink.append, max_tokens=3, temperature=1.0, draft_length=2, **seed)
            while engine.step():
                pass
            for sink in sinks:
                one, two, *_ = sink[-1].generation.token_ids
                counts[one, two] += 1
    assert chi_square_p(counts, target_distribution(letters, PROMPT, VOCAB, 1.0, VOCAB)) > 0.001


def test_a_seed_gives_the_same_answer_before_and_after_a_search(bytes_target):
    with load(bytes_target, layer_skip="search") as engine:
        requested = {"max_tokens": 24, "temperature": 1.0, "seed": 7}
        before = engine.generate([5, 6, 7, 8] * 20, **requested).token_ids
        engine._speculator.drafters["layer_skip"].search.best = (2, 3)
        assert engine.generate([5, 6, 7, 8] * 20, **requested).token_ids == before


def test_trials_take_no_more_than_their_time_share(bytes_target):
    """The clock advances only by 1 s per round and 1 s per trial."""
    clock, trials = Clock(step=0.0), []

    class TimedSearch(LayerSearch):
        def learn(self, layers, right, seen):
            clock.now += 1.0
            trials.append(clock.now)
            super().learn(layers, right, seen)

    speculating, _ = speculator(bytes_target, TimedSearch(6, random.Random(0)), clock)
    request = sequence([5, 6, 7, 8] * 20, max_tokens=40, method="layer_skip", draft_length=1)
    while not speculating.prefill(request):
        pass
    for _ in range(20):
        clock.now += 1.0
        (won,) = speculating.round([request])
        request.tokens.extend(won.tokens)
    assert 1 <= len(trials) <= 1 + SEARCH_TIME_SHARE * clock.now


def test_the_search_finds_the_best_layers():
    """Two of five layers matter: the more of them a set has, the more tokens it predicts."""
    rng = random.Random(1)
    search = LayerSearch(5, rng)

    def right(layers, seen=48):
        chance = 0.2 + 0.35 * ((1 in layers) + (3 in layers))
        return sum(rng.random() < chance for _ in range(seen))

    initial_speed = search.speed(search.best)
    for _ in range(120):
        layers = search.candidate()
        search.learn(layers, right(layers), 48)
    assert search.best == (1, 3)
    assert search.speed(search.best) > initial_speed


def test_a_few_lucky_tokens_do_not_replace_the_best_layers():
    search = LayerSearch(8, random.Random(0))
    for _ in range(8):
        search.learn(search.best, 40, 48)
    best = search.best
    search.learn((0, 1, 2, 3), 3, 3)
    assert search.best == best


@pytest.mark.parametrize(("layers", "first"), [(2, (0,)), (3, (0, 2)), (7, (0, 2, 4, 6)), (8, (0, 2, 5, 7))])
def test_a_search_starts_with_half_of_the_layers(layers, first):
    assert first_layers(layers) == first


def test_layer_skip_accepts_search_and_rejects_other_words():
    assert EngineOptions(layer_skip="search", method="layer_skip").layer_skip == "search"
    with pytest.raises(ConfigurationError, match=r"layer_skip is 'best'; allowed .*'search'"):
        EngineOptions(layer_skip="best")
