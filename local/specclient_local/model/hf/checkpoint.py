"""Loading of checkpoints by transformers, with checks of the configuration and the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import (
    check_files,
    checkpoint_errors,
    label,
    one_line,
    read_json,
    shown,
)
from specclient_local.model.config import end_tokens
from specclient_local.model.hf.attention import quiet_transformers
from specclient_local.model.weights import check_values, count_numbers

_UNBOUNDED = 2**20
"""Context of a model without a configured maximum: its positions are relative (ALiBi)."""

_MAX_COUNT = 2**24
"""Largest vocabulary and number of layers."""

_RECURRENT = ("linear_attention", "mamba", "mamba2", "conv", "recurrent", "hybrid", "moe_hybrid")


@dataclass(frozen=True, slots=True)
class HfConfig:
    """Configuration of a model that transformers runs.

    Attributes:
        context: maximum number of positions.
        layers: number of layers of its cache.
        window: the shortest sliding window that a layer may have; None if there is none.
        eos: end token ids.
        bos: token id that begins an empty prompt.
        parameters: number of parameters in the checkpoint.
    """

    model_type: str
    vocab_size: int
    context: int
    layers: int
    window: int | None
    eos: tuple[int, ...]
    bos: int | None
    parameters: int


def read_hf_config(folder: Path) -> HfConfig:
    """Read a checkpoint's configuration, and check that the model can run token by token.

    Raises:
        CheckpointError: names the file, the value and the supported alternative.
    """
    check_files(folder)
    path = folder / "config.json"
    raw = read_json(path)
    with checkpoint_errors(path):
        return _read_config(folder, path, raw)


def _read_config(folder: Path, path: Path, raw: Mapping[str, Any]) -> HfConfig:
    library_config = _library_config(folder, raw)
    config = library_config.get_text_config(decoder=True)
    types = set(getattr(config, "layer_types", None) or ())
    net = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(library_config), None)
    refusal = None
    if library_config.is_encoder_decoder:
        refusal = "an encoder-decoder"
    elif net is None:
        refusal = "not a causal language model of the installed transformers"
    elif getattr(net, "_is_stateful", False) or types & set(_RECURRENT):
        refusal = "recurrent in some layers, whose state cannot be restored when a drafted token is rejected"
    elif raw.get("quantization_config") is not None:
        kind = label(dict(raw["quantization_config"]).get("quant_method", "quantised"))
        refusal = f"quantised ({kind}); choose the unquantised one, and load it with quantize='int8'"
    if refusal is not None:
        raise CheckpointError(
            f"{path}: model_type {shown(raw.get('model_type'))} is {refusal}. Choose a decoder-only model "
            "with safetensors weights."
        )
    vocabulary, layers = int(config.vocab_size), int(config.num_hidden_layers)
    for name, value in (("vocab_size", vocabulary), ("num_hidden_layers", layers)):
        if not 1 <= value <= _MAX_COUNT:
            raise CheckpointError(f"{path}: {name} is {value}; it must be from 1 to {_MAX_COUNT}.")
    bos = config.bos_token_id
    return HfConfig(
        model_type=str(raw.get("model_type")),
        vocab_size=vocabulary,
        context=_context(config),
        layers=layers,
        window=_window(config, types),
        eos=tuple(token for token in end_tokens(folder, raw) if 0 <= token < vocabulary),
        bos=bos if isinstance(bos, int) and 0 <= bos < vocabulary else None,
        parameters=count_numbers(folder),
    )


def load_net(folder: Path, config: HfConfig, dtype: str, device: str) -> PreTrainedModel:
    """Load a model from safetensors only, without running code from the checkpoint.

    Args:
        folder: the checkpoint's folder.
        config: its configuration.
        dtype: compute type, one of ``config.DTYPES``.
        device: name of the torch device.

    Raises:
        CheckpointError: a tensor is missing, has another shape, cannot be read or is not finite.
    """
    with quiet_transformers():
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        except Exception as error:  # the library raises many types of exceptions for broken files
            raise CheckpointError(
                f"{folder}: the {config.model_type} checkpoint cannot be loaded "
                f"({type(error).__name__}: {one_line(error)}); "
                "it needs whole *.safetensors; download it again."
            ) from error
    net: PreTrainedModel = loaded[0]
    _check_report(folder, loaded[1])
    check_values(folder, net.named_parameters())
    net.to(device)  # type: ignore[arg-type]
    net.eval()  # type: ignore[no-untyped-call]
    net.requires_grad_(requires_grad=False)
    return net


def _check_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Raise :class:`CheckpointError` for weights that the library initialised randomly."""
    for name, actual, expected in sorted(report.get("mismatched_keys", ())):
        raise CheckpointError(
            f"{folder}: tensor {name} has shape {list(actual)}, but config.json requires {list(expected)}; "
            "the two belong to different models."
        )
    missing = sorted(report.get("missing_keys", ()))
    if missing:
        raise CheckpointError(
            f"{folder}: tensor {missing[0]} is missing ({len(missing)} in all); download it again."
        )


def _library_config(folder: Path, raw: Mapping[str, Any]) -> PreTrainedConfig:
    try:
        with quiet_transformers():
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
    except Exception as error:  # as above
        raise CheckpointError(
            f"{folder / 'config.json'}: transformers cannot read model_type {shown(raw.get('model_type'))} "
            f"({type(error).__name__}). Code from checkpoints is never run; choose a model that the library "
            "itself supports."
        ) from error
    return config


def _context(config: PreTrainedConfig) -> int:
    """Return the maximum positions up to which rotations do not depend on the sequence's length."""
    named = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
    table = getattr(config, "rope_parameters", None) or {}
    if isinstance(table, dict) and table.get("rope_type") == "longrope":
        # The library changes all frequencies for longer sequences, which would invalidate cached keys.
        named = table.get("original_max_position_embeddings", named)
    return int(named) if isinstance(named, int) and named > 0 else _UNBOUNDED


def _window(config: PreTrainedConfig, types: set[str]) -> int | None:
    if types == {"full_attention"} or getattr(config, "use_sliding_window", True) is False:
        return None
    sizes = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min((int(size) for size in sizes if isinstance(size, int)), default=None)
