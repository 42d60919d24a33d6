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
ASKED["all"] = {name: value for requested in ASKED.values() for name, value in requested.items()}


def logits(vocab=VOCAB):
    return torch.randn(len(PATHS), vocab, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2


def processor_of(params, prompt=PROMPT):
    """Return the logits processor of a request, built without a tokenizer."""
    weights = LogitPenalties(params, prompt) if LogitPenalties.needed(params) else None
    words = BAD if params.bad_words else ()
    masks = TokenMasks(ENDS, params.min_tokens, words, prompt) if words or params.min_tokens else None
    return RequestLogitsProcessor(weights, masks)


def expected(row, params, answer):
    """Return a row processed by transformers' processors and OpenAI's formula."""
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
def test_each_tree_row_equals_that_of_plain_decoding(name, vocab):
    params, rows = SamplingParams(**ASKED[name]), logits(vocab)
    logits_processor, untouched = processor_of(params), rows.clone()
    for taken in range(len(ANSWER) + 1):
        got = logits_processor.process(rows, PATHS)
        for row, path in enumerate(PATHS):
            wanted = expected(rows[row], params, [*ANSWER[:taken], *path])
            torch.testing.assert_close(got[row], wanted, atol=1e-14, rtol=0)
        for token in ANSWER[taken : taken + 1]:
            logits_processor.take(token)
    assert torch.equal(rows, untouched)
    assert not torch.equal(got, rows)
    assert not logits_processor.ended


def test_the_bias_is_added_before_the_repetition_penalty():
    params = SamplingParams(logit_bias={3: 2.0}, repetition_penalty=2.0, presence_penalty=0.5)
    logits_processor = processor_of(params)
    logits_processor.take(3)
    rows = torch.full((1, VOCAB), -1.0)
    assert logits_processor.process(rows, [[]])[0, 3] == (-1.0 + 2.0) / 2.0 - 0.5
    assert logits_processor.process(rows, [[]])[0, 9] == -2.0


def test_half_precision_logits_are_processed_in_float32():
    logits_processor = processor_of(SamplingParams(frequency_penalty=0.001))
    logits_processor.take(4)
    rows = torch.full((1, VOCAB), 100.0, dtype=torch.bfloat16)
    got = logits_processor.process(rows, [[4]])
    assert got.dtype == torch.float32
    assert got[0, 4] == pytest.approx(99.998, abs=1e-5)


def test_padding_ids_beyond_the_vocabulary_are_unchanged():
    logits_processor = processor_of(SamplingParams(**ASKED["all"]))
    got = logits_processor.process(logits(VOCAB + 4), PATHS)
    assert torch.equal(got[:, VOCAB:], logits(VOCAB + 4)[:, VOCAB:])
    assert torch.equal(got[:, :VOCAB], logits_processor.process(logits(VOCAB + 4)[:, :VOCAB], PATHS))


def test_penalties_do_not_depend_on_when_tokens_were_added():
    """Tokens are in the prompt, or are added singly or several at a time between calls."""
    tokens = torch.randperm(400, generator=torch.Generator().manual_seed(2)).tolist()
    params = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.25)
    logits_processor, rows = RequestLogitsProcessor(LogitPenalties(params, tokens[:40])), logits(400)[:1]
    for i, token in enumerate(tokens[20:250]):
        logits_processor.take(token)
        if i % 3 == 0 or i > 220:
            got = logits_processor.process(rows, [[]])
    whole = RequestLogitsProcessor(LogitPenalties(params, tokens[:40]))
    for token in tokens[20:250]:
        whole.take(token)
    assert torch.equal(logits_processor.process(rows, [[]]), whole.process(rows, [[]]))
    assert (got != rows).sum() == 250


def test_a_processors_state_does_not_grow_with_the_answer():
    logits_processor = processor_of(SamplingParams(**ASKED["all"]))
    for step in range(500):
        logits_processor.take(step % VOCAB)
    assert len(logits_processor.masks._tail) == 3
    logits_processor.process(logits(), PATHS)
    logits_processor.take(3)
    ((_, costs),) = logits_processor.penalties._tables.values()
    assert costs.stale == {3}


def test_a_bad_word_may_begin_in_the_prompt_or_on_the_path():
    logits_processor = processor_of(SamplingParams(bad_words=["stands for BAD"]))
    rows = torch.zeros(3, VOCAB)
    forbidden = [
        set(row.isinf().nonzero().flatten().tolist())
        for row in logits_processor.process(rows, [[], [5], [2, 1, 1]])
    ]
    assert forbidden == [{0, 4, 1}, {0, 4, 2}, {0, 4, 3, 10}]


def test_a_processor_works_inside_and_outside_inference_mode():
    logits_processor = processor_of(SamplingParams(**ASKED["all"]))
    with torch.inference_mode():
        inside = logits_processor.process(logits(), PATHS)
    logits_processor.take(3)
    outside = logits_processor.process(logits(), PATHS)
    assert not torch.equal(inside, outside)


def test_min_tokens_without_end_tokens_masks_nothing():
    masks = TokenMasks((), 5, (), PROMPT)
    rows = logits()
    masks.apply(rows, PATHS)
    assert torch.equal(rows, logits())
