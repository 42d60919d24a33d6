"""Mixed requests in one batch, some cancelled: answers equal those of single requests; state is freed."""

from __future__ import annotations

import random

import pytest
from tiny_models import load

CONTEXT = 700
PREFIXES = [[(7 * i * i + stem) % 298 + 2 for i in range(640)] for stem in range(4)]


def random_request(rng, seed, methods):
    """Return a random prompt and parameters: any method, any logits parameters, with and without scoring."""
    prompt = rng.choice(PREFIXES)[: rng.choice([1, 3, 30, 255, 256, 257, 600])]
    prompt = [*prompt, *(rng.randrange(2, 300) for _ in range(rng.choice([0, 0, 1, 9])))]
    params = {
        "max_tokens": rng.choice([0, 1, 2, 12]),
        "prompt_logprobs": rng.choice([None, None, 0, 3]),
        "logprobs": rng.choice([None, 2]),
        "method": rng.choice([None, *methods]),
        "temperature": rng.choice([0.0, 0.0, 0.8]),
        "seed": seed,
    } | logits_parameters(rng)
    if params["prompt_logprobs"] is None:
        params["max_tokens"] = max(1, params["max_tokens"])
        if rng.random() < 0.15:
            params |= {"overflow": "slide", "max_tokens": rng.choice([60, 120])}
    if params["temperature"] == 0.0:
        params["draft_length"] = rng.choice([None, 0, 3, 8, "step"])
        params["draft_tree"] = rng.choice([None, None, (2, 2, 1), "grow"])
    if params["method"] == "prediction" or (params["method"] is None and rng.random() < 0.4):
        params["prediction"] = [rng.randrange(2, 300) for _ in range(20)]
    return prompt, params


def logits_parameters(rng):
    """Return random parameters that change logits, for some of the requests."""
    rules = {
        "top_p": 0.9,
        "top_k": 30,
        "min_p": 0.05,
        "typical_p": 0.9,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.7,
        "frequency_penalty": -0.4,
        "logit_bias": {rng.randrange(300): 4.0},
        "bad_words": ["a", "th"],
        "stop_token_ids": [rng.randrange(300)],
    }
    return {name: rules[name] for name in rules if rng.random() < 0.12}


def may_branch(params):
    """Return whether a request's trees may branch, depending on the load.

    In torch's passes, a drafted token in a branch has another cache position than in a chain, so sums over
    the cache differ in their last bits: the tokens are equal, but log-probabilities only approximately.
    """
    settled = params["temperature"] > 0.0 or params["method"] in ("plain", "ngram", "prediction")
    return not settled and (params["draft_tree"] is not None or not isinstance(params["draft_length"], int))


def cancel_some(engine, rng, cancellable):
    """Cancel some of these requests, and check that they receive no further events."""
    for number, received in cancellable:
        if rng.random() < 0.3:
            engine.cancel(number)
            engine.step()
            before = len(received)
            assert number not in engine._worker.jobs
            engine.step()
            assert len(received) == before
    return [(number, received) for number, received in cancellable if number in engine._worker.jobs]


@pytest.mark.parametrize(
    "count", [20, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])]
)
def test_batched_requests_get_the_answers_they_get_alone(checkpoint, count):
    shape = {"max_position_embeddings": 1024, "spread": 0.2, "eos_token_id": None}
    target = checkpoint(**shape)
    drafts = [checkpoint(**shape | {"max_position_embeddings": 512}, seed=3), checkpoint(**shape, seed=4)]
    options = {"context": CONTEXT, "layer_skip": 1}
    with (
        load(target, drafts, slots=3, **options) as engine,
        load(target, drafts, slots=1, prefix_cache=False, **options) as alone,
    ):
        rng = random.Random(0)
        requests = [(*random_request(rng, seed, engine.methods), []) for seed in range(count)]
        waiting, cancellable = requests[::-1], []
        while waiting or engine.unfinished:
            for prompt, params, events in waiting[len(waiting) - rng.choice([0, 0, 0, 1, 2, 5]) :][::-1]:
                waiting.pop()
                engine.add(prompt, events.append, **params)
                if rng.random() < 0.25:
                    received = []
                    cancellable.append((engine.add(prompt, received.append, **params), received))
            cancellable = cancel_some(engine, rng, cancellable)
            engine.step()
        drafting = {"draft_length", "draft_tree", "prediction", "method"}
        for prompt, params, events in requests:
            got, want = events[-1].generation, alone.generate(prompt, **params)
            assert (got.token_ids, got.scored) == (want.token_ids, want.scored), params
            if may_branch(params) and not engine.speculator.target.decoder.exact_rows:
                pairs = zip(got.logprobs or [], want.logprobs or [], strict=True)
                assert all(abs(one.logprob - other.logprob) < 1e-5 for one, other in pairs), params
            else:
                assert got.logprobs == want.logprobs, params
            if params["temperature"] == 0.0:
                rest = {name: value for name, value in params.items() if name not in drafting}
                plain = alone.generate(prompt, **rest, method="plain")
                assert got.token_ids == plain.token_ids, params
        answered = [events[-1].generation for _, _, events in requests]
        assert sum(len(answer.token_ids) for answer in answered) > 5 * count
        assert sum(answer.cached_tokens for answer in answered) > 10 * count
        used = {answer.speculation.method for answer in answered}
        assert len(used) > 3 if count < 100 else used == set(engine.methods)
        assert not engine._speculator._length_policies
        assert not engine._speculator.drafters["prediction"]._places
        assert sorted(engine._worker.batch.scheduler._free) == [0, 1, 2]
