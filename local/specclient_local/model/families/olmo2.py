"""OLMo 2: norms after attention and feed-forward network only, and over all queries and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from specclient_local.model.architecture import DecoderConfig
from specclient_local.model.families.family import Family
from specclient_local.model.families.fields import ConfigFields


class Olmo2(Family):
    """OLMo 2."""

    model_types = ("olmo2",)
    biased = True
    norms: ClassVar[Mapping[str, str]] = {
        "attention_output_norm": "post_attention_layernorm",
        "mlp_output_norm": "post_feedforward_layernorm",
    }

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        return replace(
            super().config(fields),
            norm_eps=fields.real("rms_norm_eps", 1e-5),
            qk_norm=True,
            whole_qk_norm=True,
            input_norms=False,
            output_norms=True,
        )
