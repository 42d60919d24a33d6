"""The metadata of a GGUF file as the fields of a ``config.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import shown
from specclient_local.model.gguf.family_fields import FAMILY_FIELDS
from specclient_local.model.gguf.header import GgufHeader, read_header

ARCHITECTURES: Mapping[str, str] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma3": "gemma3_text",
    "olmo2": "olmo2",
    "phi3": "phi3",
}
"""``model_type`` of each architecture. Mistral's and Mixtral's models are of the architecture ``llama``."""

_ALLOWED = {
    "llama": ("expert_count",),
    "qwen3moe": ("expert_count",),
    "gemma3": ("final_logit_softcapping",),
}
"""Fields of the next list that an architecture may have."""

_LONG_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")
"""The tensors with Phi's divisors of each frequency, up to the original context and beyond it."""

ROPE_FACTORS = "rope_freqs.weight"
"""The tensor with a divisor of each frequency, in which Llama 3's scaling of RoPE is stored."""

_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_UNSUPPORTED = ("expert_count", "expert_shared_count", "logit_scale", "attention.scale", "embedding_scale",
                "residual_scale", "attention.clamp_kqv", "attn_logit_softcapping",
                "final_logit_softcapping")  # fmt: skip
"""Fields that change what a model computes, and are absent or zero in the supported ones."""


def config_fields(path: Path) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the fields of a ``config.json``, and the end token ids.

    Raises:
        CheckpointError: names the file, the field and what is supported.
        ConfigurationError: the ``gguf`` package is not installed.
    """
    header = read_header(path)
    architecture = header.value("general.architecture")
    kind = ARCHITECTURES.get(architecture) if isinstance(architecture, str) else None
    if kind is None:
        raise CheckpointError(
            f"{path}: architecture {shown(architecture)} is not supported; supported are "
            f"{', '.join(ARCHITECTURES)}. Choose a file of one of these, or the model's safetensors."
        )
    own = _OwnFields(header, str(architecture))
    own.refuse_unsupported()
    if kind == "llama" and own.get("expert_count"):
        kind = "mixtral"
    elif kind == "llama" and own.get("attention.sliding_window"):
        kind = "mistral"
    hidden, heads = own.need("embedding_length"), own.need("attention.head_count")
    head_dim = own.get("attention.key_length")
    if head_dim is None and isinstance(hidden, int) and isinstance(heads, int) and heads:
        head_dim = hidden // heads
    if (value_dim := own.get("attention.value_length", head_dim)) != head_dim:
        raise own.refused("attention.value_length", value_dim, f"attention.key_length, {shown(head_dim)}")
    raw: dict[str, Any] = {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": own.need("feed_forward_length"),
        "num_hidden_layers": own.need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": own.get("attention.head_count_kv"),
        "head_dim": head_dim,
        "rms_norm_eps": own.need("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": own.need("context_length"),
        "vocab_size": _vocabulary(header),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in header.tensors,
        "bos_token_id": header.values.get("tokenizer.ggml.bos_token_id"),
        "rope_parameters": _rope(own, head_dim),
    }
    if kind in FAMILY_FIELDS:
        raw |= FAMILY_FIELDS[kind](own)
    ends = [header.values.get(f"tokenizer.ggml.{name}") for name in _ENDS]
    return raw, tuple(dict.fromkeys(end for end in ends if isinstance(end, int)))


class _OwnFields:
    """The fields of a header that begin with its architecture's name."""

    def __init__(self, header: GgufHeader, architecture: str) -> None:
        self.header = header
        self.architecture = architecture

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or a default if it is missing."""
        return self.header.values.get(f"{self.architecture}.{name}", default)

    def need(self, name: str) -> Any:
        """Return a field; raises CheckpointError if it is missing."""
        return self.header.value(f"{self.architecture}.{name}")

    def refused(self, name: str, value: Any, allowed: str) -> CheckpointError:
        """Return the error for a field's value."""
        return CheckpointError(
            f"{self.header.path}: {self.architecture}.{name} is {shown(value)}; supported is {allowed}. "
            "Choose another file, or the model's safetensors with runner='hf'."
        )

    def refuse_unsupported(self) -> None:
        """Raise CheckpointError if a field states what the decoder does not compute."""
        for name in _UNSUPPORTED:
            if name not in _ALLOWED.get(self.architecture, ()) and (value := self.get(name)):
                raise self.refused(name, value, "0, or to leave it out")


def _vocabulary(header: GgufHeader) -> int:
    """Return the number of rows of the embedding: the tokens, and any padding."""
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(
            f"{header.path}: tensor token_embd.weight is missing or no matrix; download it again."
        )
    return embedding.shape[0]


def _rope(own: _OwnFields, head_dim: Any) -> dict[str, Any]:
    """Return RoPE's parameters in transformers' terms."""
    dimensions = own.get("rope.dimension_count", head_dim)
    table: dict[str, Any] = {"rope_theta": own.get("rope.freq_base", 10_000.0)}
    if own.architecture == "phi3":
        return table | _phi_rope(own, dimensions, head_dim)
    if dimensions != head_dim:
        raise own.refused("rope.dimension_count", dimensions, f"the head's, {shown(head_dim)}")
    kind, factor = own.get("rope.scaling.type", "none"), own.get("rope.scaling.factor")
    if "rope.scaling.type" not in own.header.values and (linear := own.get("rope.scale_linear")):
        kind, factor = own.get("rope.scaling.type", "linear"), linear
    if ROPE_FACTORS in own.header.tensors:
        if kind not in ("none", ""):
            raise own.refused("rope.scaling.type", kind, f"'none' beside {ROPE_FACTORS}")
        factors = _rope_factors(own.header, ROPE_FACTORS)
        return table | {
            "rope_type": "longrope",
            "short_factor": factors,
            "long_factor": factors,
            "factor": 1.0,
            "attention_factor": 1.0,
        }
    if kind in ("none", ""):
        return table
    if kind == "linear":
        return table | {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise own.refused("rope.scaling.type", kind, "'none', 'linear' or 'yarn'")
    table |= {"rope_type": "yarn", "factor": factor}
    original = own.get("rope.scaling.original_context_length")
    if original is not None:
        table["original_max_position_embeddings"] = original
    for name in ("beta_fast", "beta_slow"):
        table[name] = own.get(f"rope.scaling.yarn_{name}")
    scale = own.get("rope.scaling.attn_factor")
    if isinstance(scale, float) and isinstance(factor, float) and factor > 0.0:
        table["attention_factor"] = scale * (0.1 * math.log(factor) + 1.0)
    return table


def _phi_rope(own: _OwnFields, dimensions: Any, head_dim: Any) -> dict[str, Any]:
    """Return the RoPE of Phi: a part of each head is turned, and longer contexts have factors."""
    if not isinstance(dimensions, int) or not isinstance(head_dim, int) or not 0 < dimensions <= head_dim:
        raise own.refused("rope.dimension_count", dimensions, f"1 to the head's, {shown(head_dim)}")
    table: dict[str, Any] = {"partial_rotary_factor": dimensions / head_dim}
    if not all(name in own.header.tensors for name in _LONG_FACTORS):
        return table
    short, long = (_rope_factors(own.header, name) for name in _LONG_FACTORS)
    table |= {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    for name, field in (("original_context_length", "original_max_position_embeddings"),
                        ("attn_factor", "attention_factor")):  # fmt: skip
        if (value := own.get(f"rope.scaling.{name}")) is not None:
            table[field] = value
    return table


def _rope_factors(header: GgufHeader, name: str) -> list[float]:
    """Return the divisor of each frequency, of the tensor with this name."""
    tensor = header.tensors[name]
    if tensor.kind != "F32" or len(tensor.shape) != 1 or tensor.begin is None:
        raise CheckpointError(
            f"{header.path}: tensor {name} has type {tensor.kind} and shape {list(tensor.shape)}; "
            "supported are F32 and one number for each pair of a head. Download it again."
        )
    numbers = np.fromfile(tensor.file or header.path, np.dtype("<f4"), tensor.shape[0], offset=tensor.begin)
    return [float(number) for number in numbers]
