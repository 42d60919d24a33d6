"""Reading of published EAGLE and EAGLE-3 heads, checked against their target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import checkpoint_errors, shown
from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.layer_config import read_layer_config
from specclient_local.model.heads.tensors import CheckpointTensors
from specclient_local.model.weights import interleave

SPECULATORS = ("eagle", "eagle3")


@dataclass(frozen=True, slots=True)
class EagleCheckpoint:
    """A loaded EAGLE or EAGLE-3 head."""

    shape: EagleShape
    weights: EagleWeights
    method: Literal["eagle"] = "eagle"


def read_eagle_shape(raw: Mapping[str, Any], folder: Path, target: DecoderConfig) -> EagleShape:
    """Read the shape of an EAGLE head, and check that it fits the target."""
    path = folder / "config.json"
    with checkpoint_errors(path):
        return _checked_eagle_shape(raw, path, target)


def _checked_eagle_shape(raw: Mapping[str, Any], path: Path, target: DecoderConfig) -> EagleShape:
    kind = raw.get("speculators_model_type")
    if kind is None:
        layer, kind = raw, "eagle3" if "draft_vocab_size" in raw else "eagle"
    elif kind in SPECULATORS:
        layer = raw.get("transformer_layer_config") or {}
    else:
        raise CheckpointError(
            f"{path}: speculators_model_type is {shown(kind)}; supported are {', '.join(SPECULATORS)}."
        )
    if raw.get("layernorms"):
        raise CheckpointError(
            f"{path}: layernorms is {shown(raw['layernorms'])}; supported is false. Choose an eagle3 "
            "checkpoint."
        )
    config = read_layer_config(layer, path)
    if config.layers != 1:
        raise CheckpointError(
            f"{path}: num_hidden_layers is {config.layers}; heads of one layer are supported. Name a folder "
            "of heads; a small model of its own is named as draft."
        )
    shape = EagleShape(
        kind="eagle3" if kind == "eagle3" else "eagle",
        config=config,
        target_hidden=int(raw.get("target_hidden_size") or config.hidden_size),
        taps=_tuple(raw.get("eagle_aux_hidden_state_layer_ids")),
        draft_vocab=int(raw.get("draft_vocab_size") or config.vocab_size) if kind == "eagle3" else 0,
        **{name: bool(raw.get(name, False)) for name in _FLAGS},
    )
    _check_fit(shape, target, path)
    return shape


_FLAGS = ("norm_before_residual", "norm_output", "norm_before_fc", "fc_norm")


def _tuple(ids: Any) -> tuple[int, ...] | None:
    return tuple(map(int, ids)) if ids else None


def _check_fit(shape: EagleShape, target: DecoderConfig, path: Path) -> None:
    """Raise :class:`CheckpointError` if the head belongs to another target."""
    pairs = (
        ("hidden size", shape.target_hidden, target.hidden_size),
        ("vocabulary", shape.config.vocab_size, target.vocab_size),
    )
    for name, own, theirs in pairs:
        if own != theirs:
            raise CheckpointError(
                f"{path}: the head belongs to a target with {name} {own}, but this target's is {theirs}; "
                "choose heads made for this target."
            )
    wrong = [tap for tap in shape.tapped(target.layers) if not 0 <= tap <= target.layers]
    if wrong:
        raise CheckpointError(
            f"{path}: eagle_aux_hidden_state_layer_ids has {wrong[0]}, but the target has {target.layers} "
            "layers; choose heads made for this target."
        )
    if not shape.config.llama_layout or shape.config.rope.rotated is not None:
        raise CheckpointError(
            f"{path}: model_type of the head's layer is {shape.config.model_type}; supported are layers of "
            "Llama's layout (llama, mistral, qwen2, qwen3)."
        )
    if shape.config.mlp_bias:
        raise CheckpointError(f"{path}: mlp_bias is true; supported is false.")


def read_eagle(shape: EagleShape, target: DecoderConfig, tensors: CheckpointTensors) -> EagleCheckpoint:
    """Read an EAGLE head; its tensors' names decide between the layouts."""
    three, width = shape.kind == "eagle3", shape.width
    prefix = next(
        (p for p in ("midlayer.", "transformer.") if f"{p}self_attn.q_proj.weight" in tensors), "layers.0."
    )
    fc = "fusion_fc." if "fusion_fc.weight" in tensors else "fc."
    seen = shape.depths * shape.target_hidden if three else 2 * width
    layer = _layer(shape.config, prefix, 2 * width if three else width, tensors)
    weights = EagleWeights(
        fc=tensors.take(f"{fc}weight", (width, seen)),
        fc_bias=tensors.maybe(f"{fc}bias", (width,)),
        **layer,
    )
    if not three:
        return EagleCheckpoint(shape, weights)
    weights.token_norm = tensors.take(f"{prefix}input_layernorm.weight", (width,))
    weights.state_norm = tensors.take(f"{prefix}hidden_norm.weight", (width,))
    weights.norm = tensors.take("norm.weight", (width,))
    weights.head = tensors.take("lm_head.weight", (shape.draft_vocab, width))
    weights.embedding = tensors.maybe("embed_tokens.weight", (target.vocab_size, width))
    if weights.embedding is None and width != target.hidden_size:
        tensors.take("embed_tokens.weight", (target.vocab_size, width))  # raises: the tensor is missing
    if shape.norm_before_fc:
        weights.fc_norms = (tensors.take("input_norm.weight", (seen,)),)
    elif shape.fc_norm:
        each = range(shape.depths)
        weights.fc_norms = tuple(tensors.take(f"fc_norm.{i}.weight", (shape.target_hidden,)) for i in each)
    if shape.draft_vocab != target.vocab_size or "d2t" in tensors:
        weights.ids = _ids(shape, target, tensors)
    return EagleCheckpoint(shape, weights)


def _ids(shape: EagleShape, target: DecoderConfig, tensors: CheckpointTensors) -> Tensor:
    """Return the target's id of each draft id; ``d2t`` contains the difference of the two."""
    away = tensors.integers("d2t", (shape.draft_vocab,))
    ids = away + torch.arange(shape.draft_vocab, device=away.device)
    if len(torch.unique(ids)) != len(ids) or ids.min() < 0 or ids.max() >= target.vocab_size:
        raise CheckpointError(
            f"{tensors.path}: tensor d2t does not map to {shape.draft_vocab} different tokens of the "
            f"target's {target.vocab_size}; the two belong to different models."
        )
    return ids


def _layer(c: DecoderConfig, prefix: str, seen: int, tensors: CheckpointTensors) -> dict[str, Any]:
    """Read and fuse a layer's tensors; ``seen`` is the input size of the attention projections."""
    hidden, ff, d = c.hidden_size, c.intermediate_size, c.head_dim
    heads = {"q": c.heads, "k": c.kv_heads, "v": c.kv_heads}
    attention = f"{prefix}self_attn."

    def turned(name: str, tensor: Tensor) -> Tensor:
        return tensor if name == "v" else interleave(tensor, d)

    def fused(end: str, *rest: int) -> Tensor:
        parts = [
            turned(n, tensors.take(f"{attention}{n}_proj.{end}", (h * d, *rest))) for n, h in heads.items()
        ]
        return torch.cat(parts)

    normed = f"{attention}q_norm.weight" in tensors
    norms = [
        interleave(tensors.take(f"{attention}{n}_norm.weight", (d,)), d).expand(heads[n], d)
        for n in (("q", "k") if normed else ())
    ]
    mlp = [tensors.take(f"{prefix}mlp.{n}_proj.weight", (ff, hidden)) for n in ("gate", "up")]
    return {
        "qkv": fused("weight", seen),
        "qkv_bias": fused("bias") if f"{attention}q_proj.bias" in tensors else None,
        "qk_norm": torch.cat(norms) if norms else None,
        "o": tensors.take(f"{attention}o_proj.weight", (hidden, c.heads * d)),
        "o_bias": tensors.maybe(f"{attention}o_proj.bias", (hidden,)),
        "post_norm": tensors.take(f"{prefix}post_attention_layernorm.weight", (hidden,)),
        "gate_up": torch.cat(mlp),
        "down": tensors.take(f"{prefix}mlp.down_proj.weight", (hidden, ff)),
    }


def with_taps(shape: EagleShape, target: DecoderConfig) -> EagleShape:
    """Return the shape with explicit depths at which an EAGLE-3 head reads the target's hidden states."""
    return replace(shape, taps=shape.tapped(target.layers)) if shape.kind == "eagle3" else shape
