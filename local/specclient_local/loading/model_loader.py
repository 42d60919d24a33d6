"""Load a checkpoint folder with the built-in decoder, or with transformers for other model families."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from specclient.errors import ConfigurationError
from specclient.runtime.forks import import_lock
from specclient_local.model.adapters import load_adapter
from specclient_local.model.checkpoint_files import is_gguf, read_json
from specclient_local.model.config import DecoderConfig, read_config
from specclient_local.model.cuda_graphs.static_hidden_runner import StaticHiddenRunner
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner, max_shared_rows
from specclient_local.model.devices import parallel_devices, resolve_device
from specclient_local.model.eager_passes import EagerPasses
from specclient_local.model.families import families
from specclient_local.model.families.family import Family
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.layer_weights import LayerChanges
from specclient_local.model.model_runner import ModelConfig, ModelRunner
from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import PACKED_FORMATS, multiplies_bfloat16
from specclient_local.model.streamed_weights import stream_weights
from specclient_local.model.system_memory import release_free_memory
from specclient_local.model.tensor_parallel.parallel_runner import ParallelRunner, ShardSettings
from specclient_local.model.weight_shards import WeightShard
from specclient_local.model.weights import DecoderWeights, check_tensors, load_weights

_log = logging.getLogger("specclient")


@dataclass(frozen=True, slots=True)
class ModelPlacement:
    """The options for loading one model.

    Attributes:
        dtype, device, quantize, runner, graphs, tensor_parallel: see
            :class:`specclient_local.loading.options.EngineOptions`.
        adapters: folders of LoRA adapters by number; None where this model has none.
        pages: number of pages of its cache; None for one with a place for each position of each slot.
    """

    dtype: str = "float32"
    device: str = "auto"
    quantize: str | None = None
    runner: str = "auto"
    graphs: str = "auto"
    tensor_parallel: int = 1
    adapters: tuple[Path | None, ...] = ()
    pages: int | None = None

    @property
    def adapted(self) -> bool:
        """Whether an adapter changes the model."""
        return any(self.adapters)


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


def draft_runner(folder: Path, runner: str) -> str:
    """Return the runner of a draft: ``own`` is required of the target only."""
    return "auto" if runner == "own" and not uses_own_decoder(folder, "auto") else runner


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


def computes_in_float32(
    config: DecoderConfig, dtype: str, device: str, graphs: str, *, adapted: bool = False
) -> bool:
    """Return whether the built-in decoder stores matrices in ``dtype`` but computes in float32.

    Compiled passes do so for bfloat16 on a CPU: they read half of the bytes from memory, and their results
    are those of a float32 model with the same (rounded) weights.
    """
    return dtype == "bfloat16" and packs_one_by_one(config, dtype, None, device, graphs, adapted=adapted)


def rounds_rows_of(dtype: str, quantize: str | None) -> bool:
    """Return whether compiled passes round the rows of products, and so keys and values to bfloat16."""
    return quantize is not None or (dtype == "bfloat16" and multiplies_bfloat16())


def packs_one_by_one(
    config: DecoderConfig,
    dtype: str,
    quantize: str | None,
    device: str,
    graphs: str,
    *,
    adapted: bool = False,
) -> bool:
    """Return whether compiled passes run a model, so that its layers are read and packed one by one."""
    known = dtype != "float16" and quantize in (None, *PACKED_FORMATS)
    compiles = config.llama_layout and not adapted and device == "cpu" and graphs != "on"
    return known and compiles and library() is not None


def rounded_cache_dtype(
    config: DecoderConfig,
    dtype: str,
    quantize: str | None,
    device: str,
    graphs: str = "auto",
    *,
    adapted: bool = False,
) -> str | None:
    """Return the data type of keys and values where compiled passes round them; None elsewhere."""
    packed = packs_one_by_one(config, dtype, quantize, device, graphs, adapted=adapted)
    return "bfloat16" if packed and rounds_rows_of(dtype, quantize) else None


def has_static_shapes(config: DecoderConfig, placed: ModelPlacement) -> bool:
    """Return whether passes with static shapes can run a model."""
    return config.llama_layout and not placed.adapted


def check_adapters(folder: Path, placed: ModelPlacement) -> None:
    """Check that adapters fit a model, by the headers of their files.

    Raises:
        CheckpointError: an adapter is of another kind or for another model.
        ConfigurationError: transformers runs the model.
    """
    if not placed.adapted:
        return
    if not uses_own_decoder(folder, placed.runner):
        raise ConfigurationError(
            f"adapters are given, but transformers runs {folder}; only models that the built-in decoder runs "
            "can have adapters. Merge the adapter into the model."
        )
    config = read_config(folder)
    for path in filter(None, placed.adapters):
        load_adapter(path, config, device="meta")


def _adapters(config: DecoderConfig, placed: ModelPlacement, device: str) -> Sequence[Sequence[LayerChanges]]:
    """Return the changes of every layer by each adapter."""
    if not placed.adapted:
        return ()
    unchanged: Sequence[LayerChanges] = [{}] * config.layers
    return [
        unchanged if path is None else load_adapter(path, config, placed.dtype, device)
        for path in placed.adapters
    ]


def load_parallel_model(
    folder: Path, placed: ModelPlacement, *, slots: int, context: int, exact: bool = True
) -> ParallelRunner:
    """Load a checkpoint onto several devices; arguments as for :func:`load_model`.

    Raises:
        CheckpointError: the folder's content is invalid.
        ConfigurationError: there are not as many devices, or the model cannot be divided among them.
    """
    size = placed.tensor_parallel
    if not uses_own_decoder(folder, placed.runner):
        raise ConfigurationError(
            f"tensor_parallel is {size}, but transformers runs {folder}; only models that the built-in "
            "decoder runs can be divided. Leave it out."
        )
    devices = parallel_devices(placed.device, size)
    with TemporaryDirectory(prefix="specclient-") as meeting:
        return ParallelRunner.load_parts(
            [
                ShardSettings(
                    *(folder, placed.dtype, placed.quantize, device, slots, context, exact),
                    *(WeightShard(rank, size), Path(meeting) / "processes", torch.get_num_threads()),
                )
                for rank, device in enumerate(devices)
            ]
        )


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
    if placed.tensor_parallel > 1:
        return load_parallel_model(folder, placed, slots=slots, context=context, exact=exact)
    if uses_own_decoder(folder, placed.runner):
        return _own_runner(folder, placed, device, slots=slots, context=context, exact=exact, taps=taps)
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


def _own_runner(
    folder: Path,
    placed: ModelPlacement,
    device: str,
    *,
    slots: int,
    context: int,
    exact: bool,
    taps: tuple[int, ...],
) -> ModelRunner:
    """Load a checkpoint that the built-in decoder runs; arguments and errors as for :func:`load_model`."""
    config = read_config(folder)
    if families()[config.model_type].root != Family.root:
        _log.warning("%s also reads images; only its text part is loaded, and its chats are text.", folder)
    if placed.graphs == "on" and not has_static_shapes(config, placed):
        named = f"{config.model_type} model{' with adapters' if placed.adapted else ''}"
        raise ConfigurationError(
            f"graphs is 'on', but {folder} is a {named}, whose passes have no static shapes; load with "
            "graphs='auto'."
        )
    with torch.inference_mode():
        weights, rounded_to = _weights(folder, config, placed, device)
        most = max_shared_rows(slots)  # compiled passes do not read pages
        passes = None if placed.pages is None else partial(EagerPasses, exact=exact, most=most)
        decoder = TransformerDecoder(
            config,
            weights,
            context,
            exact=exact,
            most=most,
            adapters=_adapters(config, placed, device),
            passes=passes,
            rounded_to=rounded_to,
        )
        release_free_memory()
        static = has_static_shapes(config, placed) and (
            placed.graphs == "on" or (placed.graphs == "auto" and decoder.embedding.is_cuda)
        )
        if taps:
            if static:
                return StaticHiddenRunner(decoder, weights, slots, context, taps, pages=placed.pages)
            return HiddenStateRunner(decoder, weights, slots, context, taps)
        if static:
            return StaticRunner(decoder, weights, slots, context, pages=placed.pages)
        return DecoderRunner(decoder, slots, context)


def _weights(
    folder: Path, config: DecoderConfig, placed: ModelPlacement, device: str
) -> tuple[DecoderWeights, str | None]:
    """Return a model's weights, and the format to which compiled passes round them when they are packed."""
    adapted = placed.adapted
    if not packs_one_by_one(config, placed.dtype, placed.quantize, device, placed.graphs, adapted=adapted):
        weights = load_weights(folder, config, placed.dtype, device, placed.quantize)
        return weights, None
    widen = computes_in_float32(config, placed.dtype, device, placed.graphs)
    keep_int4 = placed.quantize == "int4"
    weights = stream_weights(folder, config, placed.dtype, widen=widen, keep_int4=keep_int4)
    return weights, placed.quantize
