"""The configuration of a head's decoder layer, whose missing fields have the defaults of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import label
from specclient_local.model.config import DecoderConfig, decoder_config

_LLAMA: Final[Mapping[str, Any]] = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
}
_QWEN: Final = {
    **_LLAMA,
    "vocab_size": 151_936,
    "intermediate_size": 22_016,
    "max_position_embeddings": 32_768,
}

LAYER_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": _LLAMA,
    "mistral": {
        **_LLAMA,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
    },
    "qwen2": {**_QWEN, "num_key_value_heads": 32},
    "qwen3": {**_QWEN, "num_key_value_heads": 32},
}
"""The defaults of ``transformers`` 5 by ``model_type``, as far as they differ from those of the families.

``speculators`` leaves out what equals them. The library itself takes two seconds to import.
"""


def read_layer_config(layer: Mapping[str, Any], path: Path) -> DecoderConfig:
    """Read the configuration of a head's layer.

    Args:
        layer: its fields, of which some may be missing.
        path: the file, for error messages.

    Raises:
        CheckpointError: it is not the configuration of a layer of Llama's layout; names the value.
    """
    kind = layer.get("model_type")
    if not isinstance(kind, str):
        raise CheckpointError(
            f"{path}: model_type of the head's layer is missing; the file is not a config.json of heads."
        )
    if kind not in LAYER_DEFAULTS:
        raise CheckpointError(
            f"{path}: model_type of the head's layer is {label(kind)}; supported are layers of Llama's "
            f"layout ({', '.join(LAYER_DEFAULTS)})."
        )
    return decoder_config({**LAYER_DEFAULTS[kind], **layer}, (), path)
