"""Reading of published EAGLE, EAGLE-3 and P-EAGLE heads, checked against their target.

A P-EAGLE head is an EAGLE-3 head with further layers, a mask token and the tensor ``mask_hidden``. In the
format of ``speculators``, ``speculators_model_type`` is ``peagle``; in that of its authors, ``config.json``
is that of an EAGLE-3 head with ``ptd_token_id`` or ``pard_token`` (vLLM, ``v1/spec_decode``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import checkpoint_errors, shown, whole_number
from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.layer_config import read_layer_config
from specclient_local.model.heads.tensors import CheckpointTensors
from specclient_local.model.layer_weights import LayerWeights
from specclient_local.model.weights import interleave, tensor_names

SPECULATORS = ("eagle", "eagle3", "peagle")
MASK_TENSOR = "mask_hidden"
MASK_NAMES = ("mask_token_id", "pard_token", "ptd_token_id")
"""The fields of ``config.json`` that name the mask token of a P-EAGLE head; others do not have them."""

_MAX_LAYERS = 16  # of a P-EAGLE head; the published ones have four
_MAX_BLOCK = 1024  # tokens that it was trained to draft


@dataclass(frozen=True, slots=True)
class EagleCheckpoint:
    """A loaded EAGLE, EAGLE-3 or P-EAGLE head."""

    shape: EagleShape
    weights: EagleWeights

    @property
    def method(self) -> Literal["eagle", "peagle"]:
        """The method of its drafts."""
        return "peagle" if self.shape.parallel else "eagle"


def read_eagle_shape(raw: Mapping[str, Any], folder: Path, target: DecoderConfig) -> EagleShape:
    """Read the shape of an EAGLE head, and check that it fits the target."""
    path = folder / "config.json"
    with checkpoint_errors(path):
        shape = _checked_eagle_shape(raw, path, target)
    if shape.parallel and MASK_TENSOR not in tensor_names(folder):
        raise CheckpointError(
            f"{folder}: tensor {MASK_TENSOR} is missing, which a P-EAGLE head reads for tokens that are not "
            "drafted yet; the checkpoint is cut short, or of another kind than its config.json says."
        )
    return shape


def _checked_eagle_shape(raw: Mapping[str, Any], path: Path, target: DecoderConfig) -> EagleShape:
    kind = raw.get("speculators_model_type")
    if kind is None:
        layer, kind = raw, "eagle3" if "draft_vocab_size" in raw else "eagle"
        parallel = kind == "eagle3" and any(raw.get(name) is not None for name in MASK_NAMES)
        kind = "peagle" if parallel else kind
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
    if config.layers != 1 and kind != "peagle":
        raise CheckpointError(
            f"{path}: num_hidden_layers is {config.layers}; heads of one layer are supported. Name a folder "
            "of heads; a small model of its own is named as draft."
        )
    if config.layers > _MAX_LAYERS:
        raise CheckpointError(
            f"{path}: num_hidden_layers is {config.layers}; P-EAGLE heads of 1 to {_MAX_LAYERS} layers are "
            "supported. Name a folder of heads; a small model of its own is named as draft."
        )
    three = kind != "eagle"
    shape = EagleShape(
        kind="eagle3" if three else "eagle",
        config=config,
        target_hidden=int(raw.get("target_hidden_size") or config.hidden_size),
        taps=_tuple(raw.get("eagle_aux_hidden_state_layer_ids")),
        draft_vocab=int(raw.get("draft_vocab_size") or config.vocab_size) if three else 0,
        mask_token=_mask_token(raw, path, config.vocab_size) if kind == "peagle" else None,
        block=_block(raw, path) if kind == "peagle" else 0,
        **{name: bool(raw.get(name, False)) for name in _FLAGS},
    )
    _check_fit(shape, target, path)
    return shape


_FLAGS = ("norm_before_residual", "norm_output", "norm_before_fc", "fc_norm")


def _mask_token(raw: Mapping[str, Any], path: Path, vocab: int) -> int:
    """Return the id of the mask token, by ``speculators``' name or by those that vLLM reads."""
    name = next((name for name in MASK_NAMES if raw.get(name) is not None), None)
    if name is None:
        raise CheckpointError(
            f"{path}: mask_token_id is missing, which a P-EAGLE head reads for tokens that are not drafted "
            "yet; add the id that the head was trained with."
        )
    return whole_number(raw, name, path, 0, vocab - 1)


def _block(raw: Mapping[str, Any], path: Path) -> int:
    """Return the number of tokens that a head was trained to draft, as ``speculators`` states it; or 0."""
    proposals = (raw.get("speculators_config") or {}).get("proposal_methods") or [{}]
    if proposals[0].get("speculative_tokens") is None:
        return 0
    return whole_number(proposals[0], "speculative_tokens", path, 1, _MAX_BLOCK)


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
    if shape.parallel:
        weights.mask_states = tensors.vector(MASK_TENSOR, seen)
        weights.further = tuple(_further(shape.config, i, tensors) for i in range(1, shape.config.layers))
    return EagleCheckpoint(shape, weights)


def _further(c: DecoderConfig, number: int, tensors: CheckpointTensors) -> LayerWeights:
    """Read a layer after the first one, whose input is the output of the layer before it."""
    prefix = f"layers.{number}."
    return LayerWeights(
        input_norm=tensors.take(f"{prefix}input_layernorm.weight", (c.hidden_size,)),
        gate_up_bias=None,
        down_bias=None,
        **_layer(c, prefix, c.hidden_size, tensors),
    )


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
