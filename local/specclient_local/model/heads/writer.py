"""Writing of trained heads in published formats: EAGLE as ``speculators``, Medusa as its authors' repository.

``speculators`` (github.com/vllm-project/speculators, ``config.py``, ``models/eagle3``) does not support
Medusa heads; they are written for github.com/FasterDecoding/Medusa, where ``original_lm_head`` means that
the heads share the target's head.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.checkpoint import EAGLE_FILE, MEDUSA_FILE
from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.medusa_weights import MedusaShape, MedusaWeights
from specclient_local.model.layer_weights import LayerWeights

_VERSION = "0.3.0"
"""The last version of ``speculators`` that supports both kinds of EAGLE heads."""


def write_eagle(
    folder: Path, shape: EagleShape, weights: EagleWeights, target: str, *, guesses: int, dtype: torch.dtype
) -> None:
    """Write an EAGLE or P-EAGLE head.

    Args:
        folder: created if it does not exist.
        shape: the head's shape.
        weights: the head's weights.
        target: folder or hub id of its target.
        guesses: recommended number of drafted tokens per round.
        dtype: type of the tensors in the file.

    Raises:
        ValueError: the layer has biases, query and key norms or scaled RoPE, which are never trained here.
    """
    others = (weights.qkv_bias, weights.o_bias, weights.qk_norm)
    if any(tensor is not None for tensor in others) or shape.config.rope.kind != "default":
        raise ValueError("the head's layer has biases, norms of its heads or stretched rotations")
    three, c = shape.kind == "eagle3", shape.config
    tensors = _layer(c, "layers.0." if three else "transformer.", weights)
    for i, layer in enumerate(weights.further, start=1):
        tensors |= _layer(c, f"layers.{i}.", layer)
        tensors[f"layers.{i}.input_layernorm.weight"] = layer.input_norm
    if weights.mask_states is not None:
        tensors["mask_hidden"] = weights.mask_states.view(1, 1, -1)
    tensors["fc.weight" if three else "fusion_fc.weight"] = weights.fc
    if weights.fc_bias is not None:
        tensors["fc.bias" if three else "fusion_fc.bias"] = weights.fc_bias
    named = {
        "layers.0.input_layernorm.weight": weights.token_norm,
        "layers.0.hidden_norm.weight": weights.state_norm,
        "norm.weight": weights.norm,
        "lm_head.weight": weights.head,
        "embed_tokens.weight": weights.embedding,
    }
    tensors |= {name: tensor for name, tensor in named.items() if tensor is not None}
    if shape.norm_before_fc:
        tensors["input_norm.weight"] = weights.fc_norms[0]
    elif shape.fc_norm:
        tensors |= {f"fc_norm.{i}.weight": norm for i, norm in enumerate(weights.fc_norms)}
    converted = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    if weights.ids is not None:
        known = torch.zeros(c.vocab_size, dtype=torch.bool)
        known[weights.ids.cpu()] = True
        converted |= {"d2t": weights.ids.cpu() - torch.arange(shape.draft_vocab), "t2d": known}
    _save(folder, _eagle_config(shape, weights, target, guesses), converted, EAGLE_FILE)


def write_medusa(
    folder: Path, shape: MedusaShape, weights: MedusaWeights, target: str, *, dtype: torch.dtype
) -> None:
    """Write Medusa heads; the arguments are as in :func:`write_eagle`."""
    tensors: dict[str, Tensor] = {}
    for i, blocks in enumerate(weights.blocks):
        for j, (weight, bias) in enumerate(blocks):
            tensors[f"{i}.{j}.linear.weight"], tensors[f"{i}.{j}.linear.bias"] = weight, bias
    tensors |= {f"{i}.{shape.blocks}.weight": head for i, head in enumerate(weights.heads)}
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "base_model_name_or_path": target,
        "medusa_num_heads": shape.heads,
        "medusa_num_layers": shape.blocks,
        "hidden_size": shape.hidden,
        "vocab_size": shape.vocab,
        "original_lm_head": shape.shares_head,
    }
    _save(folder, config, {name: tensor.to(dtype) for name, tensor in tensors.items()}, MEDUSA_FILE)


def _eagle_config(shape: EagleShape, weights: EagleWeights, target: str, guesses: int) -> dict[str, Any]:
    kind = "peagle" if shape.parallel else shape.kind
    config: dict[str, Any] = {
        "architectures": [_SPECULATORS[kind]],
        "speculators_model_type": kind,
        "speculators_version": _VERSION,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": guesses}],
            "verifier": {"name_or_path": target, "architectures": [_ARCHITECTURES[shape.config.model_type]]},
        },
        "transformer_layer_config": _transformer(shape.config),
    }
    if kind == "eagle":
        return {**config, "layernorms": False, "fusion_bias": weights.fc_bias is not None}
    parallel = {"mask_token_id": shape.mask_token} if shape.parallel else {}
    return {
        **config,
        **parallel,
        "draft_vocab_size": shape.draft_vocab,
        "target_hidden_size": shape.target_hidden if shape.target_hidden != shape.width else None,
        "eagle_aux_hidden_state_layer_ids": None if shape.taps is None else list(shape.taps),
        "norm_before_residual": shape.norm_before_residual,
        "norm_before_fc": shape.norm_before_fc,
        "fc_norm": shape.fc_norm,
        "norm_output": shape.norm_output,
    }


_SPECULATORS = {"eagle": "EagleSpeculator", "eagle3": "Eagle3Speculator", "peagle": "PEagleSpeculator"}
"""The architecture of each kind of heads."""

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def _transformer(c: DecoderConfig) -> dict[str, Any]:
    """Return a layer's configuration in the format of transformers, with default RoPE."""
    return {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "max_position_embeddings": c.context,
        "rms_norm_eps": c.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rope.theta},
        "rope_theta": c.rope.theta,
        "vocab_size": c.vocab_size,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }


def _layer(c: DecoderConfig, prefix: str, w: EagleWeights | LayerWeights) -> dict[str, Tensor]:
    """Split a layer's fused tensors."""
    sizes = [c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
    q, k, v = torch.split(w.qkv.detach(), sizes)
    gate, up = w.gate_up.detach().chunk(2)
    return {
        f"{prefix}self_attn.q_proj.weight": _halves(q, c.head_dim),
        f"{prefix}self_attn.k_proj.weight": _halves(k, c.head_dim),
        f"{prefix}self_attn.v_proj.weight": v,
        f"{prefix}self_attn.o_proj.weight": w.o,
        f"{prefix}mlp.gate_proj.weight": gate,
        f"{prefix}mlp.up_proj.weight": up,
        f"{prefix}mlp.down_proj.weight": w.down,
        f"{prefix}post_attention_layernorm.weight": w.post_norm,
    }


def _halves(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder each head's rows from pairs to (first halves, second halves), the inverse of ``interleave``."""
    return rows.view(-1, head_dim // 2, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


def _save(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], file: str) -> None:
    """Write the files of a folder, each atomically, the weights last."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "config.json.partial"
    text.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    text.replace(folder / "config.json")
    partial = folder / f"{file}.partial"
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(contiguous, partial, metadata={"format": "pt"})
    partial.replace(folder / file)
