"""Gemma 1 to 3 (text): scaled embeddings, norms around both halves of a layer, GELU, and bounded scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from specclient_local.model.architecture import DecoderConfig, Gate
from specclient_local.model.families.family import Family
from specclient_local.model.families.fields import ConfigFields
from specclient_local.model.rope_config import Rope

_FULL, _SLIDING = "full_attention", "sliding_attention"
_GLOBAL_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0
_PATTERN = 6
"""Every sixth layer of Gemma 3 has no sliding window, unless its file says otherwise."""


class Gemma(Family):
    """Gemma 1: a norm's factor is its weight plus 1, and the embedding is scaled."""

    model_types = ("gemma",)
    activations: ClassVar[tuple[str, ...]] = (
        "gelu_pytorch_tanh",
        "gelu",
    )  # files of Gemma 1 name it gelu and mean the approximation
    biased = True
    norm_offset = 1.0

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        if fields.raw.get("hidden_activation"):
            fields.only("hidden_activation", *self.activations)
        config = super().config(fields)
        return replace(
            config,
            tied=fields.flag("tie_word_embeddings", default=True),
            gate=Gate("gelu_tanh"),
            embedding_scale=config.hidden_size**0.5,
        )

    def head_dim(self, hidden: int, heads: int) -> int:
        """Return the size of a head where ``config.json`` does not have it."""
        del hidden, heads
        return 256


class Gemma2(Gemma):
    """Gemma 2: norms on outputs, too, every other layer with a window, and bounded scores and logits."""

    model_types = ("gemma2",)
    activation_field = "hidden_activation"
    activations = ("gelu_pytorch_tanh",)
    norms: ClassVar[Mapping[str, str]] = {
        "input_norm": "input_layernorm",
        "attention_output_norm": "post_attention_layernorm",
        "post_norm": "pre_feedforward_layernorm",
        "mlp_output_norm": "post_feedforward_layernorm",
    }

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        fields.only("use_bidirectional_attention", None, False)
        return replace(
            super().config(fields),
            output_norms=True,
            attention_scale=fields.real("query_pre_attn_scalar", 256.0, least=1e-6) ** -0.5,
            attention_cap=fields.cap("attn_logit_softcapping", 50.0),
            logit_cap=fields.cap("final_logit_softcapping", 30.0),
        )

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, and for each layer whether it has one."""
        return fields.window(4096), fields.sliding(layers, [i % 2 == 0 for i in range(layers)])


class Gemma3(Gemma2):
    """Gemma 3 (text): normalised queries and keys, and layers with a window have their own rotation."""

    model_types = ("gemma3_text",)

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        config = super().config(fields)
        return replace(
            config,
            qk_norm=True,
            attention_cap=None,
            logit_cap=fields.cap("final_logit_softcapping"),
            local_rope=_local_rope(fields, config.head_dim),
        )

    def rope(self, fields: ConfigFields, head_dim: int) -> Rope:
        """Read the rotary embeddings of layers without a window."""
        fields = _with_default(fields, "rope_theta", _GLOBAL_THETA)
        return fields.rope(head_dim, _FULL)

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, and for each layer whether it has one."""
        pattern = fields.number("sliding_window_pattern", layers + 1, _PATTERN)
        return fields.window(4096), fields.sliding(layers, [(i + 1) % pattern != 0 for i in range(layers)])


def _local_rope(fields: ConfigFields, head_dim: int) -> Rope:
    """Read the rotary embeddings of layers with a window, which older files scale by no table."""
    tables = fields.raw.get("rope_parameters")
    if isinstance(tables, dict) and _SLIDING in tables:
        return _with_default(fields, "rope_theta", _LOCAL_THETA).rope(head_dim, _SLIDING)
    theta = fields.real("rope_local_base_freq", _LOCAL_THETA, least=1.0)
    raw = {**fields.raw, "rope_theta": theta, "rope_scaling": None, "rope_parameters": None}
    return replace(fields, raw=raw).rope(head_dim)


def _with_default(fields: ConfigFields, name: str, value: float) -> ConfigFields:
    return fields if fields.raw.get(name) is not None else replace(fields, raw={**fields.raw, name: value})
