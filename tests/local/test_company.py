"""Requests of every kind in one batch, some cancelled: each as alone, and nothing left behind."""

from __future__ import annotations

import random

import pytest
from local_kit import load


def asked(rng, seed):
    """A prompt and parameters at random: scored or not, predicted or not, greedy or sampled."""
    prompt = [rng.randrange(2, 300) for _ in range(rng.choice([1, 3, 30, 255, 256, 257, 600]))]
    params = {
        "max_tokens": rng.choice([0, 1, 2, 12]),
        "prompt_logprobs": rng.choice([None, 0, 3]),
        "logprobs": rng.choice([None, 2]),
        "method": rng.choice([None, "plain", "draft"]),
        "temperature": rng.choice([0.0, 0.0, 0.8]),
        "seed": seed,
    }
    if params["prompt_logprobs"] is None:
        params["max_tokens"] = max(1, params["max_tokens"])
    if params["temperature"] == 0.0:
        params["draft_length"] = rng.choice([None, 0, 3, 8])
    if rng.random() < 0.4:
        params["prediction"] = [rng.randrange(2, 300) for _ in range(20)]
    return prompt, params


@pytest.mark.parametrize(
    "count", [40, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])]
)
def test_each_request_is_answered_as_alone(checkpoint, count):
    target = checkpoint(max_position_embeddings=1024, spread=0.2, eos_token_id=None)
    draft = checkpoint(max_position_embeddings=512, spread=0.2, eos_token_id=None, seed=3)
    rng = random.Random(0)
    requests = [(*asked(rng, seed), []) for seed in range(count)]
    with load(target, draft, slots=3) as engine, load(target, draft, slots=1) as alone:
        waiting, given_up = requests[::-1], []
        while waiting or engine.unfinished:
            for prompt, params, events in waiting[len(waiting) - rng.choice([0, 0, 0, 1, 2, 5]) :][::-1]:
                waiting.pop()
                engine.add(prompt, events.append, **params)
                if rng.random() < 0.25:
                    heard = []
                    given_up.append((engine.add(prompt, heard.append, **params), heard))
            for number, heard in given_up:
                if rng.random() < 0.3:
                    engine.cancel(number)
                    engine.step()
                    before = len(heard)
                    assert number not in engine._worker.jobs
                    engine.step()
                    assert len(heard) == before
            given_up = [(number, heard) for number, heard in given_up if number in engine._worker.jobs]
            engine.step()
        for prompt, params, events in requests:
            got, want = events[-1].generation, alone.generate(prompt, **params)
            assert (got.token_ids, got.logprobs, got.scored) == (want.token_ids, want.logprobs, want.scored)
            if params["temperature"] == 0.0 and params["max_tokens"]:
                plain = alone.generate(prompt, max_tokens=params["max_tokens"], method="plain")
                assert got.token_ids == plain.token_ids, params
        assert sum(len(events[-1].generation.token_ids) for _, _, events in requests) > count
        assert not engine._speculator._lengths
        assert not engine._speculator.drafters["prediction"]._places
        assert len(engine._worker.batch.scheduler._free) == 3
