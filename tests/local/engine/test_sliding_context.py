"""overflow="slide": when the context is full, generation continues as a new request over its newest half."""

from __future__ import annotations

import pytest
from tiny_models import load

from specclient.errors import BadRequestError, ContextOverflowError

WINDOW = 48


@pytest.fixture(scope="module")
def engine(checkpoint):
    shape = {"eos_token_id": None, "spread": 0.2}
    with load(checkpoint(**shape), checkpoint(**shape, seed=3), slots=3, context=WINDOW) as engine:
        yield engine


def generate_by_definition(engine, prompt, count, **params):
    """Generate by the definition: whenever the context is full, send its newest half as a new request."""
    context, generated = list(prompt), []
    while len(generated) < count:
        if len(context) >= WINDOW:
            context = context[-(WINDOW - WINDOW // 2) :]
        more = engine.generate(
            context, max_tokens=min(WINDOW - len(context), count - len(generated)), **params
        )
        generated += more.token_ids
        context += more.token_ids
    return generated


@pytest.mark.parametrize("prompt", [[5], list(range(2, 45)), list(range(2, 50)), list(range(2, 150))])
def test_a_sliding_answer_equals_new_requests_over_the_newest_half(engine, prompt):
    want = generate_by_definition(engine, prompt, 120, method="plain")
    for method in set(engine.methods) - {"prediction"}:
        got = engine.generate(prompt, max_tokens=120, method=method, draft_length=4, overflow="slide")
        assert got.token_ids == want, method
        assert (got.prompt_token_ids, got.prompt_tokens) == (prompt, len(prompt))
        assert got.finish_reason == "length"
    got = engine.generate(prompt, max_tokens=120, prediction=want, overflow="slide")
    assert got.token_ids == want
    assert engine.tokenizer.decode(want) == got.text


def test_sampled_and_penalised_sliding_answers_do_not_depend_on_the_batch(engine):
    requests = [
        ([7 + i] * (5 + 40 * i), {"temperature": 0.9, "seed": i, "repetition_penalty": 1.2, "logprobs": 1})
        for i in range(4)
    ]
    sinks = [[] for _ in requests]
    for (prompt, params), sink in zip(requests, sinks, strict=True):
        engine.add(prompt, sink.append, max_tokens=100, overflow="slide", **params)
    while engine.step():
        pass
    for (prompt, params), sink in zip(requests, sinks, strict=True):
        alone = engine.generate(prompt, max_tokens=100, overflow="slide", **params)
        got = sink[-1].generation
        assert (got.token_ids, got.logprobs) == (alone.token_ids, alone.logprobs)
        assert [i for piece in sink for i in piece.token_ids] == got.token_ids
        assert len(got.logprobs) == len(got.token_ids) == 100
    assert sorted(engine._worker.batch.scheduler._free) == [0, 1, 2]


def test_sliding_changes_no_answer_that_fits_the_context(engine):
    want = engine.generate([5, 6], max_tokens=46)
    assert engine.generate([5, 6], max_tokens=46, overflow="slide").token_ids == want.token_ids


def test_sliding_is_opt_in_and_requires_max_tokens(engine):
    with pytest.raises(ContextOverflowError, match="overflow='slide'"):
        engine.generate([5], max_tokens=48)
    with pytest.raises(
        BadRequestError, match="max_tokens is None; allowed is a number if overflow is 'slide'"
    ):
        engine.generate([5], max_tokens=None, overflow="slide")
    with pytest.raises(BadRequestError, match="overflow is 'wrap'; allowed is 'error' or 'slide'"):
        engine.generate([5], overflow="wrap")
    with pytest.raises(ContextOverflowError):  # a truncated prompt cannot be scored completely
        engine.generate([5] * 60, max_tokens=2, prompt_logprobs=1, overflow="slide")


def test_min_tokens_and_stops_count_over_the_whole_answer(engine):
    free = engine.generate([5], max_tokens=100, overflow="slide")
    stop = free.text[60:66]
    assert stop
    at = free.text.index(stop)
    got = engine.generate([5], max_tokens=100, overflow="slide", stop=stop)
    assert got.finish_reason == "stop"
    assert got.text == free.text[:at]
    late = engine.tokenizer.decode(free.token_ids[85:88])
    ended = engine.generate([5], max_tokens=100, overflow="slide", stop=late, min_tokens=60)
    assert ended.finish_reason == "stop"
    assert 60 <= len(ended.token_ids) <= 88
