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

from specclient.errors import CheckpointError

IDS = list(range(5, 45))
AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)


def packed(numbers, bits):
    """Pack numbers ``[N, M]`` into 32-bit words along their last dimension, lowest bits first."""
    each = 32 // bits
    words = numbers.long().reshape(len(numbers), -1, each) << torch.arange(0, 32, bits)
    return words.sum(-1).to(torch.int64).sub(2**32 * (words.sum(-1) >= 2**31)).to(torch.int32)


def rounded(weight, bits, group, signed=False):
    """Round groups of a weight's inputs; return numbers, zero points and scales, and the rounded weight."""
    blocks = weight.view(len(weight), -1, group)
    low, high = blocks.amin(-1), blocks.amax(-1)
    scale = ((high - low) / (2**bits - 1)).half().float()
    zero = (-low / scale).round().clamp(1, 2**bits - 1)
    if signed:
        scale, zero = (blocks.abs().amax(-1) / (2 ** (bits - 1) - 1)).half().float(), torch.zeros_like(low)
    bounds = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    numbers = (blocks / scale[..., None] + zero[..., None]).round().clamp(*bounds)
    exact = (numbers - zero[..., None]) * scale[..., None]
    return numbers.view(weight.shape), zero, scale, exact.view(weight.shape)


def gptq(weight, bits, *, offset=1, shuffled=False):
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(1))
    group = torch.arange(weight.shape[1]) // 16
    if not shuffled:
        order = torch.arange(weight.shape[1])
    numbers, zero, scale, exact = rounded(weight[:, order], bits, 16)
    back = order.argsort()
    tensors = {
        "qweight": packed(numbers[:, back], bits).t(),
        "qzeros": packed(zero.t() - offset, bits),
        "scales": scale.t().half(),
        "g_idx": group[back].int(),
    }
    return tensors, exact[:, back]


def without(quantised, name):
    return {end: tensor for end, tensor in quantised[0].items() if end != name}, quantised[1]


def awq(weight):
    numbers, zero, scale, exact = rounded(weight, 4, 16)

    def columns(rows):
        ordered = rows.reshape(len(rows), -1, 8)[:, :, list(AWQ_COLUMNS)]
        return packed(ordered.flatten(1), 4)

    tensors = {"qweight": columns(numbers.t()), "qzeros": columns(zero.t()), "scales": scale.t().half()}
    return tensors, exact


def compressed(weight, bits, *, zeros=False):
    numbers, zero, scale, exact = rounded(weight, bits, 16, signed=not zeros)
    half = 0 if zeros else 2 ** (bits - 1)
    tensors = {
        "weight_packed": packed(numbers + half, bits),
        "weight_scale": scale.half(),
        "weight_shape": torch.tensor(weight.shape),
    }
    if zeros:
        tensors["weight_zero_point"] = packed(zero.t(), bits).t().contiguous()
    return tensors, exact


def int8_rows(weight):
    numbers, _, scale, exact = rounded(weight, 8, weight.shape[1], signed=True)
    return {"weight": numbers.to(torch.int8), "weight_scale": scale.half()}, exact


def fp8_rows(weight):
    scale = weight.abs().amax(-1, keepdim=True) / 448
    numbers = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": numbers, "weight_scale": scale}, numbers.float() * scale


def fp8_blocks(weight):
    rows, columns = -(-weight.shape[0] // 20), -(-weight.shape[1] // 20)
    scale = torch.rand(rows, columns, generator=torch.Generator().manual_seed(2)) + 0.5
    wide = scale.repeat_interleave(20, 0)[: len(weight)].repeat_interleave(20, 1)[:, : weight.shape[1]]
    numbers = (weight / wide).to(torch.float8_e4m3fn)
    return {"weight": numbers, "weight_scale_inv": scale}, numbers.float() * wide


def groups(bits, kind="int", **weights):
    return {"config_groups": {"group_0": {"weights": {"num_bits": bits, "type": kind, **weights}}}}


PACKED, INT, FLOAT = ({"format": f"{n}-quantized"} for n in ("pack", "int", "float"))
COMPRESSED = {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}
FORMATS = {
    "gptq 4 bits": (lambda w: gptq(w, 4), {"quant_method": "gptq", "bits": 4}),
    "gptq 8 bits": (lambda w: gptq(w, 8), {"quant_method": "gptq", "bits": 8}),
    "gptq by activation": (lambda w: gptq(w, 4, shuffled=True), {"quant_method": "gptq", "bits": 4}),
    "gptq v2": (
        lambda w: without(gptq(w, 4, offset=0), "g_idx"),
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2", "group_size": 16},
    ),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "version": "gemm"}),
    "compressed 4 bits": (lambda w: compressed(w, 4), COMPRESSED | PACKED | groups(4, group_size=16)),
    "compressed 8 bits": (lambda w: compressed(w, 8), COMPRESSED | PACKED | groups(8, group_size=16)),
    "compressed with zero points": (
        lambda w: compressed(w, 4, zeros=True),
        COMPRESSED | PACKED | groups(4, group_size=16, symmetric=False),
    ),
    "compressed int8": (int8_rows, COMPRESSED | INT | groups(8, strategy="channel")),
    "compressed fp8": (fp8_rows, COMPRESSED | FLOAT | groups(8, "float", strategy="channel")),
    "fp8 blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [20, 20]}),
}


def quantised(base, folder, quantise, table):
    """Write a quantised copy of a checkpoint, and a copy with the exact numbers of its matrices."""
    exact_folder = folder.with_name(folder.name + "-exact")
    for each in (folder, exact_folder):
        shutil.copytree(base, each)
    stored, exact = load_file(base / "model.safetensors"), load_file(base / "model.safetensors")
    for name in [n for n in stored if "_proj.weight" in n]:
        tensors, exact[name] = quantise(stored.pop(name))
        stem = name.removesuffix(".weight")
        stored |= {f"{stem}.{end}": tensor.contiguous() for end, tensor in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({n: t.contiguous() for n, t in exact.items()}, exact_folder / "model.safetensors")
    settings = json.loads((folder / "config.json").read_text()) | {"quantization_config": table}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder, exact_folder


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
