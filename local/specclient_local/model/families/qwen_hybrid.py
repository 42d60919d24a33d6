"""Qwen 3-Next and 3.5: recurrent layers (gated DeltaNet), and some layers of gated attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from specclient.errors import CheckpointError
from specclient_local.model.architecture import DecoderConfig, DeltaConfig, ExpertsConfig
from specclient_local.model.checkpoint_files import shown
from specclient_local.model.families.family import Family
from specclient_local.model.families.fields import MAX_HEAD_DIM, MAX_HEADS, MAX_WIDTH, ConfigFields
from specclient_local.model.families.mixture import Qwen3Moe
from specclient_local.model.rope_config import Rope

if TYPE_CHECKING:
    from torch import Tensor

    from specclient_local.model.layer_weights import (
        DeltaWeights,
        ExpertWeights,
        LayerTensors,
        LayerWeights,
    )

_RECURRENT, _FULL = "linear_attention", "full_attention"
_INTERVAL = 4
"""Every fourth layer has attention, unless the file says otherwise."""
_MAX_KERNEL = 64
_ROTATED = 0.25
"""Share of a head that is rotated, unless the file says otherwise."""


class _Hybrid(Family):
    """Reads recurrent layers and gated attention; norms add 1 to their weights."""

    norm_offset = 1.0
    biased = False

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        fields.only("attention_bias", False)
        config = super().config(fields)
        return replace(config, qk_norm=True, attention_gate=True, delta=_delta(fields, config.layers))

    def head_dim(self, hidden: int, heads: int) -> int:
        """Return the size of a head where ``config.json`` does not have it."""
        del hidden, heads
        return 256

    def rope(self, fields: ConfigFields, head_dim: int) -> Rope:
        """Read the rotary embeddings, which turn a quarter of each head by default."""
        table = fields.raw.get("rope_parameters") or {}
        share = table.get("partial_rotary_factor", fields.raw.get("partial_rotary_factor"))
        if share is None:
            fields = replace(fields, raw={**fields.raw, "partial_rotary_factor": _ROTATED})
        return fields.rope(head_dim)

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return that no layer has a sliding window."""
        del fields
        return None, (False,) * layers

    def layer(self, tensors: LayerTensors) -> LayerWeights:
        """Read and fuse the tensors of a layer; see :class:`Family`."""
        from specclient_local.model.layer_weights import no_weight  # noqa: PLC0415 - imports torch

        c, found = tensors.config, super().layer(tensors)
        if _is_recurrent(tensors):
            return replace(found, delta=self.delta(tensors), qkv=no_weight(), qk_norm=None)
        gate = tensors.hold(self._queries(tensors)[:, c.head_dim :].flatten(0, 1))
        return replace(found, attention_gate=gate)

    def qkv(self, tensors: LayerTensors) -> tuple[Tensor, Tensor | None]:
        """Return the fused weight of queries, keys and values, without the gate; empty if recurrent."""
        from specclient_local.model.layer_weights import no_weight  # noqa: PLC0415 - imports torch

        c = tensors.config
        if _is_recurrent(tensors):
            return no_weight(), None
        size = c.kv_heads * c.head_dim
        k, v = (tensors.read(f"self_attn.{name}_proj.weight", size, c.hidden_size) for name in ("k", "v"))
        q = self._queries(tensors)[:, : c.head_dim].flatten(0, 1)
        return tensors.join([tensors.in_pairs(q), tensors.in_pairs(k), v]), None

    def qk_norm(self, tensors: LayerTensors) -> Tensor:
        """Return the factors of the norms of queries and keys; empty if recurrent."""
        from specclient_local.model.layer_weights import no_weight  # noqa: PLC0415 - imports torch

        return no_weight() if _is_recurrent(tensors) else super().qk_norm(tensors)

    @staticmethod
    def o(tensors: LayerTensors) -> Tensor:
        """Return the weight of the attention's output projection; empty if recurrent."""
        from specclient_local.model.layer_weights import no_weight  # noqa: PLC0415 - imports torch

        return no_weight() if _is_recurrent(tensors) else Family.o(tensors)

    def delta(self, tensors: LayerTensors) -> DeltaWeights:
        """Return the weights of a recurrent layer."""
        from specclient_local.model.layer_weights import DeltaWeights  # noqa: PLC0415 - imports torch

        t, c = tensors, tensors.config
        assert c.delta is not None
        d, prefix = c.delta, "linear_attn."
        width = d.value_heads * d.value_dim
        return DeltaWeights(
            inputs=t.hold(self.delta_inputs(t, d)),
            conv=t.read(f"{prefix}conv1d.weight", d.channels, 1, d.kernel)[:, 0],
            dt_bias=t.read(f"{prefix}dt_bias", d.value_heads),
            decay=t.read(f"{prefix}A_log", d.value_heads).float().exp(),
            norm=t.read(f"{prefix}norm.weight", d.value_dim),
            out=t.hold(t.read(f"{prefix}out_proj.weight", c.hidden_size, width)),
        )

    def delta_inputs(self, tensors: LayerTensors, delta: DeltaConfig) -> Tensor:
        """Return the fused projections ``[inputs, hidden]`` of a recurrent layer's input."""
        raise NotImplementedError

    def _queries(self, tensors: LayerTensors) -> Tensor:
        """Return the rows of queries, then of their gate, of each head: ``[H, 2 D, hidden]``."""
        c = tensors.config
        rows = tensors.read("self_attn.q_proj.weight", 2 * c.heads * c.head_dim, c.hidden_size)
        return rows.view(c.heads, 2 * c.head_dim, c.hidden_size)


class Qwen3Next(_Hybrid, Qwen3Moe):
    """Qwen 3-Next: experts, one of which computes every row."""

    model_types = ("qwen3_next",)

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        config = super().config(fields)
        assert config.experts is not None  # of Qwen3Moe
        shared = fields.number("shared_expert_intermediate_size", MAX_WIDTH, 512)
        normalised = fields.flag("norm_topk_prob", default=True)
        return replace(config, experts=replace(config.experts, shared=shared, normalised=normalised))

    def layer(self, tensors: LayerTensors) -> LayerWeights:
        """Read and fuse the tensors of a layer; see :class:`Family`."""
        found, c = super().layer(tensors), tensors.config
        if c.experts is None or not found.experts:
            return found
        width, prefix = c.experts.shared, "mlp.shared_expert"
        halves = [
            tensors.read(f"{prefix}.{name}_proj.weight", width, c.hidden_size) for name in ("gate", "up")
        ]
        down = tensors.read(f"{prefix}.down_proj.weight", c.hidden_size, width)
        gate = tensors.read(f"{prefix}_gate.weight", 1, c.hidden_size)
        return replace(found, shared_expert=tensors.expert(tensors.join(halves), down), shared_gate=gate)

    def delta_inputs(self, tensors: LayerTensors, delta: DeltaConfig) -> Tensor:
        """Return the fused projections; the file has the rows of a key head and its value heads together."""
        d, hidden = delta, tensors.config.hidden_size
        shared = d.value_heads // d.key_heads
        size = [d.key_dim, d.key_dim, shared * d.value_dim, shared * d.value_dim]
        rows = tensors.read("linear_attn.in_proj_qkvz.weight", d.key_heads * sum(size), hidden)
        qkvz = tensors.split(rows.view(d.key_heads, -1, hidden).transpose(0, 1), size)
        rows = tensors.read("linear_attn.in_proj_ba.weight", 2 * d.value_heads, hidden)
        ba = tensors.split(rows.view(d.key_heads, 2 * shared, hidden).transpose(0, 1), [shared, shared])
        return tensors.join([each.transpose(0, 1).reshape(-1, hidden) for each in (*qkvz, *ba)])


class Qwen35(_Hybrid):
    """Qwen 3.5 (text): one feed-forward network in each layer."""

    model_types = ("qwen3_5_text",)

    def delta_inputs(self, tensors: LayerTensors, delta: DeltaConfig) -> Tensor:
        """Return the fused projections."""
        sizes = {
            "qkv": delta.channels,
            "z": delta.value_heads * delta.value_dim,
            "b": delta.value_heads,
            "a": delta.value_heads,
        }
        hidden = tensors.config.hidden_size
        return tensors.join(
            [tensors.read(f"linear_attn.in_proj_{name}.weight", size, hidden) for name, size in sizes.items()]
        )


class Qwen35Moe(Qwen35, Qwen3Next):
    """Qwen 3.5 MoE (text): experts in every layer, one of which computes every row."""

    model_types = ("qwen3_5_moe_text",)
    defaults: ClassVar[dict[str, int]] = {"num_experts": 256, "moe_intermediate_size": 512}

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        own = {name: value for name, value in self.defaults.items() if fields.raw.get(name) is None}
        raw = {**fields.raw, **own, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
        raw["intermediate_size"] = raw["moe_intermediate_size"]  # no layer has another network
        return super().config(replace(fields, raw=raw))

    def experts(self, tensors: LayerTensors, experts: ExpertsConfig) -> tuple[ExpertWeights, ...]:
        """Return the experts of a layer, which a checkpoint has matrix by matrix, or in two tensors."""
        count, hidden, width = experts.count, tensors.config.hidden_size, experts.width
        if not tensors.has("mlp.experts.gate_up_proj"):
            return super().experts(tensors, experts)
        gate_up = tensors.read("mlp.experts.gate_up_proj", count, 2 * width, hidden)
        down = tensors.read("mlp.experts.down_proj", count, hidden, width)
        return tuple(tensors.expert(gate_up[i], down[i]) for i in range(count))


class _TextPart(Family):
    """Reads the text part of a model that also has weights for images, which are not read."""

    root = "model.language_model."

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check the configuration of the text part; see :class:`Family`."""
        text = fields.raw.get("text_config")
        if not isinstance(text, dict):
            raise CheckpointError(
                f"{fields.path}: text_config is {shown(text)}; it must be an object with the shape of the "
                "text part. Download the checkpoint again."
            )
        tied = fields.raw.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
        return super().config(replace(fields, raw={**text, "tie_word_embeddings": tied}))


class Qwen35Vision(_TextPart, Qwen35):
    """Qwen 3.5 with weights for images."""

    model_types = ("qwen3_5",)


class Qwen35MoeVision(_TextPart, Qwen35Moe):
    """Qwen 3.5 MoE with weights for images."""

    model_types = ("qwen3_5_moe",)


def _is_recurrent(tensors: LayerTensors) -> bool:
    delta = tensors.config.delta
    return delta is not None and delta.recurrent[tensors.index]


def _delta(fields: ConfigFields, layers: int) -> DeltaConfig:
    """Read which layers are recurrent, and their shape."""
    kinds = fields.raw.get("layer_types")
    if not kinds:
        step = fields.number("full_attention_interval", layers + 1, _INTERVAL)
        kinds = [_FULL if (i + 1) % step == 0 else _RECURRENT for i in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or not {_RECURRENT, _FULL}.issuperset(kinds):
        raise CheckpointError(
            f"{fields.path}: layer_types is {shown(kinds)}; supported are {_RECURRENT} and {_FULL}, one for "
            f"each of the {layers} layers."
        )
    keys = fields.number("linear_num_key_heads", MAX_HEADS, 16)
    values = fields.number("linear_num_value_heads", MAX_HEADS, 32)
    if values % keys:
        raise CheckpointError(
            f"{fields.path}: linear_num_value_heads is {values}; it must be a multiple of "
            f"linear_num_key_heads, {keys}."
        )
    return DeltaConfig(
        recurrent=tuple(kind == _RECURRENT for kind in kinds),
        key_heads=keys,
        value_heads=values,
        key_dim=fields.number("linear_key_head_dim", MAX_HEAD_DIM, 128),
        value_dim=fields.number("linear_value_head_dim", MAX_HEAD_DIM, 128),
        kernel=fields.number("linear_conv_kernel_dim", _MAX_KERNEL, 4, least=2),
    )
