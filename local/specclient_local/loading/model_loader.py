"""Turn a checkpoint folder into a runner: the own decoder's where it knows the family, else transformers'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from specclient.errors import ConfigurationError
from specclient.runtime.forks import import_lock
from specclient_local.model.config import SUPPORTED, read_config, read_json
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner, max_shared_rows
from specclient_local.model.devices import resolve_device
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.model_runner import ModelConfig, ModelRunner
from specclient_local.model.native.build import library
from specclient_local.model.weights import load_weights


@dataclass(frozen=True, slots=True)
class ModelPlacement:
    """How one model is loaded.

    Attributes:
        dtype, device, quantize, runner, graphs: see :class:`specclient_local.loading.options.EngineOptions`.
    """

    dtype: str = "float32"
    device: str = "auto"
    quantize: str | None = None
    runner: str = "auto"
    graphs: str = "auto"


def uses_own_decoder(folder: Path, runner: str) -> bool:
    """Return whether the own decoder runs a checkpoint: where it is told to, or ``auto`` and it can."""
    return runner == "own" or (
        runner == "auto" and read_json(folder / "config.json").get("model_type") in SUPPORTED
    )


def read_any_config(folder: Path, runner: str = "auto") -> ModelConfig:
    """Read what is to be known of a checkpoint before its weights.

    Raises:
        CheckpointError: naming the file, the value and what is supported.
    """
    if uses_own_decoder(folder, runner):
        return read_config(folder)
    with import_lock:  # as in tokenizer.py
        from specclient_local.model.hf.checkpoint import read_hf_config  # noqa: PLC0415 - imports transformers

    return read_hf_config(folder)


def computes_in_float32(dtype: str, device: str, graphs: str) -> bool:
    """Return whether the own decoder holds matrices in ``dtype``, and everything else in float32.

    Compiled passes do, with bfloat16 on a processor: half of the bytes are read from memory, and the sums are
    those of a float32 model with the same numbers.
    """
    return dtype == "bfloat16" and device == "cpu" and graphs != "on" and library() is not None


def load_model(
    folder: Path,
    placed: ModelPlacement,
    *,
    slots: int,
    context: int,
    exact: bool = True,
    taps: tuple[int, ...] = (),
) -> ModelRunner:
    """Load a checkpoint folder.

    Args:
        folder: with ``config.json`` and safetensors.
        placed: in which type, where and how.
        slots: sequences it holds at once.
        context: positions a slot can hold.
        exact: whether rows must not depend on their company: a target's must not.
        taps: after how many layers hidden states are kept for heads, ascending; the own decoder alone can.

    Raises:
        CheckpointError: naming what is wrong with the folder.
        ConfigurationError: a device or a quantisation that is not here, or too little memory.
    """
    device = str(resolve_device(placed.device))
    if placed.graphs == "on" and device.startswith("mps"):
        raise ConfigurationError(
            f"graphs is 'on', but {device} has no float64, which rounds of static shapes draw with; "
            "load with graphs='auto'."
        )
    if uses_own_decoder(folder, placed.runner):
        config = read_config(folder)
        with torch.inference_mode():
            weights = load_weights(folder, config, placed.dtype, device, placed.quantize)
            if computes_in_float32(placed.dtype, device, placed.graphs):
                weights = weights.widened()
            decoder = TransformerDecoder(config, weights, context, exact=exact, most=max_shared_rows(slots))
            if taps:
                return HiddenStateRunner(decoder, weights, slots, context, taps)
            if placed.graphs == "on" or (placed.graphs == "auto" and decoder.embedding.is_cuda):
                return StaticRunner(decoder, weights, slots, context)
            return DecoderRunner(decoder, slots, context)
    with import_lock:
        from specclient_local.model.hf.runner import HfRunner  # noqa: PLC0415 - imports transformers

    return HfRunner.load(
        folder,
        dtype=placed.dtype,
        slots=slots,
        context=context,
        exact=exact,
        device=device,
        quantize=placed.quantize,
    )
