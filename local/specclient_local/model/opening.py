"""Turn a checkpoint folder into a runner: the own decoder's where it knows the family, else transformers'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from specclient.errors import ConfigurationError
from specclient.forks import uncut
from specclient_local.config import SUPPORTED, read_config, read_json
from specclient_local.model.base import Model, ModelConfig
from specclient_local.model.decoder import Decoder
from specclient_local.model.devices import device_named
from specclient_local.model.heads_taps import TappedRunner
from specclient_local.model.native.build import library
from specclient_local.model.runner import Runner, shared_rows
from specclient_local.model.static import StaticRunner
from specclient_local.model.weights import load_weights


@dataclass(frozen=True, slots=True)
class Placed:
    """How one model is loaded.

    Attributes:
        dtype, device, quantize, runner, graphs: see :class:`specclient_local.options.Options`.
    """

    dtype: str = "float32"
    device: str = "auto"
    quantize: str | None = None
    runner: str = "auto"
    graphs: str = "auto"


def runs_itself(folder: Path, runner: str) -> bool:
    """Return whether the own decoder runs a checkpoint: where it is told to, or ``auto`` and it can."""
    return runner == "own" or (
        runner == "auto" and read_json(folder / "config.json").get("model_type") in SUPPORTED
    )


def read_any_config(folder: Path, runner: str = "auto") -> ModelConfig:
    """Read what is to be known of a checkpoint before its weights.

    Raises:
        CheckpointError: naming the file, the value and what is supported.
    """
    if runs_itself(folder, runner):
        return read_config(folder)
    with uncut:  # as in tokenizer.py
        from specclient_local.model.hf_checkpoint import read_hf_config  # noqa: PLC0415 - imports transformers

    return read_hf_config(folder)


def sums_wider(dtype: str, device: str, graphs: str) -> bool:
    """Return whether the own decoder holds matrices in ``dtype``, and everything else in float32.

    Compiled passes do, with bfloat16 on a processor: half of the bytes are read from memory, and the sums are
    those of a float32 model with the same numbers.
    """
    return dtype == "bfloat16" and device == "cpu" and graphs != "on" and library() is not None


def open_model(
    folder: Path,
    placed: Placed,
    *,
    slots: int,
    context: int,
    exact: bool = True,
    taps: tuple[int, ...] = (),
) -> Model:
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
    device = str(device_named(placed.device))
    if placed.graphs == "on" and device.startswith("mps"):
        raise ConfigurationError(
            f"graphs is 'on', but {device} has no float64, which rounds of static shapes draw with; "
            "load with graphs='auto'."
        )
    if runs_itself(folder, placed.runner):
        config = read_config(folder)
        with torch.inference_mode():
            weights = load_weights(folder, config, placed.dtype, device, placed.quantize)
            if sums_wider(placed.dtype, device, placed.graphs):
                weights = weights.widened()
            decoder = Decoder(config, weights, context, exact=exact, most=shared_rows(slots))
            if taps:
                return TappedRunner(decoder, weights, slots, context, taps)
            if placed.graphs == "on" or (placed.graphs == "auto" and decoder.embedding.is_cuda):
                return StaticRunner(decoder, weights, slots, context)
            return Runner(decoder, slots, context)
    with uncut:
        from specclient_local.model.hf import HfRunner  # noqa: PLC0415 - imports transformers

    return HfRunner.load(
        folder,
        dtype=placed.dtype,
        slots=slots,
        context=context,
        exact=exact,
        device=device,
        quantize=placed.quantize,
    )
