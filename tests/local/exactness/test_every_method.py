"""Every method against plain decoding: greedy tokens, caches, and seeded answers."""

from __future__ import annotations

import gzip
import itertools
import json
import random

import pytest
import torch
from paths import SHARED_DATA
from specclient_local.api.backend import BUNDLED
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.union import UnionDrafter
from specclient_local.engine.engine import Engine
from specclient_local.loading.drafter_set import layer_skip_runner
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.training.corpus import split_modules
from tiny_models import load, noisy_copy, run, sequence, write_checkpoint

METHODS = ("draft", "ngram", "suffix", "prediction", "layer_skip", "union")
TREES = (None, (3, 2, 1), (2, 2), (8, 3), "grow")
NEW = 24


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Write a target with three layers, and two drafts, which are the target with noise in its weights."""
    folder = tmp_path_factory.mktemp("every")
    target = write_checkpoint(folder / "t", seed=1, spread=0.2, eos_token_id=None, num_hidden_layers=3)
    return target, noisy_copy(target, folder / "a", 0.02), noisy_copy(target, folder / "b", 0.03)


@pytest.fixture(scope="module")
def engine(folders):
    target, *drafts = folders
    with load(target, drafts, layer_skip=2, slots=4) as engine:
        assert engine.method == "union"
        yield engine


PROMPTS = [[5, 6, 7, 8, 5, 6], [9] * 8, [11, 12, 13], [2, 3, 2, 3, 2, 3, 2]]


@pytest.fixture(scope="module")
def plain(engine):
    return [engine.generate(prompt, max_tokens=NEW, method="plain").token_ids for prompt in PROMPTS]


def generate_batched(engine, requests):
    """Run requests in one batch, and return their generations."""
    answers = []
    for prompt, params in requests:
        answers.append([])
        engine.add(prompt, answers[-1].append, **params)
    while engine.step():
        pass
    for events in answers:
        assert not isinstance(events[-1], BaseException), events[-1]
    return [events[-1].generation for events in answers]


def greedy_params(method, length, expected, **more):
    """Return the parameters of a greedy request; half of its prediction is right."""
    params = {"max_tokens": NEW, "method": method, "draft_length": length, **more}
    if method == "prediction":
        params["prediction"] = [*expected[: NEW // 2], 1, *expected[NEW // 2 :]]
    return params


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("method", METHODS)
def test_greedy_answers_of_every_method_equal_plain_decoding(engine, plain, method, batch):
    kept = 0
    for turn, length in enumerate((*range(1, 9), None, "step")):
        at = [(turn + i) % 4 for i in range(batch)]
        requests = [(PROMPTS[i], greedy_params(method, length, plain[i])) for i in at]
        for i, answer in zip(at, generate_batched(engine, requests), strict=True):
            assert answer.token_ids == plain[i], f"{method}, draft length {length}, prompt {i}"
            assert answer.speculation.method == method
            kept += (answer.speculation.accepted or 0) + (answer.speculation.predicted_accepted or 0)
    assert kept > 10 * batch


@pytest.mark.parametrize("tree", TREES[1:], ids=str)
def test_greedy_tree_answers_equal_plain_decoding(engine, plain, tree):
    """Requests of all methods run in one batch, and alone."""
    kept = 0
    for length in (1, 3, None):
        requests = [
            (prompt, greedy_params(method, length, tokens, draft_tree=tree))
            for prompt, tokens, method in zip(PROMPTS, plain, ("draft", "union", "layer_skip"), strict=False)
        ]
        together = generate_batched(engine, requests)
        alone = [generate_batched(engine, [request])[0] for request in requests]
        for answers in (together, alone):
            for answer, tokens in zip(answers, plain, strict=False):
                assert answer.token_ids == tokens, f"draft length {length}"
                kept += answer.speculation.accepted
    assert kept > 4 * NEW


def test_a_tree_larger_than_a_requests_share_of_a_pass_gives_plain_decodings_answer(folders):
    """The tree has more rows than a request may have in a shared pass, and the answer fills the context."""
    with load(folders[0], folders[1], slots=1) as engine:
        prompt = [7, 8, 9] * 4
        plain = engine.generate(prompt, max_tokens=None, method="plain").token_ids
        wide = engine.generate(prompt, max_tokens=None, method="draft", draft_tree=(7, 8), draft_length=2)
    assert len(plain) == 128 - 12
    assert wide.token_ids == plain
    assert wide.speculation.drafted > MAX_ROWS_PER_REQUEST * wide.speculation.steps


@pytest.mark.parametrize("tree", [None, "grow"], ids=str)
def test_a_seed_gives_the_same_answer_in_any_batch(engine, tree):
    settings = {"temperature": 1.0, "seed": 7, "max_tokens": NEW}
    requests = [
        (PROMPTS[0], {**settings, "method": method, "draft_tree": tree, "draft_length": length})
        for method, length in itertools.product(("plain", "draft", "ngram", "layer_skip", "union"), (None, 3))
    ]
    predicted = [*engine.generate(PROMPTS[0], max_tokens=NEW).token_ids]
    requests.append((PROMPTS[0], {**settings, "prediction": predicted}))
    alone = [generate_batched(engine, [request])[0].token_ids for request in requests]
    others = [(prompt, {"max_tokens": NEW, "temperature": 1.0}) for prompt in PROMPTS[1:]]
    for i in range(0, len(requests), 2):
        together = generate_batched(engine, [*requests[i : i + 2], *others])
        own = alone[i : i + 2]
        assert [answer.token_ids for answer in together[: len(own)]] == own


def drafters(target, folders):
    """Return each method's drafter over the same models, and the runners whose caches it fills."""
    drafts = [
        DecoderRunner.load(folder, dtype="float32", slots=1, context=128, exact=False)
        for folder in folders[1:]
    ]
    models = [DraftModel(draft, 300) for draft in drafts]
    skips = layer_skip_runner(target, (0, 1), 1)
    return {
        "draft": (models[0], drafts[:1]),
        "layer_skip": (DraftModel(skips, 300), [skips]),
        "union": (UnionDrafter(models, NgramDrafter()), drafts),
    }


@pytest.mark.parametrize("method", ["draft", "layer_skip", "union"])
def test_caches_equal_a_fresh_prefill_after_rejected_tokens(folders, method):
    rng = random.Random(5)
    target = DecoderRunner.load(folders[0], dtype="float32", slots=1, context=128)
    drafter, runners = drafters(target, folders)[method]
    speculator, accepted = Speculator(target, {method: drafter}), 0
    for seed, tree in enumerate(TREES * 2):
        request = sequence(
            [rng.randrange(2, 300) for _ in range(6)],
            method=method,
            max_tokens=30,
            temperature=rng.choice([0.0, 0.7]),
            seed=seed,
            draft_length=rng.randrange(1, 5),
            draft_tree=tree,
        )
        run(speculator, request)
        accepted += request.counts.accepted
        kept = [
            (runner, runner.length(0), runner.cache.rows[:, 0, :, : runner.length(0)].clone())
            for runner in (target, *runners)
        ]
        speculator.end(request)
        for runner, length, used in kept:
            assert length >= len(request.tokens) - 8
            runner.truncate(0, 0)
            runner.prefill(0, request.tokens[:length])
            torch.testing.assert_close(runner.cache.rows[:, 0, :, :length], used, atol=1e-5, rtol=0)
            runner.truncate(0, 0)
    assert accepted > 20


def test_speculation_figures_of_trees_count_nodes_and_are_per_depth(engine):
    answer = engine.generate(PROMPTS[0], max_tokens=NEW, method="draft", draft_tree=(3, 2), draft_length=2)
    speculation = answer.speculation
    assert speculation.method == "draft"
    assert len(speculation.per_position) == 2
    assert speculation.drafted > 2 * speculation.steps
    assert 0 < speculation.accepted <= 2 * speculation.steps
    assert speculation.acceptance_rate == speculation.accepted / speculation.drafted
    assert speculation.mean_accepted_length == 1 + speculation.accepted / speculation.steps
    first, second = speculation.per_position
    assert 0 < second <= first <= 1


def long_prompts(engine, count):
    """Return held-out library code, and HumanEval prompts and prose if available, cut to 32 to 64 tokens."""
    rng, texts = random.Random(0), []
    sources = [module.text for module in split_modules("heldout")]
    for _ in range(4 * count):
        lines = rng.choice(sources).splitlines(keepends=True)
        texts.append("".join(lines[rng.randrange(len(lines)) :][:40]))
    data = SHARED_DATA
    if (data / "HumanEval.jsonl.gz").is_file():
        with gzip.open(data / "HumanEval.jsonl.gz", "rt") as file:
            texts[: 4 * count // 3] = [json.loads(line)["prompt"] for line in file]
    if (data / "spec_bench_question.jsonl").is_file():
        lines = (data / "spec_bench_question.jsonl").read_text().splitlines()
        texts[: count // 3] = [json.loads(line)["turns"][0] for line in lines[:: max(1, len(lines) // count)]]
    rng.shuffle(texts)
    cuts = ((engine.tokenizer.encode(text), rng.randint(32, 64)) for text in texts)
    return [ids[:length] for ids, length in cuts if len(ids) > length][:count]


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("batch", [1, 4])
def test_greedy_answers_of_the_bundled_pair_equal_plain_decoding(batch):
    with Engine.load(BUNDLED / "target", BUNDLED / "draft", layer_skip=3, threads=1) as engine:
        prompts = long_prompts(engine, 200)
        assert len(prompts) == 200
        plain = [engine.generate(prompt, max_tokens=NEW, method="plain").token_ids for prompt in prompts]
        for method, length in itertools.product(METHODS, range(1, 9)):
            for first in range(0, len(prompts), batch):
                at = range(first, first + batch)
                answers = generate_batched(
                    engine, [(prompts[i], greedy_params(method, length, plain[i])) for i in at]
                )
                for i, answer in zip(at, answers, strict=True):
                    assert answer.token_ids == plain[i], f"{method}, draft length {length}, prompt {i}"
