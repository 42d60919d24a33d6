"""The quantisation of a checkpoint's tensors, as the ``quantization_config`` of ``config.json`` states it.

Formats: GPTQ (Frantar et al., arXiv 2210.17323) as AutoGPTQ and GPTQModel write it; AWQ (Lin et al., arXiv
2306.00978) as AutoAWQ does, version ``gemm``; ``compressed-tensors`` of the vLLM project; blocks of fp8 as
DeepSeek and Qwen publish them; MXFP4 (Open Compute Project, Microscaling Formats 1.0) as in gpt-oss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import label, shown, whole_number

StoredKind = Literal["gptq", "awq", "compressed-tensors", "fp8", "mxfp4"]
STORED_KINDS: tuple[StoredKind, ...] = get_args(StoredKind)

_PACKED_BITS = {"gptq": (4, 8), "awq": (4,)}
_COMPRESSED = {"pack-quantized": "int", "int-quantized": "int", "float-quantized": "float"}
"""Formats of compressed-tensors, with the type of their numbers."""

_MAX_GROUP = 2**16


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """How a checkpoint's matrices are stored.

    Attributes:
        kind: the format.
        bits: bits of a number.
        zero_offset: number that is added to the zero points in the file: 1 in GPTQ's first version.
        group: inputs that share a scale; None for all.
        block: rows and columns that share a factor, in blocks of fp8.
    """

    kind: StoredKind
    bits: int = 4
    zero_offset: int = 0
    group: int | None = None
    block: tuple[int, int] = (128, 128)


def read_stored_format(raw: Mapping[str, Any], path: Path) -> StoredFormat | None:
    """Return how the matrices are stored; None if they are not quantised.

    Args:
        raw: content of ``config.json``.
        path: the file, for error messages.

    Raises:
        CheckpointError: the format is not supported; names what is.
    """
    table = raw.get("quantization_config")
    if table is None:
        return None
    kind = table.get("quant_method", "unnamed") if isinstance(table, Mapping) else table
    if kind not in STORED_KINDS or not isinstance(table, Mapping):
        raise CheckpointError(
            f"{path}: quantization_config says that the weights are quantised ({label(kind)}), which is not "
            f"supported; supported are {', '.join(STORED_KINDS)}. Choose the unquantised checkpoint, and "
            "quantise it at loading with quantize='int8'."
        )
    if kind in ("gptq", "awq"):
        return _packed(kind, table, path)
    if kind == "compressed-tensors":
        return _compressed(table, path)
    if kind == "mxfp4":
        return StoredFormat(kind)
    sizes = table.get("weight_block_size")
    if not isinstance(sizes, list) or len(sizes) != 2:
        raise _unsupported(path, f"weight_block_size {shown(sizes)} of fp8", "two numbers")
    rows, columns = (
        whole_number({"weight_block_size": size}, "weight_block_size", path, 1, _MAX_GROUP) for size in sizes
    )
    return StoredFormat(kind, 8, block=(rows, columns))


def _packed(kind: StoredKind, table: Mapping[str, Any], path: Path) -> StoredFormat:
    bits = whole_number({"bits": table.get("bits", table.get("w_bit"))}, "bits", path, 1, 32)
    if bits not in _PACKED_BITS[kind]:
        allowed = " and ".join(map(str, _PACKED_BITS[kind]))
        raise _unsupported(path, f"{bits} bits of {kind}", f"{allowed} bits")
    if kind == "awq":
        version = str(table.get("version", "gemm")).lower()
        if version != "gemm":
            raise _unsupported(path, f"version {shown(version)} of awq", "'gemm'")
        return StoredFormat(kind, bits)
    written = table.get("checkpoint_format") or "gptq"
    if written not in ("gptq", "gptq_v2"):
        raise _unsupported(path, f"checkpoint_format {shown(written)}", "'gptq' and 'gptq_v2'")
    return StoredFormat(kind, bits, 1 if written == "gptq" else 0, _group(table, path))


def _group(table: Mapping[str, Any], path: Path) -> int | None:
    """Return the number of inputs that share a scale; None for all."""
    if table.get("group_size") in (None, -1):
        return None
    return whole_number(table, "group_size", path, 1, _MAX_GROUP)


def _compressed(table: Mapping[str, Any], path: Path) -> StoredFormat:
    written, groups = table.get("format"), table.get("config_groups")
    if written not in _COMPRESSED or not isinstance(groups, Mapping) or not groups:
        raise _unsupported(path, f"format {shown(written)} of compressed-tensors", ", ".join(_COMPRESSED))
    found: set[int] = set()
    sizes: set[int | None] = set()
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping) or weights.get("type") != _COMPRESSED[written]:
            raise _unsupported(path, f"weights {shown(weights)}", f"the type {_COMPRESSED[written]!r}")
        found.add(whole_number(weights, "num_bits", path, 1, 32))
        sizes.add(_group(weights, path))
    if len(found) > 1 or len(sizes) > 1 or not found <= {4, 8} or table.get("sparsity_config"):
        several = f"weights of {sorted(found)} bits in groups of {', '.join(map(str, sizes))}"
        what = "sparse weights" if table.get("sparsity_config") else several
        raise _unsupported(path, what, "4 or 8 bits, and one size of groups, for all matrices")
    return StoredFormat("compressed-tensors", found.pop(), group=sizes.pop())


def _unsupported(path: Path, what: str, allowed: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: quantization_config states {what}; supported are {allowed}. Choose another checkpoint."
    )
