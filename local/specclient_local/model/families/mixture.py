"""Mixtures of experts: Mixtral and Qwen 3 MoE."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from specclient.errors import CheckpointError
from specclient_local.model.architecture import DecoderConfig, ExpertsConfig
from specclient_local.model.checkpoint_files import shown
from specclient_local.model.families.family import Family
from specclient_local.model.families.fields import MAX_EXPERTS, MAX_WIDTH, ConfigFields
from specclient_local.model.families.llama import Qwen3

if TYPE_CHECKING:
    from torch import Tensor

    from specclient_local.model.layer_weights import ExpertWeights, LayerTensors


class _ExpertFamily(Family):
    """Reads experts that a checkpoint has matrix by matrix.

    Attributes:
        block: name of the router and the experts in a layer.
        matrices: names of an expert's gate, up and down matrices.
    """

    block: ClassVar[str] = "mlp"
    matrices: ClassVar[tuple[str, str, str]] = ("gate_proj", "up_proj", "down_proj")

    def router(self, tensors: LayerTensors) -> tuple[Tensor, Tensor | None]:
        """Return the weight of the router, which has no bias."""
        c = tensors.config
        count = 0 if c.experts is None else c.experts.count
        return tensors.read(f"{self.block}.gate.weight", count, c.hidden_size), None

    def experts(self, tensors: LayerTensors, experts: ExpertsConfig) -> tuple[ExpertWeights, ...]:
        """Return the experts of a layer."""
        hidden, width = tensors.config.hidden_size, experts.width
        gate, up, down = self.matrices

        def expert(number: int) -> ExpertWeights:
            prefix = f"{self.block}.experts.{number}."
            halves = [tensors.read(f"{prefix}{name}.weight", width, hidden) for name in (gate, up)]
            lower = tensors.read(f"{prefix}{down}.weight", hidden, width)
            return tensors.expert(tensors.join(halves), lower)

        return tuple(expert(number) for number in range(experts.count))


class Mixtral(_ExpertFamily):
    """Mixtral: every layer has experts."""

    model_types = ("mixtral",)
    block = "block_sparse_moe"
    matrices = ("w1", "w3", "w2")

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        config = super().config(fields)
        count, chosen = expert_counts(fields, "num_local_experts", 8, 2)
        experts = ExpertsConfig(count, chosen, config.intermediate_size, (True,) * config.layers)
        return replace(config, experts=experts, norm_eps=fields.real("rms_norm_eps", 1e-5))

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, and for each layer whether it has one."""
        window = fields.window()
        return window, (window is not None,) * layers


class Qwen3Moe(_ExpertFamily, Qwen3):
    """Qwen 3 MoE: some layers may have one feed-forward network instead of experts."""

    model_types = ("qwen3_moe",)

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        config = super().config(fields)
        name = "num_experts" if fields.raw.get("num_experts") is not None else "num_local_experts"
        count, chosen = expert_counts(fields, name, 128, 8)
        step = fields.number("decoder_sparse_step", config.layers + 1, 1)
        dense = fields.raw.get("mlp_only_layers") or ()
        experts = ExpertsConfig(
            count,
            chosen,
            fields.number("moe_intermediate_size", MAX_WIDTH, 768),
            tuple(i not in dense and (i + 1) % step == 0 for i in range(config.layers)),
            normalised=fields.flag("norm_topk_prob"),
        )
        return replace(config, experts=experts)

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, which all layers have or none."""
        window = fields.window(4096) if fields.flag("use_sliding_window") else None
        return window, (window is not None,) * layers


def expert_counts(fields: ConfigFields, name: str, count: int, chosen: int) -> tuple[int, int]:
    """Return the number of experts of a layer, and of those that compute a row.

    Args:
        fields: the configuration.
        name: field of the number of experts.
        count, chosen: the defaults.

    Raises:
        CheckpointError: more experts are chosen than there are.
    """
    experts = fields.number(name, MAX_EXPERTS, count)
    top = fields.number("num_experts_per_tok", MAX_EXPERTS, chosen)
    if top > experts:
        raise CheckpointError(
            f"{fields.path}: num_experts_per_tok is {shown(top)}; it must be at most {name}, {experts}."
        )
    return experts, top
