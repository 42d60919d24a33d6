"""The fields of a ``config.json`` that single architectures of GGUF files have beside the common ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from specclient.errors import CheckpointError


class ArchitectureFields(Protocol):
    """The fields of a header that begin with its architecture's name."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or a default if it is missing."""
        ...

    def need(self, name: str) -> Any:
        """Return a field; raises CheckpointError if it is missing."""
        ...

    def refused(self, name: str, value: Any, allowed: str) -> CheckpointError:
        """Return the error for a field's value."""
        ...


_GEMMA3_27B = 62
"""Layers of Gemma 3's largest model, whose scale of attention scores alone is not that of its heads."""


def _windows(own: ArchitectureFields) -> dict[str, Any]:
    window = own.get("attention.sliding_window")
    return {"sliding_window": window} if window else {}


def _mixtral(own: ArchitectureFields) -> dict[str, Any]:
    counts = {"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
    return {field: own.need(name) for field, name in counts.items()} | _windows(own)


def _qwen3_moe(own: ArchitectureFields) -> dict[str, Any]:
    return {
        "num_experts": own.need("expert_count"),
        "num_experts_per_tok": own.need("expert_used_count"),
        "moe_intermediate_size": own.need("expert_feed_forward_length"),
        "norm_topk_prob": True,
    }


def _gemma3(own: ArchitectureFields) -> dict[str, Any]:
    hidden, heads = own.need("embedding_length"), own.need("attention.head_count")
    scalar = own.get("attention.key_length", 256)
    if own.get("block_count") == _GEMMA3_27B and isinstance(hidden, int) and isinstance(heads, int) and heads:
        scalar = hidden / heads
    return {
        "query_pre_attn_scalar": scalar,
        "rope_local_base_freq": own.get("rope.freq_base_swa", 10_000.0),
        "final_logit_softcapping": own.get("final_logit_softcapping") or None,
        "sliding_window": own.need("attention.sliding_window"),
    }


def _olmo2(own: ArchitectureFields) -> dict[str, Any]:
    if window := own.get("attention.sliding_window"):  # of OLMo 3, whose layers are of two kinds
        raise own.refused("attention.sliding_window", window, "to leave it out")
    return {}


FAMILY_FIELDS: Mapping[str, Callable[[ArchitectureFields], dict[str, Any]]] = {
    "mistral": _windows,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "gemma3_text": _gemma3,
    "olmo2": _olmo2,
    "phi3": _windows,
}
"""Functions that return the fields of ``config.json``, by ``model_type``."""
