"""Greedy answers of the bundled target against transformers: each token is the most likely, up to ties."""

from __future__ import annotations

import pytest
import torch
from prompt_sets import prompts
from specclient_local.api.backend import BUNDLED
from specclient_local.engine.engine import Engine

TARGET = BUNDLED / "target"
TIE = 1e-4
"""The largest difference of logits that counts as a tie: between two libraries, float32 sums of a few hundred
products differ by this much, so rounding may order them either way."""


@pytest.fixture(scope="module")
def engine():
    # Fewer slots than prompts, so that requests share passes.
    with Engine.load(TARGET, BUNDLED / "draft", threads=1, slots=4) as engine:
        yield engine


@pytest.fixture(scope="module")
def reference():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()


def generate_batched(engine, ids, **params):
    """Return the answers to prompts of token ids, run in batches of the engine's slots."""
    events = [[] for _ in ids]
    for one, received in zip(ids, events, strict=True):
        engine.add(one, received.append, **params)
    while engine.step():
        pass
    return [received[-1].generation.token_ids for received in events]


@torch.inference_mode()
def gaps(model, prompt, answer):
    """Score an answer with transformers in one forward.

    Returns:
        For each token that is not the most likely one, its index and the difference to the largest logit.
    """
    logits = model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    below = logits.max(-1).values - logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    return [(place, float(gap)) for place, gap in enumerate(below) if gap > 0.0]


def generated(model, prompt, new):
    """Return the greedy answer that transformers generates."""
    ids = torch.tensor([prompt])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0
    )
    return made[0, len(prompt) :].tolist()


def first_difference(model, prompt, ours, theirs):
    """Return the index of the first difference and its logit difference; None if the answers are equal."""
    at = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        assert len(ours) == len(theirs), "one is a prefix of the other"
        return None
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *theirs[:at]]])).logits[0, -1]
    return at, abs(float(logits[ours[at]] - logits[theirs[at]]))


def test_every_greedy_token_is_transformers_most_likely_token(engine, reference, record_property):
    chosen = prompts()[:42]
    ids = [prompt.ids(engine.tokenizer, 48) for prompt in chosen]
    assert {prompt.kind for prompt in chosen} == {"library", "humaneval", "prose"}
    ties = 0
    for prompt, given, answer in zip(chosen, ids, generate_batched(engine, ids, max_tokens=20), strict=True):
        assert answer
        for place, gap in gaps(reference, given, answer):
            assert gap < TIE, f"{prompt.id}: token {place} is {gap:.2e} below the most likely"
            ties += 1
    record_property("ties", ties)
    print(f"{ties} ties over {len(chosen)} prompts")
    assert ties <= 2


@pytest.mark.parametrize("kind", ["library", "humaneval", "prose"])
def test_greedy_answers_equal_those_of_transformers(engine, reference, kind):
    chosen = [prompt for prompt in prompts() if prompt.kind == kind][-1:]
    for prompt in chosen:
        given = prompt.ids(engine.tokenizer)
        theirs = generated(reference, given, 32)
        for method in ("plain", "draft"):
            ours = engine.generate(given, max_tokens=32, method=method).token_ids
            parted = first_difference(reference, given, ours, theirs)
            assert parted is None or parted[1] < TIE, f"{prompt.id}, {method}: {parted}"


def test_the_comparison_detects_a_wrong_token(engine, reference):
    given = prompts()[0].ids(engine.tokenizer)
    answer = engine.generate(given, max_tokens=12).token_ids
    wrong = [*answer[:6], (answer[6] + 1) % 4096, *answer[7:]]
    assert max(gap for _, gap in gaps(reference, given, wrong)) > TIE
    at, gap = first_difference(reference, given, wrong, answer)
    assert (at, gap > TIE) == (6, True)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_greedy_answers_equal_those_of_transformers(engine, reference):
    ids = [prompt.ids(engine.tokenizer) for prompt in prompts()]
    theirs = [generated(reference, given, 128) for given in ids]
    ties = {}
    for method in engine.methods:
        if method == "prediction":
            continue
        answers = generate_batched(engine, ids, max_tokens=128, method=method)
        for prompt, given, ours, wanted in zip(prompts(), ids, answers, theirs, strict=True):
            parted = first_difference(reference, given, ours, wanted)
            assert parted is None or parted[1] < TIE, f"{prompt.id}, {method}: {parted}"
            if parted:
                ties[prompt.id, method] = parted
    print(f"{len(ids)} prompts, {len(ties)} near ties: {ties}")
    assert len(ties) <= 4 * len(engine.methods)
