"""MTP heads in the engine: greedy tokens and sampled distributions equal the target's."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tiny_heads
from drafted_answers import check_greedy_drafts, target_distribution
from p_values import chi_square_p
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.drafter import chain
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.loading.drafter_set import drafter_for_heads
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.heads.checkpoint import required_hidden_layers
from specclient_local.model.heads.eagle_runner import EaglePasses
from specclient_local.model.native.mtp import NativeMtp
from tiny_models import as_table, distribution_of_rounds, letter_tokenizer, load, sequence, write_checkpoint

VOCAB = 8
PROMPT = [3, 1, 4, 1, 5]
KINDS = {"mimo": "qwen2", "deepseek": "llama", "qwen": "qwen3"}
"""Layouts, each with a family of targets."""

SHAPES = {
    "chain": {"draft_length": 2},
    "tree": {"draft_tree": (2,), "draft_length": 1},
    "grown": {"draft_tree": "grow", "draft_length": 2},
}


@pytest.fixture(scope="module", params=KINDS)
def letters(request, tmp_path_factory):
    """Write a target over eight letters that ships a head, of whose drafted tokens some are accepted."""
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "head_dim": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "eos_token_id": None,
        "bos_token_id": None,
        "tokenizer": letter_tokenizer(VOCAB),
    }
    folder = tmp_path_factory.mktemp("letters") / "target"
    write_checkpoint(folder, kind=KINDS[request.param], seed=5, spread=0.2, **shape)
    return tiny_heads.mtp(folder, request.param)


@pytest.fixture(scope="module")
def bytes_target(tmp_path_factory):
    """Write a target over bytes whose head is its own last layer, with an input that is mostly the state."""
    folder = write_checkpoint(tmp_path_factory.mktemp("bytes") / "target", kind="qwen2", spread=0.1)
    return tiny_heads.mtp(folder, "mimo", spread=0.05)


def speculator(target, *, placed=None, slots=1):
    """Return a speculator that drafts with the target's head, without an engine."""
    taps = required_hidden_layers(target, read_config(target))
    runner = load_model(target, placed or ModelPlacement(), slots=slots, context=64, taps=taps)
    method, drafter = drafter_for_heads(runner, target)
    assert method == "mtp"
    return Speculator(runner, {method: drafter})


@pytest.mark.parametrize("batch", [1, 4])
def test_greedy_answers_equal_plain_decoding(bytes_target, batch):
    prompts = ["def f(x):", "import ", "x", "return 1\n" * 6]
    with load(bytes_target, method="mtp", slots=batch) as engine:
        assert engine.method == "mtp"
        check_greedy_drafts(engine, prompts, batch, (None, (2, 2, 1), "grow"))


@pytest.mark.parametrize("shape", SHAPES)
def test_rounds_follow_the_targets_distribution(letters, shape):
    params = {"temperature": 1.1, "top_k": 3, **SHAPES[shape]}
    found, kept = distribution_of_rounds(speculator(letters), PROMPT, method="mtp", **params)
    np.testing.assert_allclose(
        as_table(found, VOCAB), target_distribution(letters, PROMPT, VOCAB, 1.1, 3), atol=1e-5
    )
    assert kept > 0


def test_sampled_continuations_follow_the_targets_distribution(letters):
    counts = np.zeros((VOCAB, VOCAB))
    with load(letters, method="mtp", slots=4) as engine:
        for first in range(0, 240, 4):
            sinks = [[] for _ in range(4)]
            for i, sink in enumerate(sinks):
                params = {"max_tokens": 3, "temperature": 1.0, "draft_length": 2}
                engine.add(PROMPT, sink.append, seed=first + i, **params)
            while engine.step():
                pass
            for sink in sinks:
                one, two, *_ = sink[-1].generation.token_ids
                counts[one, two] += 1
    assert chi_square_p(counts, target_distribution(letters, PROMPT, VOCAB, 1.0, 0)) > 0.001


@pytest.mark.parametrize("graphs", ["off", "on"])
def test_a_head_drafts_after_rejections_what_it_drafts_for_the_same_prompt(letters, graphs):
    """With ``graphs`` the head's passes are PyTorch's, otherwise compiled ones."""
    placed = ModelPlacement(device="cpu", graphs=graphs)
    own, other = speculator(letters, placed=placed), speculator(letters, placed=placed)
    drafter = own.drafters["mtp"]
    assert isinstance(drafter, EagleDrafter)
    assert isinstance(drafter.runner.decoder.passes, EaglePasses if graphs == "on" else NativeMtp)
    request = sequence(PROMPT, method="mtp", max_tokens=20, temperature=1.2, seed=2, draft_length=3)
    while not own.prefill(request):
        pass
    while len(request.new_tokens) < 12:
        (won,) = own.round([request])
        request.tokens += won.tokens
        again = sequence(request.tokens, method="mtp", max_tokens=20, temperature=1.2, draft_length=3)
        while not other.prefill(again):
            pass
        (one,), (two,) = (
            each.drafters["mtp"].propose([r], [chain(1)]) for each, r in ((own, request), (other, again))
        )
        np.testing.assert_allclose(one.q[0], two.q[0], atol=1e-5)
        other.end(again)
    assert 0 < request.counts.accepted < request.counts.drafted


def test_heads_are_shipped_with_other_formats_and_adapters_of_the_target(bytes_target):
    for options in ({"dtype": "bfloat16"}, {"quantize": "int8"}, {"dtype": "bfloat16", "quantize": "int4"}):
        with load(bytes_target, heads=str(bytes_target), **options) as engine:
            plain = engine.generate("def f(x):", max_tokens=16, method="plain").token_ids
            found = engine.generate("def f(x):", max_tokens=16, method="mtp", draft_length=3)
            assert found.token_ids == plain, options
            assert found.speculation.drafted > 0


def test_the_loop_without_compiled_code_gives_the_same_answer(bytes_target, monkeypatch):
    with load(bytes_target, method="mtp") as engine:
        expected = engine.generate("def f(x):", max_tokens=16, draft_length=3).token_ids
    monkeypatch.setattr("specclient_local.model.decoder.native_passes", lambda *given: None)
    copy = bytes_target.parent / "copy"
    shutil.copytree(bytes_target, copy)
    with load(copy, method="mtp") as engine:
        assert engine.generate("def f(x):", max_tokens=16, draft_length=3).token_ids == expected
