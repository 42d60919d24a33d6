"""Quantised checkpoints against the same numbers unquantised: logits, and refusals of other formats."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.weights import load_weights
from stored_formats import COMPRESSED, FORMATS, PACKED, groups, quantised

from specclient.errors import CheckpointError

IDS = list(range(5, 45))


def logits(folder):
    return load_model(folder, ModelPlacement(), slots=1, context=64).read(0, IDS)


@pytest.mark.parametrize("name", FORMATS)
@torch.inference_mode()
def test_logits_are_those_of_the_rounded_matrices(name, checkpoint, tmp_path):
    folder, exact = quantised(checkpoint(), tmp_path / "quantised", *FORMATS[name])
    torch.testing.assert_close(logits(folder), logits(exact), atol=1e-3, rtol=0)
    assert not torch.allclose(logits(folder), logits(checkpoint()), atol=1e-3)


@torch.inference_mode()
def test_experts_in_mxfp4_are_those_of_transformers(checkpoint, tmp_path):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    base = checkpoint(
        kind="gpt_oss", hidden_size=64, intermediate_size=32, head_dim=16, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=24, spread=0.1,
    )  # fmt: skip
    shutil.copytree(base, tmp_path / "m")
    shutil.copytree(base, tmp_path / "exact")
    stored, draw = load_file(base / "model.safetensors"), torch.Generator().manual_seed(0)
    exact = dict(stored)
    for name in [n for n in stored if n.endswith(("gate_up_proj", "down_proj"))]:
        count, inputs, outputs = stored.pop(name).shape
        blocks = torch.randint(0, 256, (count, outputs, inputs // 32, 16), generator=draw, dtype=torch.uint8)
        scales = torch.randint(121, 125, blocks.shape[:-1], generator=draw, dtype=torch.uint8)
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        exact[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
    save_file(stored, tmp_path / "m" / "model.safetensors")
    save_file(exact, tmp_path / "exact" / "model.safetensors")
    path = tmp_path / "m" / "config.json"
    table = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    path.write_text(json.dumps(json.loads(path.read_text()) | table))
    assert torch.equal(logits(tmp_path / "m"), logits(tmp_path / "exact"))


REFUSED = {
    "another method": ({"quant_method": "bitsandbytes"}, r"quantised \(bitsandbytes\).*are gptq, awq"),
    "three bits": ({"quant_method": "gptq", "bits": 3}, "states 3 bits of gptq; supported are 4 and 8 bits"),
    "no bits": ({"quant_method": "gptq"}, "bits is None; it must be a whole number"),
    "another layout": ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "version 'gemv' of awq"),
    "marlin": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "'marlin'; supported are"),
    "another format": (COMPRESSED | {"format": "nvfp4-pack-quantized"} | groups(4), "'nvfp4-pack-quantized'"),
    "mixed": (COMPRESSED | PACKED | {"config_groups": {
        "a": {"weights": {"num_bits": 4, "type": "int"}}, "b": {"weights": {"num_bits": 8, "type": "int"}}}},
        r"weights of \[4, 8\] bits"),
    "blocks of unknown size": ({"quant_method": "fp8"}, "weight_block_size None of fp8"),
    "sparse": (COMPRESSED | PACKED | groups(4) | {"sparsity_config": {"format": "dense"}}, "sparse weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_formats_are_refused_by_name(name, checkpoint, tmp_path):
    shutil.copytree(checkpoint(), tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    table, message = REFUSED[name]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": table}))
    with pytest.raises(CheckpointError, match=message) as refusal:
        read_config(tmp_path / "m")
    assert "\n" not in str(refusal.value)


def test_groups_of_another_size_are_refused(checkpoint, tmp_path):
    quantise, table = FORMATS["compressed 4 bits"]
    folder, _ = quantised(checkpoint(), tmp_path / "q", quantise, table | groups(4, group_size=8))
    with pytest.raises(CheckpointError, match="do not make a matrix"):
        load_weights(folder, read_config(folder))


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t[:, :-1], lambda t: t.double()])
def test_tensors_that_do_not_fit_are_refused(change, checkpoint, tmp_path):
    folder, _ = quantised(checkpoint(), tmp_path / "q", *FORMATS["gptq 4 bits"])
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.qweight"
    tensors[name] = change(tensors[name]).contiguous()
    save_file(tensors, folder / "model.safetensors")
    if tensors[name].is_floating_point():
        del tensors["model.layers.1.mlp.down_proj.scales"]
        save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model.safetensors: .*down_proj") as refusal:
        load_weights(folder, read_config(folder))
    assert "\n" not in str(refusal.value)
