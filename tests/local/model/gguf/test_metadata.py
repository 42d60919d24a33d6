"""The metadata of GGUF files as a model's configuration, compared with transformers by its logits."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from specclient_local.model.config import read_config
from specclient_local.model.rope import frequencies
from tiny_models import write_checkpoint

from specclient.errors import CheckpointError

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

from gguf_files import logits_of_transformers, own_logits, write_gguf  # noqa: E402 - needs the package


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_the_configuration_is_that_of_the_checkpoint(tmp_path, kind):
    shape = {"head_dim": 16} if kind == "qwen3" else {}
    checkpoint = write_checkpoint(tmp_path / "checkpoint", kind=kind, rms_norm_eps=1e-5, **shape)
    own, expected = (read_config(path) for path in (write_gguf(checkpoint, tmp_path / "m.gguf"), checkpoint))
    assert own.norm_eps == pytest.approx(expected.norm_eps)
    for name in expected.__slots__:
        if name != "norm_eps":
            assert getattr(own, name) == getattr(expected, name), name


def test_a_sliding_window_makes_a_mistral(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "checkpoint", kind="mistral", sliding_window=8, spread=0.1)
    path = write_gguf(checkpoint, tmp_path / "m.gguf", values={"attention.sliding_window": 8})
    assert read_config(path).window == 8
    torch.testing.assert_close(own_logits(path), logits_of_transformers(checkpoint), atol=1e-4, rtol=0)


LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 10_000.0,
}  # fmt: skip
ROPES = {
    "linear": (
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "linear, the old name": (
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
        {"rope.scale_linear": 4.0},
    ),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10_000.0},
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
        },
    ),
    "yarn with its factor of attention": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10_000.0},
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
            "rope.scaling.attn_factor": 1.0,
        },
    ),
    "llama3": (LLAMA3, {}),
}


@pytest.mark.parametrize("name", ROPES)
def test_scaled_rope_is_that_of_transformers(tmp_path, name):
    rope, values = ROPES[name]
    checkpoint = write_checkpoint(tmp_path / "checkpoint", spread=0.1, rope_parameters=rope)
    tensors = {}
    if name == "llama3":  # the converter stores the divisor of each frequency
        scaled, plain = read_config(checkpoint).rope, 10_000.0 ** -(torch.arange(0, 8, 2) / 8)
        tensors["rope_freqs.weight"] = (plain / frequencies(scaled, 8, 64)).numpy().astype(np.float32)
        assert len(set(tensors["rope_freqs.weight"].tolist())) > 1
    path = write_gguf(checkpoint, tmp_path / "m.gguf", values=values, tensors=tensors)
    torch.testing.assert_close(own_logits(path), logits_of_transformers(checkpoint), atol=1e-4, rtol=0)


REFUSED = {
    "architecture": (
        {"general.architecture": "gpt-oss"},
        "architecture 'gpt-oss' is not supported; supported are llama",
    ),
    "one of several files": ({"split.count": 3}, "one of 3 files of a model; their names must end in"),
    "experts without a number": ({"expert_count": 8}, "llama.expert_used_count is missing"),
    "shared experts": ({"expert_shared_count": 1}, "llama.expert_shared_count is 1; supported is 0"),
    "soft caps": ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping is 30.0"),
    "part of a head": ({"rope.dimension_count": 4}, "rope.dimension_count is 4; supported is the head's, 8"),
    "values of another size": ({"attention.key_length": 8, "attention.value_length": 4}, "value_length is 4"),
    "a kind of RoPE": ({"rope.scaling.type": "longrope"}, "scaling.type is 'longrope'; supported is 'none'"),
    "a missing field": ({"block_count": None}, "llama.block_count is missing from its metadata"),
    "no heads": ({"attention.head_count": 0}, "num_attention_heads is 0; it must be a whole number"),
    "heads as a text": ({"attention.head_count": "4"}, "num_attention_heads is '4'"),
    "heads of each layer": ({"attention.head_count_kv": [2, 1]}, "num_key_value_heads is "),
    "a factor": ({"rope.scaling.type": "linear", "rope.scaling.factor": -1.0}, "factor is -1.0"),
    "a base": ({"rope.freq_base": 0.0}, "rope_theta is 0.0"),
    "an infinite base": ({"rope.freq_base": float("inf")}, "rope_theta is inf"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_decoder_does_not_compute_is_refused_in_one_line(tmp_path, name):
    values, message = REFUSED[name]
    path = write_gguf(write_checkpoint(tmp_path / "checkpoint"), tmp_path / "m.gguf", values=values)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_config(path)
    assert "\n" not in str(caught.value)


def test_factors_of_frequencies_of_another_type_are_refused(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    for factors, message in (
        (np.ones(4, np.float16), "rope_freqs.weight has type F16"),
        (np.ones(3, np.float32), "short_factor has 3"),
        (np.zeros(4, np.float32), "short_factor is 0.0"),
    ):
        path = write_gguf(checkpoint, tmp_path / "m.gguf", tensors={"rope_freqs.weight": factors})
        with pytest.raises(CheckpointError, match=message):
            read_config(path)


def test_end_tokens_of_a_turn_end_answers_too(tmp_path):
    values = {"tokenizer.ggml.eot_token_id": 7, "tokenizer.ggml.eom_token_id": 1}
    path = write_gguf(write_checkpoint(tmp_path / "checkpoint"), tmp_path / "m.gguf", values=values)
    assert read_config(path).eos == (1, 7)
    assert json.dumps(read_config(path).bos) == "0"
