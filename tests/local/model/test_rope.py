"""Rotary frequencies against those of transformers, for published models' sizes."""

from __future__ import annotations

import json

import pytest
import torch
from specclient_local.model.config import read_config
from specclient_local.model.rope import frequencies, turns
from specclient_local.model.rope_config import Rope
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LONG = {"short_factor": [1.0 + i / 48 for i in range(48)], "long_factor": [1.0 + i for i in range(48)]}
SHAPES = {
    "llama-3.1": ({"head_dim": 128}, 131072, 5e5, {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}),
    "llama-linear": ({"head_dim": 128}, 16384, 1e4, {"rope_type": "linear", "factor": 4.0}),
    "llama-dynamic": ({"head_dim": 128}, 4096, 1e4, {"rope_type": "dynamic", "factor": 2.0}),
    "qwen-2.5-yarn": ({"head_dim": 128}, 32768, 1e6, {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "yarn-mscale": ({"head_dim": 64}, 163840, 1e4, {
        "rope_type": "yarn", "factor": 40.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
        "mscale_all_dim": 0.5, "original_max_position_embeddings": 4096}),
    "yarn-attention-factor": ({"head_dim": 64}, 16384, 1e4, {
        "rope_type": "yarn", "factor": 4.0, "attention_factor": 0.7, "truncate": False,
        "original_max_position_embeddings": 4096}),
    "yarn-of-no-width": ({"head_dim": 64}, 16384, 1e4, {
        "rope_type": "yarn", "factor": 4.0, "beta_fast": 5, "beta_slow": 5, "truncate": False,
        "original_max_position_embeddings": 4096}),
    "longrope": ({"head_dim": 96}, 131072, 1e4, {
        "rope_type": "longrope", "original_max_position_embeddings": 4096, **LONG}),
    "longrope-factor": ({"head_dim": 96}, 131072, 1e4, {
        "rope_type": "longrope", "original_max_position_embeddings": 4096, "factor": 16.0, **LONG}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("stretched", [False, True])
def test_frequencies_and_attention_factor_equal_transformers(tmp_path, name, stretched):
    shape, most, theta, table = SHAPES[name]
    settings = {
        "vocab_size": 64,
        "hidden_size": 4 * shape["head_dim"],
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "max_position_embeddings": most,
        "rope_parameters": table | {"rope_theta": theta},
        **shape,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **settings}))
    rope = read_config(tmp_path).rope
    served = most if stretched else min(most, rope.original_context)
    reference = AutoConfig.for_model("llama", **settings)
    expected, factor = ROPE_INIT_FUNCTIONS[rope.kind](reference, torch.device("cpu"), seq_len=served)
    torch.testing.assert_close(frequencies(rope, shape["head_dim"], served), expected, rtol=1e-6, atol=0)
    assert rope.attention_factor == pytest.approx(factor, rel=1e-12)
    if rope.kind == "longrope":
        other = frequencies(rope, shape["head_dim"], 4096 if stretched else most)
        assert not torch.equal(other, frequencies(rope, shape["head_dim"], served))


def test_rotations_have_the_attention_factor_as_magnitude():
    table = turns(Rope(attention_factor=1.25), 8, 6)
    assert table.shape == (6, 1, 4)
    torch.testing.assert_close(table.abs(), torch.full((6, 1, 4), 1.25))
    torch.testing.assert_close(table[5, 0].angle()[0], torch.tensor(5.0 - 2 * torch.pi))
