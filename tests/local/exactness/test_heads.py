"""Medusa, EAGLE and P-EAGLE heads: greedy tokens and sampled distributions equal the target's."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_heads
from drafted_answers import check_greedy_drafts, target_distribution
from p_values import chi_square_p
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.drafting.medusa import MedusaDrafter
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.heads.checkpoint import required_hidden_layers
from tiny_models import as_table, distribution_of_rounds, letter_tokenizer, load, write_checkpoint

VOCAB = 8
PROMPT = [3, 1, 4, 1, 5]
LETTERS = {"hidden": 16, "vocab": VOCAB, "heads": 2, "kv": 1}
KINDS = ("medusa", "eagle", "eagle3", "peagle")
BYTE_HEADS = ("medusa", "medusa shared", "eagle", "eagle3", "eagle3 wide", "peagle", "peagle authors")
TREES = (None, (2, 2, 1), "grow")


def letter_heads(folder, kind):
    """Write heads over eight letters, some of whose drafted tokens are accepted."""
    if kind == "medusa":
        return tiny_heads.medusa(folder, hidden=16, vocab=VOCAB, spread=0.2)
    if kind == "eagle":
        return tiny_heads.eagle(folder, spread=0.25, **LETTERS)
    write = tiny_heads.peagle if kind == "peagle" else tiny_heads.eagle3
    return write(folder, spread=0.25, draft=5, **LETTERS)


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """Write a target over eight letters, and heads of each kind."""
    folder = tmp_path_factory.mktemp("letters")
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 4,
        "eos_token_id": None,
        "bos_token_id": None,
        "tokenizer": letter_tokenizer(VOCAB),
    }
    target = write_checkpoint(folder / "target", seed=5, spread=0.2, **shape)
    return target, {kind: letter_heads(folder / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def byte_heads(tmp_path_factory):
    """Write a target over bytes, and heads of each kind and layout."""
    folder = tmp_path_factory.mktemp("bytes")
    heads = {
        "medusa": tiny_heads.medusa(folder / "medusa", spread=0.02),
        "medusa shared": tiny_heads.medusa(folder / "shared", spread=0.02, own_heads=False, blocks=2),
        "eagle": tiny_heads.eagle(folder / "eagle"),
        "eagle3": tiny_heads.eagle3(folder / "eagle3"),
        "eagle3 wide": tiny_heads.speculators_eagle3(folder / "wide", own_width=16, norm_output=True),
        "peagle": tiny_heads.peagle(folder / "peagle"),
        "peagle authors": tiny_heads.peagle(folder / "authors", authors=True, layers=3),
    }
    return write_checkpoint(folder / "target", spread=0.1, **tiny_heads.TARGET), heads


def speculator(target, heads, slots=1):
    """Return a speculator that drafts with heads, without an engine."""
    taps = required_hidden_layers(heads, read_config(target))
    runner = load_model(target, ModelPlacement(), slots=slots, context=64, taps=taps)
    method, drafter = drafter_for_heads(runner, heads)
    return Speculator(runner, {method: drafter}), method


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", BYTE_HEADS)
def test_greedy_answers_equal_plain_decoding(byte_heads, name, batch):
    target, heads = byte_heads
    prompts = [
        "def f(x):",
        "import ",
        "x",
        "class A:\n    def b",
        "return 1\n" * 6,
        "(((",
        "a b c d e f",
        "\n",
    ]
    with load(target, heads=heads[name], slots=batch) as engine:
        assert engine.method == name.split()[0].rstrip("3")
        check_greedy_drafts(engine, prompts, batch, TREES)


def round_distribution(target, heads, **params):
    speculating, method = speculator(target, heads)
    distribution, kept = distribution_of_rounds(speculating, PROMPT, method=method, **params)
    return as_table(distribution, VOCAB), kept


SHAPES = {
    "chain": {"draft_length": 2},
    "tree": {"draft_tree": (2,), "draft_length": 1},
    "grown": {"draft_tree": "grow", "draft_length": 2},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_follow_the_targets_distribution(letters, kind, shape):
    target, heads = letters
    distribution, kept = round_distribution(target, heads[kind], temperature=1.1, top_k=3, **SHAPES[shape])
    np.testing.assert_allclose(distribution, target_distribution(target, PROMPT, VOCAB, 1.1, 3), atol=1e-5)
    assert kept > 0


def with_uniform_q(propose):
    """Wrap a drafter's ``propose`` so that it returns a uniform q instead of the actual one."""

    def wrapped(self, requests, shapes):
        trees = propose(self, requests, shapes)
        for tree in trees:
            tree.q = [np.full(VOCAB, 1.0 / VOCAB) for _ in tree.q]
        return trees

    return wrapped


@pytest.mark.parametrize("kind", KINDS)
def test_the_comparison_detects_a_drafter_with_a_wrong_q(letters, monkeypatch, kind):
    target, heads = letters
    drafter = MedusaDrafter if kind == "medusa" else EagleDrafter
    monkeypatch.setattr(drafter, "propose", with_uniform_q(drafter.propose))
    distribution, _ = round_distribution(target, heads[kind], temperature=1.1, top_k=3, **SHAPES["chain"])
    assert np.abs(distribution - target_distribution(target, PROMPT, VOCAB, 1.1, 3)).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_continuations_follow_the_targets_distribution(letters, kind):
    target, heads = letters
    counts = np.zeros((VOCAB, VOCAB))
    with load(target, heads=heads[kind], slots=4) as engine:
        for first in range(0, 400, 4):
            sinks = [[] for _ in range(4)]
            for i, sink in enumerate(sinks):
                tree = TREES[(first // 4 + i) % 3]
                params = {"max_tokens": 3, "temperature": 1.0, "draft_length": 2, "draft_tree": tree}
                engine.add(PROMPT, sink.append, seed=first + i, **params)
            while engine.step():
                pass
            for sink in sinks:
                one, two, *_ = sink[-1].generation.token_ids
                counts[one, two] += 1
    assert counts.sum() == 400
    assert chi_square_p(counts, target_distribution(target, PROMPT, VOCAB, 1.0, 0)) > 0.001


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_answer_alone_and_in_a_batch(byte_heads, kind):
    target, heads = byte_heads
    with load(target, heads=heads[kind], slots=3) as engine:
        alone = engine.generate("def f(x):", max_tokens=20, temperature=1.0, seed=4)
        events: dict[int, list] = {i: [] for i in range(3)}
        for i, sink in events.items():
            engine.add("def f(x):", sink.append, max_tokens=20, temperature=1.0, seed=4 + (i == 1))
        while engine.step():
            pass
    answers = [sink[-1].generation.token_ids for sink in events.values()]
    assert answers[0] == answers[2] == alone.token_ids
    assert answers[1] != alone.token_ids


@pytest.mark.parametrize("name", ["eagle", "eagle3", "peagle"])
def test_choices_that_share_a_prompt_equal_plain_decoding_and_answers_alone(byte_heads, name):
    """The second and third choice copy the prompt's rows in the head's cache."""
    target, heads = byte_heads
    prompt = "return 1\n" * 6
    with load(target, heads=heads[name], slots=3) as engine:
        plain = engine.generate(prompt, max_tokens=20, method="plain").token_ids
        choices = engine.generate_many(prompt, 3, max_tokens=20, temperature=0.0, draft_length=3)
        seeded = {"max_tokens": 20, "temperature": 1.0, "seed": 4, "draft_length": 3}
        sampled = engine.generate_many(prompt, 3, **seeded)
        alone = engine.generate(prompt, **seeded)
    assert [choice.token_ids for choice in choices] == [plain] * 3
    assert all(choice.speculation.drafted > 0 for choice in choices)
    assert sampled[0].token_ids == alone.token_ids
    assert len({tuple(choice.token_ids) for choice in sampled}) == 3
