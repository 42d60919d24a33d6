"""The tensors of a GGUF file, by the names and in the order of rows of transformers' checkpoints.

A tensor is read through a map of the file, a group of rows at a time, so that apart from the result only one
group is held as float32. Files of the architecture ``llama`` have the rows of queries and keys in adjacent
pairs instead of halves; they are put back into halves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import label
from specclient_local.model.config import DecoderConfig
from specclient_local.model.gguf.header import (
    QUANTIZATIONS,
    GgufHeader,
    GgufTensor,
    gguf_package,
    read_header,
)
from specclient_local.model.gguf.names import expert_number, gguf_name

_GROUP_BYTES = 2**24
"""Bytes of float32 numbers that are made at a time."""

_ROTATED = re.compile(r".*\.self_attn\.[qk]_proj\.(weight|bias)")

_NORM_OFFSET = {"gemma3": 1.0}
"""The number that the converter adds to the weights of norms, by architecture."""


def tensor_entry(header: GgufHeader, name: str, shape: tuple[int, ...]) -> GgufTensor:
    """Return the entry of a tensor after comparing it with the expected shape.

    Args:
        header: the file's header.
        name: the tensor's name in a transformers checkpoint.
        shape: the expected shape; of an expert's matrix, which is a part of the tensor.

    Raises:
        CheckpointError: the tensor is missing, or has another shape or an unsupported type.
    """
    own = gguf_name(name, str(header.values.get("general.architecture")))
    entry, expert = header.tensors.get(own), expert_number(name)
    if entry is None:
        raise CheckpointError(f"{header.path}: tensor {label(own)} is missing; download it again.")
    if entry.kind not in QUANTIZATIONS or entry.begin is None:
        raise CheckpointError(
            f"{header.path}: tensor {own} has the type {entry.kind}; supported are "
            f"{', '.join(QUANTIZATIONS)}. Choose a file quantised to one of these."
        )
    count = 0 if expert is None else header.value(f"{header.value('general.architecture')}.expert_count")
    whole = shape if expert is None else (count, *shape)
    if entry.shape != whole:
        raise CheckpointError(
            f"{header.path}: tensor {own} has shape {list(entry.shape)}, but its metadata requires "
            f"{list(whole)}; download it again."
        )
    if expert is None:
        return entry
    size = entry.size // count
    return replace(entry, shape=shape, begin=entry.begin + expert * size, size=size)


def gguf_tensors(
    path: Path, config: DecoderConfig, dtype: torch.dtype, device: str
) -> Callable[[str, tuple[int, ...]], Tensor]:
    """Return a function that reads and checks one tensor, by its name in a transformers checkpoint.

    Args:
        path: the file.
        config: the model's configuration.
        dtype: type of the tensors that it returns.
        device: name of the torch device to load onto.
    """
    header, package = read_header(path), gguf_package()
    data: dict[Path, np.ndarray[Any, Any]] = {}
    architecture = header.value("general.architecture")
    halves, offset = architecture == "llama", _NORM_OFFSET.get(architecture, 0.0)

    def take(name: str, shape: tuple[int, ...]) -> Tensor:
        entry = tensor_entry(header, name, shape)
        file = entry.file or path
        if file not in data:
            data[file] = np.memmap(file, np.uint8, mode="r")
        tensor = _read(data[file], entry, package, dtype)
        if halves and _ROTATED.fullmatch(name):
            tensor = in_halves(tensor, config.head_dim)
        if offset and name.endswith("norm.weight"):
            tensor = (tensor.float() - offset).to(dtype)
        return tensor.to(device)

    return take


def _read(data: np.ndarray[Any, Any], entry: GgufTensor, package: Any, dtype: torch.dtype) -> Tensor:
    """Return a tensor's numbers."""
    assert entry.begin is not None
    rows = entry.shape[0] if len(entry.shape) > 1 else 1
    blocks = data[entry.begin : entry.begin + entry.size].reshape(rows, -1)
    kind = package.GGMLQuantizationType[entry.kind]
    out = torch.empty(entry.shape, dtype=dtype)
    target = out.view(rows, -1)
    step = max(1, _GROUP_BYTES // (4 * max(1, target.shape[1])))
    for first in range(0, rows, step):
        numbers = package.dequantize(np.array(blocks[first : first + step]), kind)
        target[first : first + step] = torch.from_numpy(np.ascontiguousarray(numbers, np.float32))
    return out


def in_halves(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder each head's rows ``[H D, ...]`` from adjacent pairs to (first halves, second halves)."""
    rest = rows.shape[1:]
    return rows.view(-1, head_dim // 2, 2, *rest).transpose(1, 2).reshape(rows.shape)
