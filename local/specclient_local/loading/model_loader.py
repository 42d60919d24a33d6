"""Load a checkpoint folder with the built-in decoder, or with transformers for other model families."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from specclient.errors import ConfigurationError
from specclient.runtime.forks import import_lock
from specclient_local.model.checkpoint_files import is_gguf, read_json
from specclient_local.model.config import DecoderConfig, read_config
from specclient_local.model.cuda_graphs.static_hidden_runner import StaticHiddenRunner
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner, max_shared_rows
from specclient_local.model.devices import resolve_device
from specclient_local.model.families import families
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.model_runner import ModelConfig, ModelRunner
from specclient_local.model.native.build import library
from specclient_local.model.weights import check_tensors, load_weights


@dataclass(frozen=True, slots=True)
class ModelPlacement:
    """The options for loading one model.

    Attributes:
        dtype, device, quantize, runner, graphs: see :class:`specclient_local.loading.options.EngineOptions`.
    """

    dtype: str = "float32"
    device: str = "auto"
    quantize: str | None = None
    runner: str = "auto"
    graphs: str = "auto"


def uses_own_decoder(folder: Path, runner: str) -> bool:
    """Return whether the built-in decoder runs a checkpoint.

    It does with ``runner="own"``, and with ``auto`` where it supports the model family.

    Raises:
        ConfigurationError: the checkpoint is a GGUF file, which transformers would have to run.
    """
    if is_gguf(folder):
        if runner == "hf":
            raise ConfigurationError(
                f"runner is 'hf', but {folder} is a GGUF file, which only the built-in decoder runs; leave "
                "it out."
            )
        return True
    return runner == "own" or (
        runner == "auto" and read_json(folder / "config.json").get("model_type") in families()
    )


def read_any_config(folder: Path, runner: str = "auto") -> ModelConfig:
    """Read a checkpoint's configuration, without its weights.

    Raises:
        CheckpointError: naming the file, the value and what is supported.
    """
    if uses_own_decoder(folder, runner):
        config = read_config(folder)
        if is_gguf(folder):
            check_tensors(folder, config)
        return config
    with import_lock:  # as in tokenizer.py
        from specclient_local.model.hf.checkpoint import read_hf_config  # noqa: PLC0415 - imports transformers

    return read_hf_config(folder)


def computes_in_float32(config: DecoderConfig, dtype: str, device: str, graphs: str) -> bool:
    """Return whether the built-in decoder stores matrices in ``dtype`` but computes in float32.

    Compiled passes do so for bfloat16 on a CPU: they read half of the bytes from memory, and their results
    are those of a float32 model with the same (rounded) weights.
    """
    compiled = config.llama_layout and device == "cpu" and graphs != "on"
    return compiled and dtype == "bfloat16" and library() is not None


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
        folder: a folder with ``config.json`` and safetensors files, or a GGUF file.
        placed: data type, device and runner.
        slots: number of sequences that it holds at once.
        context: positions per slot.
        exact: whether a row's logits must not depend on the other rows of its pass; required of a target.
        taps: numbers of layers after which hidden states are kept for heads, ascending; built-in decoder
            only.

    Raises:
        CheckpointError: the folder's content is invalid.
        ConfigurationError: the device or quantization is not available, or the memory is too small.
    """
    device = str(resolve_device(placed.device))
    if placed.graphs == "on" and device.startswith("mps"):
        raise ConfigurationError(
            f"graphs is 'on', but {device} has no float64, which sampling in static shapes needs; "
            "load with graphs='auto'."
        )
    if uses_own_decoder(folder, placed.runner):
        config = read_config(folder)
        if placed.graphs == "on" and not config.llama_layout:
            raise ConfigurationError(
                f"graphs is 'on', but {folder} is a {config.model_type} model, whose passes have no static "
                "shapes; load with graphs='auto'."
            )
        with torch.inference_mode():
            weights = load_weights(folder, config, placed.dtype, device, placed.quantize)
            if computes_in_float32(config, placed.dtype, device, placed.graphs):
                weights = weights.widened()
            decoder = TransformerDecoder(config, weights, context, exact=exact, most=max_shared_rows(slots))
            static = config.llama_layout and (
                placed.graphs == "on" or (placed.graphs == "auto" and decoder.embedding.is_cuda)
            )
            if taps:
                kind = StaticHiddenRunner if static else HiddenStateRunner
                return kind(decoder, weights, slots, context, taps)
            if static:
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
