"""Drafts with another vocabulary: greedy tokens, sampled distributions, and unsuitable drafts."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from p_values import chi_square_p
from specclient_local.api.backend import BUNDLED
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.retokenised import RetokenisedDrafter, continuation, retokenised_prefix
from specclient_local.drafting.shared_vocabulary import CommonTokensProcessor, SharedVocabularyDrafter
from specclient_local.drafting.vocabulary_match import match_vocabularies
from specclient_local.loading.drafter_set import drafter_for_model
from specclient_local.model.config import read_config
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.tokenizer import Tokenizer
from tiny_models import distribution_of_rounds, load, sequence, write_checkpoint
from tiny_vocabularies import copy_with_other_tokenizer, lettered, trained

from specclient.errors import CheckpointError, ConfigurationError

PYTHON = ["def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1)\n"] * 4
PROSE = ["the words of a sentence, and of another one that was longer than it\n"] * 4
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "bos_token_id": None}
WAYS = ("shared", "retokenised")


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """Write a target over eight letters, and a draft with six of these and three others, in another order."""
    folder = tmp_path_factory.mktemp("letters")
    shape = {**SMALL, "eos_token_id": None}
    target = write_checkpoint(
        folder / "t", seed=5, spread=0.25, vocab_size=8, tokenizer=lettered("abcdefgh"), **shape
    )
    other = {**shape, "num_hidden_layers": 1, "tokenizer": lettered("xhyfzdcba")}
    return target, write_checkpoint(folder / "d", seed=6, spread=0.25, vocab_size=9, **other)


@pytest.fixture(scope="module")
def other_tokenizer_pair(tmp_path_factory):
    """Write a target and a draft with byte-level tokenizers trained on different texts."""
    folder = tmp_path_factory.mktemp("bytes")
    shape = {**SMALL, "eos_token_id": None, "max_position_embeddings": 256}
    target = write_checkpoint(
        folder / "t", seed=1, spread=0.2, vocab_size=300, tokenizer=trained(PYTHON, 300), **shape
    )
    other = {**shape, "num_hidden_layers": 1, "tokenizer": trained(PROSE, 320)}
    return target, write_checkpoint(folder / "d", seed=2, spread=0.2, vocab_size=320, **other)


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    """Write copies of the bundled draft: with other ids, a quarter of the merges, and few merges."""
    folder = tmp_path_factory.mktemp("bundled")
    source = BUNDLED / "draft"
    return {
        "ids": copy_with_other_tokenizer(source, folder / "ids"),
        "merges": copy_with_other_tokenizer(source, folder / "merges", merges=1000),
        "few": copy_with_other_tokenizer(source, folder / "few", merges=30),
    }


def speculator(target, draft, way):
    """Return a speculator with one draft with another vocabulary, without an engine."""
    runner = DecoderRunner.load(target, dtype="float32", slots=1, context=64)
    small = DecoderRunner.load(draft, dtype="float32", slots=1, context=64, exact=False)
    configs = runner.config, small.config
    other = match_vocabularies(Tokenizer(target), Tokenizer(draft), configs, way)
    return Speculator(runner, {"draft": drafter_for_model(small, configs[0].vocab_size, other)}), small


def distribution_of_pairs(target, draft, way, prompt, **params):
    return distribution_of_rounds(speculator(target, draft, way)[0], prompt, **params)


def target_distribution(folder, prompt, temperature, top_k):
    """Return the target's exact distribution of two tokens, computed with transformers' model."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def after(tokens):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([tokens])).logits[0, -1].double() / temperature
        least = logits.topk(top_k).values[-1]
        return torch.softmax(logits.masked_fill(logits < least, -torch.inf), -1)

    first = after(prompt)
    return {
        (a, b): float(first[a] * p)
        for a in first.nonzero().flatten().tolist()
        for b, p in enumerate(after([*prompt, a]))
        if p > 0
    }


def largest_difference(found, wanted):
    return max(abs(found.get(pair, 0.0) - wanted.get(pair, 0.0)) for pair in {*found, *wanted})


PROMPT = [3, 1, 4, 1, 5]
SHAPES = {
    "chain": {"draft_length": 2},
    "tree": {"draft_tree": (2,), "draft_length": 1},
    "grown": {"draft_tree": "grow", "draft_length": 2},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shared_vocabulary_draft_yields_the_targets_distribution(letters, shape):
    distribution, kept = distribution_of_pairs(
        *letters, "shared", PROMPT, temperature=1.1, top_k=3, **SHAPES[shape]
    )
    assert largest_difference(distribution, target_distribution(letters[0], PROMPT, 1.1, 3)) < 1e-5
    assert kept > 0


def test_the_comparison_detects_a_q_that_is_not_renormalised(letters, monkeypatch):
    """Without renormalisation over the common tokens, rounds have another distribution."""

    def without_renormalisation(self, q, ids):
        if isinstance(q, int):
            return ids[q]
        distribution = np.zeros(self._vocab)
        distribution[self._common.target] = 0.6 * q[self._common.draft]
        return distribution

    monkeypatch.setattr(SharedVocabularyDrafter, "_translated_distribution", without_renormalisation)
    distribution, _ = distribution_of_pairs(
        *letters, "shared", PROMPT, temperature=1.1, top_k=3, draft_length=2
    )
    assert largest_difference(distribution, target_distribution(letters[0], PROMPT, 1.1, 3)) > 1e-3


def test_a_retokenised_draft_yields_the_targets_distribution(other_tokenizer_pair):
    for seed_text in ("def fib", "the ", "return n"):
        prompt = Tokenizer(other_tokenizer_pair[0]).encode(seed_text)
        distribution, _ = distribution_of_pairs(
            *other_tokenizer_pair, "retokenised", prompt, temperature=1.5, top_k=4, draft_length=2
        )
        assert (
            largest_difference(distribution, target_distribution(other_tokenizer_pair[0], prompt, 1.5, 4))
            < 1e-5
        )


@pytest.mark.parametrize("way", WAYS)
def test_sampled_continuations_follow_the_targets_distribution(other_tokenizer_pair, way):
    target, draft = other_tokenizer_pair
    prompt = Tokenizer(target).encode("return ")
    wanted = target_distribution(target, prompt, 1.0, 3)
    counts = dict.fromkeys(wanted, 0)
    with load(target, draft, draft_vocabulary=way, slots=4) as engine:
        for first in range(0, 400, 4):
            sinks = [[] for _ in range(4)]
            for i, sink in enumerate(sinks):
                params = {"max_tokens": 3, "temperature": 1.0, "top_k": 3, "draft_length": 2}
                engine.add(prompt, sink.append, seed=first + i, **params)
            while engine.step():
                pass
            for sink in sinks:
                if isinstance(sink[-1], BaseException):
                    raise sink[-1]
                one, two, *_ = sink[-1].generation.token_ids
                counts[one, two] += 1
    pairs = sorted(wanted)
    assert chi_square_p([counts[pair] for pair in pairs], [wanted[pair] for pair in pairs]) > 0.001


PROMPTS = ["def f(x):", "import ", "the words of", "x = [1, 2]\n" * 6, "Grüße, ", "\n", "class A:\n    def b"]


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_greedy_answers_equal_plain_decoding(other_tokenizer_pair, way, batch):
    drafted = 0
    with load(*other_tokenizer_pair, draft_vocabulary=way, slots=batch) as engine:
        plain = [engine.generate(p, max_tokens=32, method="plain").token_ids for p in PROMPTS]
        for length in (1, 3, None):
            for begin in range(0, len(PROMPTS), batch):
                sinks = [[] for _ in PROMPTS[begin : begin + batch]]
                for prompt, sink in zip(PROMPTS[begin:], sinks, strict=False):
                    engine.add(prompt, sink.append, max_tokens=32, draft_length=length)
                while engine.step():
                    pass
                for sink, wanted in zip(sinks, plain[begin:], strict=False):
                    answer = sink[-1].generation
                    assert answer.token_ids == wanted
                    drafted += answer.speculation.drafted
    assert drafted > 0


def code(count):
    from specclient_local.measure.prompts import held_out

    tokenizer = Tokenizer(BUNDLED / "target")
    return held_out(tokenizer, count)


def figures(engine, prompts, **params):
    answers = [engine.generate(p, max_tokens=48, draft_length=3, **params) for p in prompts]
    drafted = sum(a.speculation.drafted for a in answers)
    return [a.token_ids for a in answers], sum(a.speculation.accepted for a in answers) / drafted


def test_a_draft_with_permuted_ids_has_the_same_acceptance_rate(bundled):
    """The copy is not trained: it drafts the same text with other ids."""
    prompts = code(4)
    with load(BUNDLED / "target", BUNDLED / "draft") as engine:
        wanted, rate = figures(engine, prompts)
    with load(BUNDLED / "target", bundled["ids"], draft_vocabulary="shared") as engine:
        tokens, own = figures(engine, prompts)
    assert tokens == wanted
    assert own == pytest.approx(rate, abs=1e-9), "the drafted tokens are equal"
    with load(BUNDLED / "target", bundled["ids"], draft_vocabulary="retokenised") as engine:
        tokens, own = figures(engine, prompts)
    assert tokens == wanted
    assert own > 0.8 * rate, "it only loses where the text ends within a token"


@pytest.mark.parametrize("way", WAYS)
def test_a_draft_with_other_merges_has_accepted_tokens(bundled, way, record_property):
    prompts = code(4)
    with load(BUNDLED / "target", bundled["merges"], draft_vocabulary=way) as engine:
        tokens, rate = figures(engine, prompts)
        plain = [engine.generate(p, max_tokens=48, method="plain").token_ids for p in prompts]
        assert tokens == plain
    record_property("acceptance", rate)
    assert rate > 0.05


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_drafts_cache_equals_a_fresh_prefill(bundled, other_tokenizer_pair, way, random):
    """After each round, its rows equal those of a fresh pass over the same tokens."""
    target, draft = other_tokenizer_pair if random else (BUNDLED / "target", bundled["merges"])
    speculating, small = speculator(target, draft, way)
    fresh = DecoderRunner.load(draft, dtype="float32", slots=1, context=64, exact=False)
    drafter = speculating.drafters["draft"]
    request = sequence(Tokenizer(target).encode("def add(a, b):\n    "), max_tokens=30, draft_length=3)
    while not speculating.prefill(request):
        pass
    for _ in range(8):
        (won,) = speculating.round([request])
        for token in won.tokens:
            request.take(token)
        drafter._read(request)
        state = drafter._states
        tokens = state[0].shadow.tokens[: small.length(0)]
        assert len(tokens) == small.length(0) > 0
        fresh.truncate(0, 0)
        fresh.prefill(0, tokens)
        for own, new in zip(small.cache.views(0), fresh.cache.views(0), strict=True):
            rows = len(tokens)
            got, want = (each.narrow(_position_axis(each, small), 0, rows) for each in (own, new))
            torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    speculating.end(request)


def test_tokens_that_merge_with_later_text_are_replaced_in_the_drafts_cache(bundled):
    """The answer grows letter by letter, so the draft's last tokens are often merged into others."""
    target, draft = BUNDLED / "target", bundled["merges"]
    speculating, small = speculator(target, draft, "retokenised")
    fresh = DecoderRunner.load(draft, dtype="float32", slots=1, context=64, exact=False)
    drafter, tokenizer = speculating.drafters["draft"], Tokenizer(target)
    request = sequence(tokenizer.encode("def add(a, b):\n    "), max_tokens=40, draft_length=3)
    while not speculating.prefill(request):
        pass
    cut = 0
    for letter in "return self.append(x)":
        before = list(drafter._states[0].shadow.tokens)
        (tree,) = drafter.propose([request], [(1, 1, 1)])
        drafter.commit(request, tree, [])
        (token,) = tokenizer.encode(letter, begins=False)
        request.take(token)
        drafter._read(request)
        shadow = drafter._states[0].shadow.tokens
        cut += shadow[: len(before)] != before
        tokens = shadow[: small.length(0)]
        assert len(tokens) == small.length(0) > 0
        fresh.truncate(0, 0)
        fresh.prefill(0, tokens)
        for own, new in zip(small.cache.views(0), fresh.cache.views(0), strict=True):
            got, want = (each.narrow(_position_axis(each, small), 0, len(tokens)) for each in (own, new))
            torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    assert cut > 3, "earlier tokens were replaced"
    speculating.end(request)


def _position_axis(view, runner):
    """Return the axis of a cache view that counts positions."""
    sizes = [i for i, size in enumerate(view.shape) if size >= runner.context]
    return sizes[0]


def test_drafted_text_is_encoded_as_by_the_target(bundled):
    tokenizer = Tokenizer(BUNDLED / "target")
    whole = tokenizer.encode("for name in values:\n    print(name)")
    for end in range(1, len(whole)):
        text = continuation(tokenizer, whole[:end], whole[end:])
        found = retokenised_prefix(tokenizer, whole[:end], text)
        assert tokenizer.decode([*whole[:end], *found]) == tokenizer.decode(whole)
        assert found == whole[end:]
    assert retokenised_prefix(tokenizer, whole, "") == []
    # Within a word, existing tokens are kept, and only the following text is encoded.
    inside = tokenizer.encode("retur")
    assert tokenizer.decode([*inside, *retokenised_prefix(tokenizer, inside, "n x")]) == "return x"


def test_the_matching_method_is_chosen_and_logged(letters, other_tokenizer_pair, bundled, caplog):
    def way(target, draft, requested="auto"):
        configs = read_config(target), read_config(draft)
        return match_vocabularies(Tokenizer(target), Tokenizer(draft), configs, requested).way

    assert way(BUNDLED / "target", bundled["ids"]) == "shared"
    assert way(BUNDLED / "target", bundled["merges"]) == "shared"
    assert way(BUNDLED / "target", bundled["few"]) == "retokenised"
    with (
        caplog.at_level(logging.WARNING, "specclient"),
        load(BUNDLED / "target", bundled["few"]) as engine,
    ):
        assert engine.method == "draft"
    assert "re-encoded by the target's tokenizer" in caplog.text
    caplog.clear()
    with load(BUNDLED / "target", BUNDLED / "draft"):
        assert not caplog.text
    with pytest.raises(ConfigurationError, match="draft_vocabulary is 'other'"):
        load(BUNDLED / "target", BUNDLED / "draft", draft_vocabulary="other")
    with pytest.raises(CheckpointError, match=r"vocabularies differ.*draft_vocabulary='auto'"):
        load(BUNDLED / "target", bundled["ids"], draft_vocabulary="same")


def test_incompatible_vocabularies_are_rejected(letters, other_tokenizer_pair, tmp_path):
    target, other = letters
    with pytest.raises(CheckpointError, match=r"do not both reproduce text.*omit draft_vocabulary"):
        load(target, other, draft_vocabulary="retokenised")
    shape = {**SMALL, "eos_token_id": None, "vocab_size": 5}
    nothing = write_checkpoint(tmp_path / "d", tokenizer=lettered("vwxyz"), **shape)
    for requested in ("auto", "shared", "retokenised"):
        with pytest.raises(CheckpointError, match=r"share 0%.*family, or method 'ngram'"):
            load(target, nothing, draft_vocabulary=requested)
    with pytest.raises(CheckpointError, match="cannot be sampled"):
        load(target, nothing, draft_vocabulary="shared")


def test_a_union_of_drafts_with_several_vocabularies(bundled):
    prompts = code(2)
    drafts = [BUNDLED / "draft", bundled["ids"], bundled["few"]]
    with load(BUNDLED / "target", drafts) as engine:
        assert engine.method == "union"
        kinds = [type(each) for each in engine._speculator.drafters["union"].models]
        assert kinds[1:] == [SharedVocabularyDrafter, RetokenisedDrafter]
        tokens, rate = figures(engine, prompts)
        plain = [engine.generate(p, max_tokens=48, method="plain").token_ids for p in prompts]
    assert tokens == plain
    assert rate > 0.0


def test_logits_processors_apply_to_the_drafts_tokens(letters):
    """Tokens that the request forbids, and tokens that only the draft has, are not drafted."""
    tokenizers = [Tokenizer(folder) for folder in letters]
    configs = tuple(read_config(folder) for folder in letters)
    common = match_vocabularies(*tokenizers, configs, "shared").common

    class NoC:
        ended = False

        def process(self, logits, paths):
            assert [list(path) for path in paths] == [[0], [0, 7]]  # "a", "ah" in the target's ids
            shaped = logits.clone()
            shaped[:, 2] = -torch.inf
            return shaped

        def take(self, token):
            raise AssertionError

    shaped = CommonTokensProcessor(common, 8, NoC()).process(torch.zeros(2, 9), [[8], [8, 1]])
    allowed = [("xhyfzdcba"[i]) for i in range(9) if shaped[0, i] == 0.0]
    assert allowed == ["h", "f", "d", "b", "a"]
