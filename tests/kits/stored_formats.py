"""Checkpoints in the quantised formats that others write: GPTQ, AWQ, compressed-tensors and fp8."""

from __future__ import annotations

import json
import shutil

import torch
from safetensors.torch import load_file, save_file

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
