"""Look-up in a sequence's own past: what it finds, how far it goes, what a token of it costs."""

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


def past_of(tokens):
    past = NgramIndex()
    for token in tokens:
        past.append(token)
    return past


def matching(tokens, place):
    """By comparing: how many tokens before ``place`` are those at the end."""
    most = min(place, LONGEST_MATCH)
    return next((n for n in range(most) if tokens[place - 1 - n] != tokens[len(tokens) - 1 - n]), most)


def test_a_match_is_the_longest_and_of_equal_ones_the_latest():
    dice = random.Random(0)
    for _ in range(500):
        # few enough places that none is left out
        tokens = [dice.randrange(5) for _ in range(dice.randrange(14))]
        matches = [(matching(tokens, place), place) for place in range(1, len(tokens))]
        longest, place = max(matches, default=(0, 0))
        assert past_of(tokens).find() == ((place, longest) if longest else None)


def test_a_match_is_followed_back_no_further_than_need_be():
    assert past_of([*range(40), *range(40)]).find() == (40, LONGEST_MATCH)


def test_what_repeats_goes_on_repeating():
    assert past_of([1, 2, 3, 1, 2]).next(2, 7) == [3, 1, 2, 3, 1, 2, 3]
    assert past_of([1, 2, 3, 1, 2]).next(2, 2) == [3, 1]
    assert past_of([4, 4]).next(1, 3) == [4, 4, 4]


@pytest.mark.parametrize("kinds", [1, 50])
def test_a_token_of_a_long_context_costs_what_one_of_a_short_one_does(monkeypatch, kinds):
    """A hundred thousand tokens: places looked at are counted, not seconds."""
    dice, looked = random.Random(1), []
    honest = NgramIndex._matching
    monkeypatch.setattr(NgramIndex, "_matching", lambda self, *at: looked.append(at) or honest(self, *at))
    past = past_of(dice.randrange(kinds) for _ in range(100_000))
    assert not looked
    for _ in range(1000):
        past.append(dice.randrange(kinds))
        past.find()
    assert len(looked) <= 8 * 1000


def test_a_long_context_is_held_in_little_memory():
    dice = random.Random(1)
    tokens = [dice.randrange(30_000) for _ in range(20_000)]
    tracemalloc.start()
    try:
        past = past_of(tokens)
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


def test_a_prompt_is_read_in_chunks_and_picked_from():
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


def test_a_match_is_followed_as_far_as_its_like_have_been_right():
    request, drafter = drafting([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2])
    asked = []
    shape = DrafterChosenChain(15, lambda alpha: asked.append(alpha) or round(10 * alpha))

    def length():
        return len(drafter.propose([request], [shape])[0])

    first = length()
    for _ in range(5):
        drafter.commit(request, drafter.propose([request], [shape])[0], [])
    assert length() < first
    assert asked == sorted(asked, reverse=True)
    refused = asked[-1]
    # a longer match is judged by itself
    request.tokens += [3, 4, 5, 6]
    length()
    assert asked[-1] > 0.6 > refused


def test_matches_that_never_pay_are_tried_now_and_then():
    request, drafter = drafting([1, 2, 3, 1])
    lengths = [
        len(drafter.propose([request], [DrafterChosenChain(15, lambda alpha: 0)])[0]) for _ in range(32)
    ]
    assert [n for n in lengths if n] == [2, 2]


def test_requests_do_not_see_each_others_past():
    one, other = (sequence(tokens, slot=i, method="ngram") for i, tokens in enumerate(([1, 2, 1], [1, 3, 1])))
    drafter = NgramDrafter()
    assert drafter.begin(one)
    assert drafter.begin(other)
    trees = drafter.propose([one, other], [chain(1)] * 2)
    assert [tree.tokens for tree in trees] == [[2], [3]]
    drafter.end(one)
    assert drafter.begin(sequence([1, 4, 1], slot=0, method="ngram"))


def test_no_engine_is_without_it(checkpoint):
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
def test_a_hundred_thousand_tokens_are_looked_up_at_an_even_pace(record_property):
    """Processor seconds of the first and the last tenth of a long sequence, ten thousand tokens each."""
    dice, past, taken = random.Random(2), NgramIndex(), []
    text = [dice.randrange(2000) for _ in range(500)]
    for _ in range(10):
        begun = time.process_time()
        for _ in range(10_000):
            past.append(dice.choice(text) if dice.random() < 0.3 else text[len(past.tokens) % 500])
            past.find()
        taken.append(time.process_time() - begun)
    record_property("microseconds_a_token", [round(1e2 * seconds, 1) for seconds in taken])
    print(f"microseconds a token, by tenth: {[round(1e2 * seconds, 1) for seconds in taken]}")
