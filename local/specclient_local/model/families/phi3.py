"""Phi 3 and Phi 4: Llama's layers, with fused projections and a part of each head rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specclient_local.model.families.family import Family
from specclient_local.model.families.fields import ConfigFields
from specclient_local.model.rope_config import Rope

if TYPE_CHECKING:
    from torch import Tensor

    from specclient_local.model.layer_weights import LayerTensors


class Phi3(Family):
    """Phi 3, 3.5 and 4, with the mini models of partial rotation."""

    model_types = ("phi3",)

    def rope(self, fields: ConfigFields, head_dim: int) -> Rope:
        """Read the rotary embeddings; older files name longrope ``su`` or ``yarn``."""
        raw = {**fields.raw}
        for name in ("rope_parameters", "rope_scaling"):
            if isinstance(table := raw.get(name), Mapping):
                raw[name] = _renamed(table)
        return replace(fields, raw=raw).rope(head_dim)

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, and for each layer whether it has one."""
        window = fields.window()
        return window, (window is not None,) * layers

    def qkv(self, tensors: LayerTensors) -> tuple[Tensor, Tensor | None]:
        """Return the fused weight of queries, keys and values."""
        c = tensors.config
        sizes = [c.heads * c.head_dim, *[c.kv_heads * c.head_dim] * 2]
        fused = tensors.read("self_attn.qkv_proj.weight", sum(sizes), c.hidden_size)
        q, k, v = tensors.split(fused, sizes)
        return tensors.join([tensors.in_pairs(q), tensors.in_pairs(k), v]), None

    def gate_up(self, tensors: LayerTensors) -> Tensor:
        """Return the fused weight of a feed-forward network."""
        c = tensors.config
        return tensors.hold(tensors.read("mlp.gate_up_proj.weight", 2 * c.intermediate_size, c.hidden_size))


def _renamed(table: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {name: "longrope" for name in ("rope_type", "type") if table.get(name) in ("su", "yarn")}
    return {**table, **kinds}
