"""gpt-oss: attention sinks, biases, and experts whose gate and up columns alternate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specclient_local.model.architecture import DecoderConfig, ExpertsConfig, Gate
from specclient_local.model.families.family import Family
from specclient_local.model.families.fields import ConfigFields
from specclient_local.model.families.mixture import expert_counts
from specclient_local.model.rope_config import Rope

if TYPE_CHECKING:
    from torch import Tensor

    from specclient_local.model.layer_weights import ExpertWeights, LayerTensors

_ROPE = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096, "rope_theta": 150_000.0,
}  # fmt: skip


class GptOss(Family):
    """gpt-oss 20B and 120B (model card: arXiv 2508.10925)."""

    model_types = ("gpt_oss",)

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        config = super().config(fields)
        count, chosen = expert_counts(fields, "num_local_experts", 128, 4)
        biased = fields.flag("attention_bias", default=True)
        return replace(
            config,
            norm_eps=fields.real("rms_norm_eps", 1e-5),
            qkv_bias=biased,
            o_bias=biased,
            sinks=True,
            gate=Gate(
                "clamped",
                alpha=fields.real("swiglu_alpha", 1.702),
                limit=fields.real("swiglu_limit", 7.0, least=1e-6),
            ),
            experts=ExpertsConfig(
                count, chosen, config.intermediate_size, (True,) * config.layers, biased=True
            ),
        )

    def head_dim(self, hidden: int, heads: int) -> int:
        """Return the size of a head where ``config.json`` does not have it."""
        del hidden, heads
        return 64

    def rope(self, fields: ConfigFields, head_dim: int) -> Rope:
        """Read the rotary embeddings."""
        if not (fields.raw.get("rope_parameters") or fields.raw.get("rope_scaling")):
            fields = replace(fields, raw={**fields.raw, "rope_parameters": _ROPE})
        return super().rope(fields, head_dim)

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, and for each layer whether it has one."""
        return fields.window(128), fields.sliding(layers, [i % 2 == 0 for i in range(layers)])

    def router(self, tensors: LayerTensors) -> tuple[Tensor, Tensor | None]:
        """Return the weight and the bias of the router."""
        c = tensors.config
        count = 0 if c.experts is None else c.experts.count
        weight = tensors.read("mlp.router.weight", count, c.hidden_size)
        return weight, tensors.read("mlp.router.bias", count)

    def experts(self, tensors: LayerTensors, experts: ExpertsConfig) -> tuple[ExpertWeights, ...]:
        """Return the experts of a layer, whose matrices a checkpoint has in one tensor ``[E, in, out]``."""
        count, hidden, width = experts.count, tensors.config.hidden_size, experts.width
        gate_up = tensors.read("mlp.experts.gate_up_proj", count, hidden, 2 * width)
        gate_up_bias = tensors.read("mlp.experts.gate_up_proj_bias", count, 2 * width)
        down = tensors.read("mlp.experts.down_proj", count, width, hidden)
        down_bias = tensors.read("mlp.experts.down_proj_bias", count, hidden)

        def halves(rows: Tensor) -> Tensor:
            """Return rows that alternate between gate and up as the gate's, then those of ``up``."""
            return tensors.join((rows[::2], rows[1::2]))

        return tuple(
            tensors.expert(
                halves(gate_up[i].t()),
                down[i].t().contiguous(),
                biases=(halves(gate_up_bias[i]), down_bias[i]),
            )
            for i in range(count)
        )
