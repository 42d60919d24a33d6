"""GGUF files of further families against transformers with the same numbers, and names by the package."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from specclient_local.model.config import read_config
from specclient_local.model.gguf.names import gguf_name
from tiny_models import write_checkpoint

from specclient.errors import CheckpointError

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

from gguf_files import (  # noqa: E402 - needs the package
    ARCHITECTURES,
    logits_of_transformers,
    own_logits,
    write_gguf,
)

EXPERTS = {"num_experts_per_tok": 2, "pad_token_id": 1}
SHAPES = {
    "gemma3_text": {
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "pad_token_id": 1,
        "tie_word_embeddings": True,
    },
    "mixtral": {"num_local_experts": 4, "sliding_window": None, **EXPERTS},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        **EXPERTS,
    },
    "olmo2": {"pad_token_id": 1},
    "phi3": {"sliding_window": 24, "pad_token_id": 1},
}


def both(folder, kind, quantized="F32", **file):
    """Write a checkpoint and a GGUF file of the same numbers."""
    shape = {"intermediate_size": 64, "num_hidden_layers": 2, "spread": 0.1} | SHAPES[kind]
    if kind == "gemma3_text":  # a file's layers have and lack a window by their number alone
        shape |= {"num_hidden_layers": 6, "layer_types": [*["sliding_attention"] * 5, "full_attention"]}
    made = write_checkpoint(folder / "checkpoint", kind=kind, **shape)
    left_out = ("output.weight",) if kind == "gemma3_text" else ()
    return made, write_gguf(made, folder / "model.gguf", quantized, left_out=left_out, **file)


@pytest.mark.parametrize("quantized", ["F32", "Q8_0"])
@pytest.mark.parametrize("kind", SHAPES)
def test_logits_are_those_of_transformers(tmp_path, kind, quantized):
    checkpoint, path = both(tmp_path, kind, quantized)
    expected = logits_of_transformers(checkpoint)
    torch.testing.assert_close(own_logits(path), expected, atol=1e-4, rtol=0)
    assert expected.std() > 0.3, "the comparison must be able to fail"
    assert read_config(path).model_type == kind


@pytest.mark.parametrize("kind", SHAPES)
def test_tensors_have_the_names_that_the_package_gives_them(tmp_path, kind):
    checkpoint, _ = both(tmp_path, kind)
    name = ARCHITECTURES.get(kind, kind)
    architecture = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(architecture, 6)
    for own in load_file(checkpoint / "model.safetensors"):
        stem = re.sub(r"\.experts\.\d+\.", ".experts.", own.rpartition(".")[0])
        assert gguf_name(own, name) == f"{names.get_name(stem)}.{own.rpartition('.')[2]}"


def test_phis_factors_of_frequencies_and_partly_turned_heads(tmp_path):
    rope = {
        "rope_type": "longrope",
        "partial_rotary_factor": 0.5,
        "rope_theta": 1000.0,
        "short_factor": [1.0, 1.1],
        "long_factor": [1.0, 3.0],
        "original_max_position_embeddings": 32,
    }
    made = write_checkpoint(
        tmp_path / "checkpoint",
        kind="phi3",
        spread=0.1,
        rope_parameters=rope,
        original_max_position_embeddings=32,
        **SHAPES["phi3"],
    )
    factors = {
        f"rope_factors_{name}.weight": np.array(rope[f"{name}_factor"], np.float32)
        for name in ("short", "long")
    }
    scale = float(np.sqrt(1 + np.log(128 / 32) / np.log(32)))
    values = {
        "rope.dimension_count": 4,
        "rope.scaling.original_context_length": 32,
        "rope.scaling.attn_factor": scale,
    }
    path = write_gguf(made, tmp_path / "model.gguf", values=values, tensors=factors)
    torch.testing.assert_close(own_logits(path), logits_of_transformers(made), atol=1e-4, rtol=0)


def test_experts_of_another_number_and_windows_of_olmo_3_are_refused(tmp_path):
    checkpoint, _ = both(tmp_path, "qwen3_moe")
    path = write_gguf(checkpoint, tmp_path / "other.gguf", values={"expert_count": 3})
    with pytest.raises(
        CheckpointError, match=r"ffn_gate_exps.weight has shape \[4, 32, 32\].*\[3, 32, 32\]|ffn_g"
    ):
        own_logits(path)
    made, _ = both(tmp_path / "olmo", "olmo2")
    path = write_gguf(made, tmp_path / "olmo.gguf", values={"attention.sliding_window": 8})
    with pytest.raises(CheckpointError, match=r"olmo2\.attention\.sliding_window is 8"):
        read_config(path)
    assert json.loads((made / "config.json").read_text())["model_type"] == "olmo2"
