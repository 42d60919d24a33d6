"""Speculation against the target alone: sampled distributions, greedy tokens and caches."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import torch
from p_values import chi_square_p
from specclient_local.decoding import verify as walk
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting import union
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.prediction import PredictionDrafter
from specclient_local.drafting.suffix import SuffixDrafter
from specclient_local.drafting.union import UnionDrafter
from specclient_local.loading.drafter_set import layer_skip_runner
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.request.params import VERIFICATIONS
from specclient_local.request.token_tree import ROOT, TokenTree, without_token
from tiny_models import (
    as_table,
    distribution_of_rounds,
    letter_shape,
    load,
    noisy_copy,
    run,
    sequence,
    write_checkpoint,
)

VOCAB = 8
PROMPT = [3, 1, 4, 1, 5]
SAMPLES = 1000
FEWER = 500
"""Used for drafters whose distributions are also enumerated exactly."""
SLOTS = 10
"""Requests of a batch; a round of ten takes little longer than one of two."""


@pytest.fixture(scope="module")
def tiny_pair(tmp_path_factory):
    """Write a target and a draft over eight letters, of which about half the drafted tokens are accepted."""
    shape = letter_shape(VOCAB)
    folder = tmp_path_factory.mktemp("letters")
    return (
        write_checkpoint(folder / "target", seed=5, spread=0.25, **shape),
        write_checkpoint(folder / "draft", seed=6, spread=0.25, num_hidden_layers=1, **shape),
    )


def target_distribution(folder, temperature, top_p, top_k, prompt=PROMPT):
    """Return the target's exact distribution of two tokens, [V, V], computed with transformers' classes."""
    from transformers import (
        AutoModelForCausalLM,
        LogitsProcessorList,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    warp = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warp.append(TopKLogitsWarper(top_k))
    if top_p < 1.0:
        warp.append(TopPLogitsWarper(top_p))
    with torch.inference_mode():
        ids = torch.tensor([[*prompt, t] for t in range(VOCAB)])
        logits = model(input_ids=ids).logits.double()
        first = torch.softmax(warp(ids[:1], logits[0, -2][None]), -1)[0]
        second = torch.softmax(warp(ids, logits[:, -1]), -1)
    return (first[:, None] * second).numpy()


def sample(engine, samples=SAMPLES, **params):
    """Sample two-token continuations with the engine, one per seed, as many at a time as it has slots."""
    counts, last = np.zeros((VOCAB, VOCAB)), []
    for seed in range(samples):
        events = []
        engine.add(PROMPT, events.append, seed=seed, **params)
        last.append(events)
        if len(last) == SLOTS:
            while engine.step():
                pass
            for events in last:
                assert not isinstance(events[-1], BaseException), events[-1]
                first, second, *_ = events[-1].generation.token_ids
                counts[first, second] += 1
            last.clear()
    return counts, events[-1].generation.speculation


SETTINGS = {
    "cool": {"temperature": 0.6},
    "top-p": {"temperature": 1.0, "top_p": 0.8},
    "top-k": {"temperature": 1.3, "top_k": 3},
    "all": {"temperature": 0.9, "top_p": 0.9, "top_k": 5},
}


@pytest.mark.parametrize("rule", VERIFICATIONS)
@pytest.mark.parametrize("name", SETTINGS)
def test_sampled_continuations_follow_the_targets_distribution(tiny_pair, name, rule, record_property):
    settings = SETTINGS[name]
    distribution = target_distribution(
        tiny_pair[0], settings["temperature"], settings.get("top_p", 1.0), settings.get("top_k", 0)
    )
    with load(*tiny_pair, slots=SLOTS) as engine:
        counts, _ = sample(engine, max_tokens=3, draft_length=2, verification=rule, **settings)
    p = chi_square_p(counts, distribution)
    record_property("p_value", p)
    print(f"chi-square {name} by {rule}: p = {p:.3f} over {SAMPLES} continuations")
    assert p > 0.001


def resample_from_p(p, q):
    return p


def accept_always(p, q, token):
    return 1.0


def claim_uniform(propose):
    """Wrap a drafter's ``propose`` so that it returns a uniform q instead of the actual one."""

    def claiming(self, requests, shapes):
        trees = propose(self, requests, shapes)
        for tree in trees:
            tree.q = [np.full(VOCAB, 1.0 / VOCAB) for _ in tree.q]
        return trees

    return claiming


@pytest.mark.parametrize("rule", VERIFICATIONS)
@pytest.mark.parametrize("mutant", ["accept always", "resample from p", "claim a wrong q"])
def test_the_chi_square_test_detects_a_wrong_verifier(tiny_pair, monkeypatch, mutant, rule, record_property):
    with load(*tiny_pair, slots=SLOTS) as engine:
        if mutant == "accept always":
            monkeypatch.setattr(walk, "acceptance_probability", accept_always)
            monkeypatch.setattr(walk, "prefix_acceptance", lambda chance, remaining: 1.0)
        elif mutant == "resample from p":
            monkeypatch.setattr(walk, "residual", resample_from_p)
            monkeypatch.setattr(walk, "excess", lambda p, q, scale: (p, 1.0))
        else:
            monkeypatch.setattr(DraftModel, "propose", claim_uniform(DraftModel.propose))
        counts, _ = sample(engine, max_tokens=3, draft_length=2, temperature=1.0, verification=rule)
    p = chi_square_p(counts, target_distribution(tiny_pair[0], 1.0, 1.0, 0))
    record_property("p_value", p)
    print(f"chi-square with a verifier by {rule} that is wrong ({mutant}): p = {p:.1e}")
    assert p < 1e-6


class RandomTrees(Drafter):
    """Proposes random trees, each level with siblings drawn without replacement and a picked one."""

    def __init__(self, vocab, seed):
        self.vocab, self.rng = vocab, np.random.default_rng(seed)

    def begin(self, request):
        return True

    def commit(self, request, tree, path):
        pass

    def end(self, request):
        pass

    def propose(self, requests, shapes):
        return [self._tree(request, len(shape)) for request, shape in zip(requests, shapes, strict=True)]

    def _tree(self, request, length):
        tree, leaves = TokenTree(), [ROOT]
        for _ in range(length):
            leaves = [child for leaf in leaves for child in self._below(tree, leaf, request.random)][:3]
        return tree

    def _below(self, tree, leaf, random_stream):
        q = self.rng.dirichlet(np.ones(self.vocab))
        first = random_stream.draw(q)
        second = random_stream.draw(without_token(q, first))
        nodes = tree.branch(leaf, [first, second], q)
        return [*nodes, tree.add(leaf, int(self.rng.integers(self.vocab)))]


def test_random_trees_yield_the_targets_distribution(tiny_pair, record_property):
    target = DecoderRunner.load(tiny_pair[0], dtype="float32", slots=1, context=64)
    speculator = Speculator(target, {"draft": RandomTrees(VOCAB, seed=0)})
    counts, kept = np.zeros((VOCAB, VOCAB)), 0
    for seed in range(SAMPLES):
        request = sequence(PROMPT, max_tokens=3, temperature=1.0, seed=seed, draft_length=2)
        first, second, _ = run(speculator, request)[:3]
        counts[first, second] += 1
        kept += request.counts.accepted
        speculator.end(request)
    p = chi_square_p(counts, target_distribution(tiny_pair[0], 1.0, 1.0, 0))
    record_property("p_value", p)
    print(f"chi-square random trees: p = {p:.3f}, {kept / SAMPLES:.2f} drafts kept a continuation")
    assert kept > SAMPLES / 2
    assert p > 0.001


DRAFTERS = {
    "draft chain": {"method": "draft", "draft_length": 2},
    "draft chain by token": {"method": "draft", "draft_length": 2, "verification": "token"},
    "draft tree": {"method": "draft", "draft_tree": (2,), "draft_length": 1},
    "draft grown": {"method": "draft", "draft_tree": "grow", "draft_length": 2},
    "layers grown": {"method": "layer_skip", "draft_tree": "grow", "draft_length": 3},
    "n-gram": {"method": "ngram", "draft_length": 3},
    "n-gram judged": {"method": "ngram"},
    "suffix": {"method": "suffix", "draft_length": 3},
    "suffix grown": {"method": "suffix", "draft_tree": "grow", "draft_length": 2},
    "union": {"method": "union", "draft_length": 1},
    "union of chains": {"method": "union", "draft_length": 2},
    "union grown": {"method": "union", "draft_tree": "grow", "draft_length": 2},
}
PICKED = {"draft grown", "layers grown", "n-gram", "n-gram judged", "suffix", "suffix grown", "union grown"}
AGAIN = [3, 1, 4, 1, 5, 3, 1]
"""A prompt whose last tokens already occurred in it."""


def drafting(pair):
    """Return a speculator with all drafters over the tiny pair."""
    target, draft = (DecoderRunner.load(folder, dtype="float32", slots=1, context=64) for folder in pair)
    one = DraftModel(draft, VOCAB)
    methods = {
        "draft": one,
        "layer_skip": DraftModel(layer_skip_runner(target, (0,), 1), VOCAB),
        "union": UnionDrafter([one], NgramDrafter()),
        "suffix": SuffixDrafter(),
    }
    # Earlier answers, to which rounds add none: all start alike.
    methods["suffix"].keep("", [3, 1, 2, 3, 1, 5, 3, 1, 5])
    methods["suffix"].answers[""].limit = 0
    return Speculator(target, methods)


def round_distribution(speculator, prompt, **params):
    distribution, kept = distribution_of_rounds(speculator, prompt, **params)
    return as_table(distribution, VOCAB), kept


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafters_rounds_follow_the_targets_distribution(tiny_pair, name):
    # Fewer tokens if the draft draws them: each combination of them is a separate outcome.
    top_k = 6 if name in PICKED else 4
    settings = {"temperature": 1.1, "top_k": top_k}
    distribution, kept = round_distribution(drafting(tiny_pair), AGAIN, **DRAFTERS[name], **settings)
    np.testing.assert_allclose(
        distribution, target_distribution(tiny_pair[0], 1.1, 1.0, top_k, AGAIN), atol=1e-5
    )
    assert kept > 0


@pytest.mark.parametrize("mutant", ["accept always", "resample from p", "merge equal draws", "claim a draw"])
def test_the_comparison_detects_wrong_implementations(tiny_pair, monkeypatch, mutant):
    params, methods = DRAFTERS["draft grown"], drafting(tiny_pair)
    if mutant == "accept always":
        monkeypatch.setattr(walk, "acceptance_probability", accept_always)
    elif mutant == "resample from p":
        monkeypatch.setattr(walk, "residual", resample_from_p)
    elif mutant == "merge equal draws":
        # Two identical draft models often draw equal tokens.
        model = methods.drafters["draft"]
        other = DraftModel(DecoderRunner.load(tiny_pair[1], dtype="float32", slots=1, context=64), VOCAB)
        methods.drafters["union"] = UnionDrafter([model, other], NgramDrafter())
        params = DRAFTERS["union"]
        monkeypatch.setattr(union, "_picked", lambda q, token: True)
    else:
        monkeypatch.setattr(DraftModel, "propose", claim_uniform(DraftModel.propose))
    distribution, _ = round_distribution(methods, AGAIN, temperature=1.0, top_k=3, **params)
    assert np.abs(distribution - target_distribution(tiny_pair[0], 1.0, 1.0, 3, AGAIN)).max() > 1e-3


@pytest.mark.parametrize("name", ["tree", "union"])
def test_sampled_trees_of_the_engine_follow_the_targets_distribution(tiny_pair, name, record_property):
    """These trees have too many outcomes to enumerate, so the test is a chi-square test."""
    params = {"method": "draft", "draft_tree": (3, 2)} if name == "tree" else {"method": "union"}
    with load(tiny_pair[0], [tiny_pair[1]] * 2, slots=SLOTS) as engine:
        counts, figures = sample(engine, FEWER, max_tokens=3, draft_length=2, temperature=1.0, **params)
    p = chi_square_p(counts, target_distribution(tiny_pair[0], 1.0, 1.0, 0))
    record_property("p_value", p)
    print(f"chi-square {name}: p = {p:.3f} over {FEWER} continuations")
    assert figures.drafted > 2 * figures.steps - 2
    assert p > 0.001


PREDICTIONS = {
    "one": [2],
    "two": [6, 2],
    "longer than the answer": [0, 1, 2, 3, 4, 5, 6, 7, 0],
    "one token again and again": [3, 3, 3, 3, 3],
    "the prompt": PROMPT,
    "nothing": [],
}


def distribution_with_prediction(folder, prediction, settings):
    """Return the distribution of :func:`round_distribution` for requests with a prediction."""
    speculator = Speculator(DecoderRunner.load(folder, dtype="float32", slots=1, context=64))
    return round_distribution(speculator, PROMPT, method="prediction", predicted=prediction, **settings)


@pytest.mark.parametrize("draft_length", [1, 4, None])
@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_predictions_do_not_change_the_targets_distribution(tiny_pair, prediction, draft_length):
    accepted = 0
    for settings in SETTINGS.values():
        expected = target_distribution(
            tiny_pair[0], settings["temperature"], settings.get("top_p", 1.0), settings.get("top_k", 0)
        )
        options = {**settings, "draft_length": draft_length}
        distribution, kept = distribution_with_prediction(tiny_pair[0], PREDICTIONS[prediction], options)
        np.testing.assert_allclose(distribution, expected, atol=1e-5)
        accepted += kept
    assert (accepted > 0) == (prediction != "nothing")


@pytest.mark.parametrize("mutant", ["accept always", "resample from p", "claim a wrong q"])
def test_the_enumeration_detects_a_wrong_verifier(tiny_pair, monkeypatch, mutant):
    if mutant == "accept always":
        monkeypatch.setattr(walk, "acceptance_probability", accept_always)
    elif mutant == "resample from p":
        monkeypatch.setattr(walk, "residual", resample_from_p)
    else:
        monkeypatch.setattr(PredictionDrafter, "propose", claim_uniform(PredictionDrafter.propose))
    distribution, _ = distribution_with_prediction(tiny_pair[0], [6, 2, 2], {"temperature": 1.0})
    assert np.abs(distribution - target_distribution(tiny_pair[0], 1.0, 1.0, 0)).max() > 1e-3


@pytest.fixture(scope="module")
def byte_pair(tmp_path_factory):
    """Write a target, and a copy with noise in its weights as its draft: most drafted tokens are right."""
    folder = tmp_path_factory.mktemp("bytes")
    target = write_checkpoint(folder / "target", seed=1, spread=0.2, eos_token_id=None)
    return target, noisy_copy(target, folder / "draft", 0.02)


PROMPTS = [
    "def f(x):",
    "",
    "import os\n",
    "x",
    "\u00e9\u4e2d\U0001f600 text",
    "class A:\n    def b(self):\n        return",
]


def test_greedy_speculation_equals_greedy_decoding(byte_pair):
    kept = 0
    with load(*byte_pair) as engine:
        for prompt in PROMPTS:
            plain = engine.generate(prompt, max_tokens=60, method="plain")
            assert plain.speculation.method == "plain"
            for length in (*range(9), None):
                drafted = engine.generate(prompt, max_tokens=60, draft_length=length)
                assert drafted.token_ids == plain.token_ids, f"{prompt!r} with draft length {length}"
                assert drafted.text == plain.text
                kept += drafted.speculation.accepted
    assert kept > 500


def test_greedy_decoding_equals_that_of_transformers(byte_pair):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(byte_pair[0], dtype=torch.float32).eval()
    with load(*byte_pair) as engine:
        got = engine.generate("def f(x):", max_tokens=40)
        ids = torch.tensor([engine.tokenizer.encode("def f(x):")])
        expected = model.generate(ids, max_new_tokens=40, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert got.token_ids == expected[0, ids.shape[1] :].tolist()


def test_greedy_speculation_with_random_trees_equals_greedy_decoding(byte_pair):
    target = DecoderRunner.load(byte_pair[0], dtype="float32", slots=1, context=128)
    plain = Speculator(target)
    for seed in range(4):
        prompt = np.random.default_rng(seed).integers(0, 300, 12).tolist()
        expected = run(plain, sequence(prompt, method="plain", max_tokens=30))
        target.truncate(0, 0)
        # The drafter adds the right tokens among random siblings, so that paths inside trees are accepted.
        speculator = Speculator(target, {"draft": RandomTreesWithAnswer(300, seed, expected)})
        request = sequence(prompt, max_tokens=30, draft_length=3)
        assert run(speculator, request) == expected
        assert request.counts.accepted > 10
        target.truncate(0, 0)


class RandomTreesWithAnswer(RandomTrees):
    """Random trees with the right token as the last sibling of every level."""

    def __init__(self, vocab, seed, answer):
        super().__init__(vocab, seed)
        self.answer = answer

    def _tree(self, request, length):
        tree, leaf, done = TokenTree(), ROOT, len(request.new_tokens)
        for token in self.answer[done : done + length]:
            self._below(tree, leaf, request.random)
            leaf = tree.add(leaf, token)
        return tree


@pytest.mark.parametrize("drafter", ["draft", "trees"])
def test_caches_equal_a_fresh_prefill_after_rejected_tokens(byte_pair, drafter):
    target = DecoderRunner.load(byte_pair[0], dtype="float32", slots=2, context=128)
    draft = DecoderRunner.load(byte_pair[1], dtype="float32", slots=2, context=128)
    accepted = collections.Counter()
    for seed in range(6):
        source = DraftModel(draft, 300) if drafter == "draft" else RandomTrees(300, seed)
        if drafter == "trees" and seed % 2:
            known = run(Speculator(target), sequence([7, 8, 9], slot=1, method="plain", max_tokens=40))
            target.truncate(1, 0)
            source = RandomTreesWithAnswer(300, seed, known)
        speculator = Speculator(target, {"draft": source})
        temperature = 0.0 if seed % 2 else 0.7
        request = sequence(
            [7, 8, 9], max_tokens=40, temperature=temperature, seed=seed, draft_length=3 + seed % 3
        )
        run(speculator, request)
        accepted[drafter] += request.counts.accepted
        for runner in (target, draft) if drafter == "draft" else (target,):
            length = runner.length(0)
            assert length >= len(request.tokens) - 2
            runner.prefill(1, request.tokens[:length])
            used, fresh = (runner.cache.rows[:, slot, :, :length] for slot in (0, 1))
            torch.testing.assert_close(used, fresh, atol=1e-5, rtol=0)
            runner.truncate(1, 0)
        speculator.end(request)
    assert accepted[drafter] > 20


def test_a_seed_gives_the_same_answer_alone_and_in_a_batch(byte_pair):
    with load(*byte_pair) as engine:
        alone = engine.generate("def f(x):", max_tokens=30, temperature=1.0, seed=4)
        events: dict[int, list] = {i: [] for i in range(3)}
        for i, sink in events.items():
            engine.add("def f(x):", sink.append, max_tokens=30, temperature=1.0, seed=4 + (i == 1))
        while engine.step():
            pass
    answers = [sink[-1].generation.token_ids for sink in events.values()]
    assert answers[0] == answers[2] == alone.token_ids
    assert answers[1] != alone.token_ids


def test_reference_distributions_sum_to_one_and_exclude_truncated_tokens(tiny_pair):
    """The reference is a distribution, and top-k leaves tokens out."""
    for settings in SETTINGS.values():
        distribution = target_distribution(
            tiny_pair[0], settings["temperature"], settings.get("top_p", 1.0), settings.get("top_k", 0)
        )
        assert abs(distribution.sum() - 1.0) < 1e-9
    assert (target_distribution(tiny_pair[0], 1.3, 1.0, 3) == 0).sum() == 64 - 9
