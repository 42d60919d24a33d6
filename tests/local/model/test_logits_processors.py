"""Biases, penalties and masks, against transformers' processors and OpenAI's formula, along every path."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from specclient_local.model.logits_processors import LogitPenalties, RequestLogitsProcessor, TokenMasks
from specclient_local.request.params import SamplingParams

VOCAB = 12
PROMPT = [3, 5, 5, 9]
ANSWER = [1, 5, 2, 1]
ENDS = (0, 11)
PATHS = [[], [1], [7], [1, 1], [1, 4], [7, 5], [1, 1, 8], [7, 5, 5]]
BAD = [(4,), (5, 2), (1, 1, 3), (9, 1), (2, 1, 1, 10), (0,)]

ASKED = {
    "logit_bias": {"logit_bias": {2: 1.5, 7: -100.0, 1: 0.25, 8: 0.5, 10: 4.0}},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "a repetition penalty that rewards": {"repetition_penalty": 0.6},
    "presence_penalty": {"presence_penalty": 1.25},
    "frequency_penalty": {"frequency_penalty": -0.75},
    "min_tokens": {"min_tokens": 6},
    "bad_words": {"bad_words": ["stands for BAD"]},
}
ASKED["all"] = {name: value for asked in ASKED.values() for name, value in asked.items()}


def logits(vocab=VOCAB):
    return torch.randn(len(PATHS), vocab, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2


def rules_of(params, prompt=PROMPT):
    """The rules of a request, without a tokenizer around them."""
    weights = LogitPenalties(params, prompt) if LogitPenalties.needed(params) else None
    words = BAD if params.bad_words else ()
    masks = TokenMasks(ENDS, params.min_tokens, words, prompt) if words or params.min_tokens else None
    return RequestLogitsProcessor(weights, masks)


def expected(row, params, answer):
    """One row as transformers' processors have it, and OpenAI's formula."""
    from transformers import (
        MinNewTokensLengthLogitsProcessor,
        NoBadWordsLogitsProcessor,
        RepetitionPenaltyLogitsProcessor,
        SequenceBiasLogitsProcessor,
    )

    ids, given = torch.tensor([[*PROMPT, *answer]]), len(row)
    row = torch.nn.functional.pad(row[None], (0, VOCAB - given))
    if params.logit_bias:
        row = SequenceBiasLogitsProcessor({(t,): b for t, b in params.logit_bias.items()})(ids, row)
    row = RepetitionPenaltyLogitsProcessor(params.repetition_penalty)(ids, row)
    for token, count in Counter(answer).items():
        row[0, token] -= params.frequency_penalty * count + params.presence_penalty
    if params.bad_words:
        row = NoBadWordsLogitsProcessor([[*word] for word in BAD])(ids, row)
    row = MinNewTokensLengthLogitsProcessor(len(PROMPT), params.min_tokens, list(ENDS))(ids, row)
    return row[0, :given]


@pytest.mark.parametrize("vocab", [VOCAB, 9], ids=["whole", "a draft's fewer ids"])
@pytest.mark.parametrize("name", ASKED)
def test_each_row_is_what_plain_decoding_sees_there(name, vocab):
    params, rows = SamplingParams(**ASKED[name]), logits(vocab)
    rules, untouched = rules_of(params), rows.clone()
    for taken in range(len(ANSWER) + 1):
        got = rules.process(rows, PATHS)
        for row, path in enumerate(PATHS):
            wanted = expected(rows[row], params, [*ANSWER[:taken], *path])
            torch.testing.assert_close(got[row], wanted, atol=1e-14, rtol=0)
        for token in ANSWER[taken : taken + 1]:
            rules.take(token)
    assert torch.equal(rows, untouched)
    assert not torch.equal(got, rows)
    assert not rules.ended


def test_a_bias_is_added_before_the_repetition_penalty_scales():
    params = SamplingParams(logit_bias={3: 2.0}, repetition_penalty=2.0, presence_penalty=0.5)
    rules = rules_of(params)
    rules.take(3)
    rows = torch.full((1, VOCAB), -1.0)
    assert rules.process(rows, [[]])[0, 3] == (-1.0 + 2.0) / 2.0 - 0.5
    assert rules.process(rows, [[]])[0, 9] == -2.0


def test_half_precision_is_shaped_in_single():
    rules = rules_of(SamplingParams(frequency_penalty=0.001))
    rules.take(4)
    rows = torch.full((1, VOCAB), 100.0, dtype=torch.bfloat16)
    got = rules.process(rows, [[4]])
    assert got.dtype == torch.float32
    assert got[0, 4] == pytest.approx(99.998, abs=1e-5)


def test_ids_that_only_pad_the_logits_stay_as_they_are():
    rules = rules_of(SamplingParams(**ASKED["all"]))
    got = rules.process(logits(VOCAB + 4), PATHS)
    assert torch.equal(got[:, VOCAB:], logits(VOCAB + 4)[:, VOCAB:])
    assert torch.equal(got[:, :VOCAB], rules.process(logits(VOCAB + 4)[:, :VOCAB], PATHS))


def test_any_number_of_different_tokens_is_penalised_however_they_came():
    """Some stand in the prompt, some come one by one, between rounds and several a round."""
    tokens = torch.randperm(400, generator=torch.Generator().manual_seed(2)).tolist()
    params = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.25)
    rules, rows = RequestLogitsProcessor(LogitPenalties(params, tokens[:40])), logits(400)[:1]
    for i, token in enumerate(tokens[20:250]):
        rules.take(token)
        if i % 3 == 0 or i > 220:
            got = rules.process(rows, [[]])
    whole = RequestLogitsProcessor(LogitPenalties(params, tokens[:40]))
    for token in tokens[20:250]:
        whole.take(token)
    assert torch.equal(rules.process(rows, [[]]), whole.process(rows, [[]]))
    assert (got != rows).sum() == 250


def test_what_is_kept_does_not_grow_with_the_answer():
    rules = rules_of(SamplingParams(**ASKED["all"]))
    for step in range(500):
        rules.take(step % VOCAB)
    assert len(rules.masks._tail) == 3
    rules.process(logits(), PATHS)
    rules.take(3)
    ((_, costs),) = rules.penalties._tables.values()
    assert costs.stale == {3}


def test_a_bad_word_may_begin_in_the_prompt_and_on_the_path():
    rules = rules_of(SamplingParams(bad_words=["stands for BAD"]))
    rows = torch.zeros(3, VOCAB)
    forbidden = [
        set(row.isinf().nonzero().flatten().tolist()) for row in rules.process(rows, [[], [5], [2, 1, 1]])
    ]
    assert forbidden == [{0, 4, 1}, {0, 4, 2}, {0, 4, 3, 10}]


def test_rules_may_be_asked_inside_inference_mode_and_outside():
    rules = rules_of(SamplingParams(**ASKED["all"]))
    with torch.inference_mode():
        inside = rules.process(logits(), PATHS)
    rules.take(3)
    outside = rules.process(logits(), PATHS)
    assert not torch.equal(inside, outside)


def test_without_end_tokens_a_minimum_masks_nothing():
    masks = TokenMasks((), 5, (), PROMPT)
    rows = logits()
    masks.apply(rows, PATHS)
    assert torch.equal(rows, logits())
