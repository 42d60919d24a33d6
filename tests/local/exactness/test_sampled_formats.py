"""Sampling with a draft has the target's own distribution in every format of weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specclient_local.decoding.speculate import Speculator
from specclient_local.loading.drafter_set import drafter_for_model
from specclient_local.loading.model_loader import ModelPlacement, load_model
from stored_formats import FORMATS, quantised
from tiny_models import as_table, distribution_of_rounds, letter_tokenizer, noisy_copy, write_checkpoint

VOCAB = 8
PROMPT = [3, 1, 4, 1, 5]
TEMPERATURE, TOP_K = 1.1, 2
LETTERS = {
    "vocab_size": VOCAB,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "eos_token_id": None,
    "bos_token_id": None,
    "tokenizer": letter_tokenizer(VOCAB),
}
PLACED = {
    "bfloat16": ModelPlacement("bfloat16"),
    "int8": ModelPlacement(quantize="int8"),
    "int4": ModelPlacement(quantize="int4"),
    "int4 of bfloat16": ModelPlacement("bfloat16", quantize="int4"),
}


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """Write a target and a draft over eight letters."""
    folder = tmp_path_factory.mktemp("letters")
    target = write_checkpoint(folder / "target", seed=5, spread=0.25, **LETTERS)
    return target, write_checkpoint(folder / "draft", seed=3, spread=0.2, **LETTERS)


def own_distribution(runner):
    """Return a target's distribution of two tokens, by its passes without drafts, ``[V, V]``."""

    def p(tokens):
        runner.truncate(0, 0)
        runner.prefill(0, tokens[:-1])
        logits = runner.score(0, tokens[-1:])[0].double() / TEMPERATURE
        return torch.softmax(logits.masked_fill(logits < logits.topk(TOP_K).values[-1], -torch.inf), -1)

    first = p(PROMPT)
    rows = [p([*PROMPT, token]) if first[token] else torch.zeros(VOCAB).double() for token in range(VOCAB)]
    runner.truncate(0, 0)
    return (first[:, None] * torch.stack(rows)).numpy()


def check(target, draft, placed):
    """Compare the exact distribution of rounds with a draft with the target's own."""
    runner, drafting = (
        load_model(folder, own, slots=1, context=64, exact=exact)
        for folder, own, exact in ((target, placed, True), (draft, ModelPlacement(), False))
    )
    expected = own_distribution(runner)
    speculating = Speculator(runner, {"draft": drafter_for_model(drafting, VOCAB)})
    params = {"temperature": TEMPERATURE, "top_k": TOP_K, "draft_length": 2}
    found, kept = distribution_of_rounds(speculating, PROMPT, method="draft", **params)
    np.testing.assert_allclose(as_table(found, VOCAB), expected, atol=1e-6)
    assert kept > 0


@pytest.mark.parametrize("name", PLACED)
def test_formats_that_weights_are_rounded_to(letters, name):
    check(*letters, PLACED[name])


@pytest.mark.parametrize("name", FORMATS)
def test_formats_that_checkpoints_have(letters, name, tmp_path):
    target, draft = letters
    folder, _ = quantised(target, tmp_path / "quantised", *FORMATS[name])
    check(folder, draft, ModelPlacement())


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"])
def test_types_of_gguf_files(kind, tmp_path):
    """The draft has the target's weights with noise, since blocks of some types are random."""
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    from gguf_files import write_gguf

    shape = LETTERS | {"hidden_size": 256, "intermediate_size": 256}
    made = write_checkpoint(tmp_path / "target", seed=5, spread=0.05, **shape)
    path = write_gguf(made, tmp_path / "model.gguf", kind, tokens=lambda writer, folder: None)
    check(path, noisy_copy(made, tmp_path / "draft", 0.01), ModelPlacement())
