"""N-gram look-up in a sequence's own tokens: matches, draft lengths, time and memory."""

from __future__ import annotations

import random
import time
import tracemalloc
from functools import partial

import pytest
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.drafter import DrafterChosenChain, chain
from specclient_local.drafting.ngram import LONGEST_MATCH, NgramDrafter, NgramIndex
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS
from tiny_models import run, sequence


def index_of(tokens):
    past = NgramIndex()
    for token in tokens:
        past.append(token)
    return past


def match_length(tokens, place):
    """Return how many tokens before ``place`` equal the last tokens, by direct comparison."""
    most = min(place, LONGEST_MATCH)
    return next((n for n in range(most) if tokens[place - 1 - n] != tokens[len(tokens) - 1 - n]), most)


def test_find_returns_the_longest_and_then_latest_match():
    rng = random.Random(0)
    for _ in range(500):
        # few enough occurrences that all are examined
        tokens = [rng.randrange(5) for _ in range(rng.randrange(14))]
        matches = [(match_length(tokens, place), place) for place in range(1, len(tokens))]
        longest, place = max(matches, default=(0, 0))
        assert index_of(tokens).find() == ((place, longest) if longest else None)


def test_match_lengths_are_limited():
    assert index_of([*range(40), *range(40)]).find() == (40, LONGEST_MATCH)


def test_a_draft_continues_a_repetition():
    assert index_of([1, 2, 3, 1, 2]).next(2, 7) == [3, 1, 2, 3, 1, 2, 3]
    assert index_of([1, 2, 3, 1, 2]).next(2, 2) == [3, 1]
    assert index_of([4, 4]).next(1, 3) == [4, 4, 4]


@pytest.mark.parametrize("kinds", [1, 50])
def test_the_cost_per_token_does_not_grow_with_the_context(monkeypatch, kinds):
    """The test counts examined positions after a hundred thousand tokens, not seconds."""
    rng, lookups = random.Random(1), []
    original = NgramIndex._matching
    monkeypatch.setattr(NgramIndex, "_matching", lambda self, *at: lookups.append(at) or original(self, *at))
    past = index_of(rng.randrange(kinds) for _ in range(100_000))
    assert not lookups
    for _ in range(1000):
        past.append(rng.randrange(kinds))
        past.find()
    assert len(lookups) <= 8 * 1000


def test_the_index_uses_less_than_800_bytes_per_token():
    rng = random.Random(1)
    tokens = [rng.randrange(30_000) for _ in range(20_000)]
    tracemalloc.start()
    try:
        past = index_of(tokens)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(past.tokens) == 20_000
    assert held < 800 * 20_000


def drafting(tokens, **params):
    request, drafter = sequence(tokens, method="ngram", **params), NgramDrafter()
    while not drafter.begin(request):
        pass
    return request, drafter


def test_a_long_prompt_is_indexed_in_chunks_and_proposals_are_picked():
    tokens = [*range(2, 2 + MAX_PASS_ROWS), 5, 6, 7]
    request, drafter = sequence(tokens, method="ngram"), NgramDrafter()
    assert not drafter.begin(request)
    assert drafter.begin(request)
    (tree,) = drafter.propose([request], [chain(4)])
    assert tree.is_chain
    assert tree.tokens == [8, 9, 10, 11]
    assert tree.q == [None] * 4
    drafter.end(request)
    request, drafter = drafting([5, 6, 7])
    assert len(drafter.propose([request], [chain(4)])[0]) == 0


def test_draft_lengths_follow_the_acceptance_of_matches_of_the_same_length():
    request, drafter = drafting([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2])
    requested = []
    shape = DrafterChosenChain(15, lambda alpha: requested.append(alpha) or round(10 * alpha))

    def length():
        return len(drafter.propose([request], [shape])[0])

    first = length()
    for _ in range(5):
        drafter.commit(request, drafter.propose([request], [shape])[0], [])
    assert length() < first
    assert requested == sorted(requested, reverse=True)
    refused = requested[-1]
    # a longer match has a separate acceptance rate
    request.tokens += [3, 4, 5, 6]
    length()
    assert requested[-1] > 0.6 > refused


def test_unprofitable_matches_are_probed_occasionally():
    request, drafter = drafting([1, 2, 3, 1])
    lengths = [
        len(drafter.propose([request], [DrafterChosenChain(15, lambda alpha: 0)])[0]) for _ in range(32)
    ]
    assert [n for n in lengths if n] == [2, 2]


def test_requests_do_not_match_each_others_tokens():
    one, other = (sequence(tokens, slot=i, method="ngram") for i, tokens in enumerate(([1, 2, 1], [1, 3, 1])))
    drafter = NgramDrafter()
    assert drafter.begin(one)
    assert drafter.begin(other)
    trees = drafter.propose([one, other], [chain(1)] * 2)
    assert [tree.tokens for tree in trees] == [[2], [3]]
    drafter.end(one)
    assert drafter.begin(sequence([1, 4, 1], slot=0, method="ngram"))


def test_ngram_drafting_is_always_available(checkpoint):
    target = DecoderRunner.load(checkpoint(eos_token_id=None), dtype="float32", slots=1, context=128)
    speculator = Speculator(target)
    answer = partial(sequence, [5, 6, 5, 6], max_tokens=60)
    expected = run(speculator, plain := answer(method="plain"))
    speculator.end(plain)
    request = answer(method="ngram")
    assert run(speculator, request) == expected
    figures = request.speculation()
    assert figures.method == "ngram"
    assert figures.steps + figures.accepted >= 60
    speculator.end(request)
    assert not speculator.drafters["ngram"]._states


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_look_up_times_over_a_hundred_thousand_tokens(record_property):
    """Record the processor time of each tenth of a long sequence, ten thousand tokens each."""
    rng, past, taken = random.Random(2), NgramIndex(), []
    text = [rng.randrange(2000) for _ in range(500)]
    for _ in range(10):
        begun = time.process_time()
        for _ in range(10_000):
            past.append(rng.choice(text) if rng.random() < 0.3 else text[len(past.tokens) % 500])
            past.find()
        taken.append(time.process_time() - begun)
    record_property("microseconds_a_token", [round(1e2 * seconds, 1) for seconds in taken])
    print(f"microseconds a token, by tenth: {[round(1e2 * seconds, 1) for seconds in taken]}")
