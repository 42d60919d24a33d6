"""Loading of decoder weights from a checkpoint folder or hub id, with fused and checked tensors."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.model.checkpoint_files import (
    check_files,
    check_regular,
    is_gguf,
    label,
    one_line,
    read_json,
    shard_files,
)
from specclient_local.model.config import DecoderConfig, local_folder, probably_meant
from specclient_local.model.dequantisation import StoredMatrices
from specclient_local.model.families import family_of
from specclient_local.model.gguf.header import read_header
from specclient_local.model.gguf.tensors import gguf_tensors, tensor_entry
from specclient_local.model.int4_rows import int4_parts
from specclient_local.model.layer_weights import (
    DecoderWeights,
    LayerTensors,
    LayerWeights,
    TensorReader,
    interleave,
)
from specclient_local.model.native.value_check import all_finite
from specclient_local.model.quantization import quantize_weight
from specclient_local.model.stored_format import read_stored_format
from specclient_local.model.weight_shards import WeightShard

__all__ = [
    "EMBEDDING_SHAPE",
    "DecoderWeights",
    "LayerWeights",
    "TensorReader",
    "check_tensors",
    "check_values",
    "count_numbers",
    "interleave",
    "load_weights",
    "open_tensors",
    "resolve_checkpoint",
    "tensor_errors",
    "tensor_names",
    "tensor_reader",
]

_PATTERNS = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "vocab.txt", "merges.txt")
_UNREADABLE = (
    SafetensorError, OSError, TypeError, ValueError, LookupError, AttributeError, RuntimeError,
)  # fmt: skip
_SHAPE = ("config.json", "generation_config.json")
#: The files that state the shape of an embedding model.
EMBEDDING_SHAPE = (
    *_SHAPE, "modules.json", "config_sentence_transformers.json", "sentence_*_config.json", "*/config.json",
)  # fmt: skip


def resolve_checkpoint(path_or_id: str | Path, *, whole: bool = True, shape: Sequence[str] = _SHAPE) -> Path:
    """Return the folder of a checkpoint, or its GGUF file; a hub id is downloaded.

    Args:
        path_or_id: folder, GGUF file, hub id, or ``bundled:`` and the name of a bundled checkpoint.
        whole: whether to download all files needed for loading, or only ``shape``.
        shape: patterns of the files that state the model's shape.

    Raises:
        CheckpointError: neither a folder nor a hub id that can be downloaded.
        ConfigurationError: ``path_or_id`` is empty or neither a string nor a path.
    """
    if not isinstance(path_or_id, str | os.PathLike) or not str(path_or_id):
        raise ConfigurationError(f"model is {path_or_id!r}; it must be a folder or hub id.")
    name = str(path_or_id)
    if (folder := local_folder(name)) is not None:
        check_regular(folder) if is_gguf(folder) else check_files(folder)
        return folder
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only needed for hub ids
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    try:
        return Path(snapshot_download(name, allow_patterns=list(_PATTERNS if whole else shape)))
    except (OSError, ValueError, RuntimeError, HfHubHTTPError) as error:
        raise CheckpointError(
            f"{name} is not a local folder and could not be downloaded from the hub "
            f"({type(error).__name__}); {probably_meant(name)}check name and connection, or download it and "
            "name its folder."
        ) from error


def load_weights(
    folder: Path,
    config: DecoderConfig,
    dtype: str = "float32",
    device: str = "cpu",
    quantize: str | None = None,
    *,
    shard: WeightShard | None = None,
) -> DecoderWeights:
    """Read and fuse a checkpoint's tensors.

    Args:
        folder: contains ``model.safetensors``, or shards and their index; or a GGUF file.
        config: the model's configuration; gives the expected shapes.
        dtype: compute type, one of ``config.DTYPES``; the file may use another.
        device: name of the torch device to load onto.
        quantize: format of projections and head, see :mod:`specclient_local.model.quantization`. A tied
            embedding stays in ``dtype`` for lookups and is quantised for the head.
        shard: the part of the weights to keep; None for all.

    Raises:
        CheckpointError: names the file, the tensor, its shape and the expected one.
        ConfigurationError: the device does not support the quantisation.
    """
    with ExitStack() as stack:
        take = tensor_reader(folder, config, stack, getattr(torch, dtype), device)
        if shard is not None:
            take, config = shard.reader(take), shard.config(config)
        names: frozenset[str] = frozenset() if is_gguf(folder) else tensor_names(folder)
        return _fused(take, config, quantize, names)


def check_tensors(path: Path, config: DecoderConfig) -> None:
    """Compare the table of tensors of a GGUF file with the model's shape. No weights are read.

    Raises:
        CheckpointError: names the file, the tensor, its shape or type, and what is expected.
    """
    header = read_header(path)

    def entry(name: str, shape: tuple[int, ...]) -> Tensor:
        tensor_entry(header, name, shape)
        return torch.empty(shape, device="meta")

    _fused(entry, config, None)


def _fused(
    take: TensorReader,
    config: DecoderConfig,
    quantize: str | None,
    names: frozenset[str] = frozenset(),
) -> DecoderWeights:
    outer = outer_weights(take, config)
    layers = [layer_weights(take, i, config, quantize, names) for i in range(config.layers)]
    return replace(outer, layers=layers, head=_held(outer.head, quantize))


def outer_weights(take: TensorReader, config: DecoderConfig) -> DecoderWeights:
    """Return the weights outside of the layers."""
    hidden, vocab = config.hidden_size, config.vocab_size
    family = family_of(config.model_type)
    embedding = take(f"{family.root}embed_tokens.weight", (vocab, hidden))
    head = embedding if config.tied else take("lm_head.weight", (vocab, hidden))
    norm = family.norm(take(f"{family.root}norm.weight", (hidden,)))
    return DecoderWeights(embedding, [], norm, head)


def layer_weights(
    take: TensorReader,
    index: int,
    config: DecoderConfig,
    quantize: str | None = None,
    names: frozenset[str] = frozenset(),
) -> LayerWeights:
    """Read and fuse the tensors of a layer.

    Args:
        take: reads a tensor.
        index: the layer's number.
        config: the model's configuration.
        quantize: format of the matrices; None for that of the checkpoint.
        names: of the checkpoint's tensors, for families with several layouts.
    """
    hold = partial(_held, quantize=quantize)
    family = family_of(config.model_type)
    return family.layer(LayerTensors(take, index, config, hold, f"{family.root}layers.{{}}.", names))


def _held(matrix: Tensor, quantize: str | None) -> Tensor:
    return matrix if quantize is None else quantize_weight(matrix, quantize)


def count_numbers(folder: Path) -> int:
    """Return the number of parameters of a checkpoint, from its files' headers.

    Raises:
        CheckpointError: the folder has no safetensors files, or one cannot be read.
    """
    total = 0
    for path in sorted(set(_tensor_files(folder).values())):
        with open_tensors(path) as file, tensor_errors(path):
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total


def open_tensors(path: Path, name: str | None = None) -> Any:
    """Open a safetensors file; the result is a context manager that closes it.

    Args:
        path: the file.
        name: the tensor that will be read, for error messages.

    Raises:
        CheckpointError: the file is missing, no regular file, or its header is invalid.
    """
    check_regular(path)
    with tensor_errors(path, name):
        return safe_open(path, framework="pt")


@contextmanager
def tensor_errors(path: Path, name: str | None = None) -> Iterator[None]:
    """Turn the library's errors about a safetensors file into CheckpointError.

    Args:
        path: the file, for the message.
        name: the tensor that is read, if it is one.
    """
    what = str(path) if name is None else f"{path}: tensor {label(name)}"
    try:
        yield
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, but the index lists it; download it again.") from None
    except _UNREADABLE as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{what} cannot be read ({one_line(error)}); download it again.") from error


def check_values(where: Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Check that all values of the tensors are finite.

    Raises:
        CheckpointError: names the first tensor with a value that is not finite.
    """
    for name, tensor in tensors:
        if not all_finite(tensor):
            count = int((~torch.isfinite(tensor)).sum())
            raise CheckpointError(
                f"{where}: tensor {name} contains {count} non-finite numbers in "
                f"{str(tensor.dtype)[6:]}; load in float32 or bfloat16, or download it again."
            )


def tensor_reader(
    folder: Path,
    config: DecoderConfig,
    stack: ExitStack,
    dtype: torch.dtype,
    device: str,
    *,
    keep_int4: bool = False,
) -> TensorReader:
    """Return a function that reads and checks one tensor; files are opened lazily.

    Args:
        folder: a checkpoint's folder, or a GGUF file.
        config: the model's configuration.
        stack: closes the files.
        dtype: type of the tensors.
        device: name of the torch device to load onto.
        keep_int4: whether a layer's matrices in symmetric 4 bits are returned as rows of bytes, see
            :mod:`specclient_local.model.int4_rows`.
    """
    if is_gguf(folder):
        read = gguf_tensors(folder, config, dtype, device)

        def checked(name: str, shape: tuple[int, ...]) -> Tensor:
            tensor = read(name, shape)
            check_values(folder, [(name, tensor)])
            return tensor

        return checked
    where = _tensor_files(folder)
    opened: dict[Path, Any] = {}

    def path_of(name: str) -> Path:
        path = where.get(name) or where.get("")
        if path is None:
            raise CheckpointError(f"{folder}: tensor {name} is in none of the shards; download it again.")
        if path not in opened:
            opened[path] = stack.enter_context(open_tensors(path, name))
        return path

    def get(name: str) -> Tensor:
        path = path_of(name)
        with tensor_errors(path, name):
            tensor: Tensor = opened[path].get_tensor(name)
        return tensor

    def has(name: str) -> bool:
        return name in where or ("" in where and name in opened[path_of(name)].keys())  # noqa: SIM118 - no mapping

    form = read_stored_format(read_json(folder / "config.json"), folder / "config.json")
    stored = None if form is None else StoredMatrices(form, has, get, lambda name: str(path_of(name)))

    def take(name: str, shape: tuple[int, ...]) -> Tensor:
        if keep_int4 and stored is not None and (rows := stored.int4_rows(name, shape)) is not None:
            check_values(folder, [(name, int4_parts(rows)[1])])
            return rows
        tensor = None if stored is None else stored.numbers(name, shape)
        tensor = get(name) if tensor is None else tensor
        path = path_of(name) if name in where or "" in where else folder
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{path}: tensor {name} has shape {list(tensor.shape)}, but config.json "
                f"requires {list(shape)}; the two belong to different models."
            )
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{path}: tensor {name} has type {tensor.dtype}; choose an unquantised checkpoint."
            )
        tensor = tensor.to(device, dtype)
        check_values(path, [(name, tensor)])
        return tensor

    return take


def tensor_names(folder: Path) -> frozenset[str]:
    """Return the names of a checkpoint's tensors, from its index, or from the header of its only file.

    Raises:
        CheckpointError: the folder has no safetensors files, or the only one cannot be read.
    """
    where = _tensor_files(folder)
    if "" not in where:
        return frozenset(where)
    with open_tensors(where[""]) as file, tensor_errors(where[""]):
        return frozenset(file.keys())


def _tensor_files(folder: Path) -> Mapping[str, Path]:
    """Map tensor names to files; a single file has the empty name as its key."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    for path in (single, index):
        check_regular(path)
    if index.is_file():
        return shard_files(index)
    if single.is_file():
        return {"": single}
    raise CheckpointError(
        f"{folder} contains no model.safetensors; only safetensors are loaded (pickled weights can run "
        "code). Save the model with save_pretrained(..., safe_serialization=True)."
    )
