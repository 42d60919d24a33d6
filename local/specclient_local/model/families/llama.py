"""Llama, Mistral, Qwen 2, MiMo and Qwen 3."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from specclient_local.model.architecture import DecoderConfig
from specclient_local.model.families.family import Family
from specclient_local.model.families.fields import ConfigFields

_DEFAULT_WINDOW = 4096  # of transformers


class Llama(Family):
    """Llama 1 to 3, and models of its layout."""

    model_types = ("llama",)
    biased = True

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        return replace(super().config(fields), mlp_bias=fields.flag("mlp_bias"))


class Mistral(Family):
    """Mistral: all layers may have a sliding window."""

    model_types = ("mistral",)

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, and for each layer whether it has one."""
        window = fields.window(_DEFAULT_WINDOW)
        return window, (window is not None,) * layers


class Qwen2(Family):
    """Qwen 2 and 2.5: queries, keys and values have biases, and some layers may have sliding windows."""

    model_types = ("qwen2",)

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        return replace(super().config(fields), qkv_bias=True)

    def windows(self, fields: ConfigFields, layers: int) -> tuple[int | None, tuple[bool, ...]]:
        """Return the width of sliding windows, and for each layer whether it has one."""
        if not fields.flag("use_sliding_window") or fields.window(_DEFAULT_WINDOW) is None:
            return None, (False,) * layers
        full = int(fields.raw.get("max_window_layers", 28))
        return fields.window(_DEFAULT_WINDOW), fields.sliding(layers, [i >= full for i in range(layers)])


class MiMo(Qwen2):
    """MiMo: Qwen 2's layers, and a multi-token prediction head, which ``model.heads`` reads."""

    model_types = ("mimo",)


class Qwen3(Qwen2):
    """Qwen 3: queries and keys of each head are normalised."""

    model_types = ("qwen3",)
    biased: ClassVar[bool] = True

    def config(self, fields: ConfigFields) -> DecoderConfig:
        """Read and check a configuration; see :class:`Family`."""
        return replace(super().config(fields), qkv_bias=fields.flag("attention_bias"), qk_norm=True)

    def head_dim(self, hidden: int, heads: int) -> int:
        """Return the size of a head where ``config.json`` does not have it."""
        del hidden, heads
        return 128
