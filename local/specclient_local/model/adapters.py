"""LoRA adapters in PEFT's format: low-rank changes of a model's matrices, fused as the matrices are.

Hu et al., LoRA (arXiv 2106.09685). An adapter's folder has ``adapter_config.json`` and
``adapter_model.safetensors``. Everything is checked against the model's shape from the headers alone, before
memory is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specclient.errors import CheckpointError
from specclient_local.model.architecture import DecoderConfig
from specclient_local.model.checkpoint_files import (
    checkpoint_errors,
    finite_number,
    label,
    read_json,
    shown,
    whole_number,
)
from specclient_local.model.families import family_of
from specclient_local.model.families.family import Family
from specclient_local.model.layer_weights import LayerChanges, LayerTensors, LowRank, TensorReader
from specclient_local.model.weights import check_values, open_tensors, tensor_errors

_WEIGHTS, _SETTINGS = "adapter_model.safetensors", "adapter_config.json"
_MAX_RANK = 2**12
_PART = re.compile(r"base_model\.model\.(?P<module>[\w.]+)\.lora_(?P<side>[AB])(\.default)?\.weight")
_OFF: Mapping[str, tuple[Any, ...]] = {
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "lora_bias": (False, None),
    "bias": ("none", None),
    "modules_to_save": (None, []),
    "alpha_pattern": (None, {}),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, []),
    "target_parameters": (None, []),
}
"""Settings that change what an adapter computes, with the values at which they do not."""


@dataclass(frozen=True, slots=True)
class _Module:
    """The two matrices of a changed module: ``[r, in]`` and ``[out, r]``, the second scaled."""

    down: Tensor
    up: Tensor


def load_adapter(
    folder: Path, config: DecoderConfig, dtype: str = "float32", device: str = "cpu"
) -> tuple[LayerChanges, ...]:
    """Read an adapter for a model.

    Args:
        folder: contains the adapter's configuration and its weights.
        config: the model's configuration.
        dtype: type of computation.
        device: name of the torch device; ``meta`` only checks the shapes, by the file's header.

    Returns:
        The changes of each layer.

    Raises:
        CheckpointError: the adapter is of another kind or for another model; names the file and the value.
    """
    if config.delta is not None:
        raise CheckpointError(
            f"{folder}: adapters are given, but a {config.model_type} model is recurrent in some layers, "
            "whose matrices adapters cannot change; merge the adapter into the model."
        )
    scale, rank = _settings(folder / _SETTINGS)
    modules = _modules(folder / _WEIGHTS, scale, rank, getattr(torch, dtype), device)
    used: set[str] = set()
    with checkpoint_errors(folder):
        changes = tuple(_changes(folder, modules, config, i, used) for i in range(config.layers))
    if unused := sorted(set(modules) - used):
        raise CheckpointError(
            f"{folder}: {label(unused[0])} is no matrix of a layer of this {config.model_type} model with "
            f"{config.layers} layers that adapters can change; choose an adapter that was trained for it."
        )
    return changes


def _settings(path: Path) -> tuple[float, int | None]:
    """Return the factor alpha / r, or alpha / √r, without the division, and the rank if all have one."""
    raw = read_json(path)
    if raw.get("peft_type") != "LORA":
        raise CheckpointError(f"{path}: peft_type is {shown(raw.get('peft_type'))}; supported is 'LORA'.")
    for name, allowed in _OFF.items():
        if raw.get(name) not in allowed:
            raise CheckpointError(
                f"{path}: {name} is {shown(raw[name])}; supported is {allowed[0]!r}. Merge the adapter into "
                "its model, and load the result."
            )
    with checkpoint_errors(path):
        rank = whole_number(raw, "r", path, 1, _MAX_RANK)
        alpha = finite_number(raw, "lora_alpha", 8.0, path)
    scale = alpha * (rank**0.5 if raw.get("use_rslora") else 1.0)
    return scale, None if raw.get("rank_pattern") else rank


def _modules(
    path: Path, scale: float, rank: int | None, dtype: torch.dtype, device: str
) -> dict[str, _Module]:
    """Return the changed modules by their names in the model."""
    found: dict[str, dict[str, Tensor]] = {}
    with open_tensors(path) as file, tensor_errors(path):
        for name in file.keys():  # noqa: SIM118 - the file is no mapping
            match = _PART.fullmatch(name)
            if match is None:
                raise CheckpointError(
                    f"{path}: tensor {label(name)} is no matrix of a LoRA adapter; supported are lora_A and "
                    "lora_B of linear layers."
                )
            shape = file.get_slice(name).get_shape()
            meta = device == "meta"
            tensor = torch.empty(shape, device=device) if meta else file.get_tensor(name).to(device, dtype)
            if not meta:
                check_values(path, [(name, tensor)])
            found.setdefault(match["module"], {})[match["side"]] = tensor
    return {name: _module(path, name, sides, scale, rank) for name, sides in found.items()}


def _module(path: Path, name: str, sides: Mapping[str, Tensor], scale: float, rank: int | None) -> _Module:
    down, up = sides.get("A"), sides.get("B")
    if down is None or up is None or down.ndim != 2 or up.ndim != 2 or len(down) != up.shape[1]:
        raise CheckpointError(
            f"{path}: {label(name)} needs lora_A [r, in] and lora_B [out, r]; download it again."
        )
    if not 1 <= len(down) <= _MAX_RANK or rank not in (None, len(down)):
        raise CheckpointError(f"{path}: {label(name)} has rank {len(down)}, but {_SETTINGS} has r {rank}.")
    return _Module(down, up * (scale / len(down)))


def _changes(
    folder: Path, modules: Mapping[str, _Module], config: DecoderConfig, index: int, used: set[str]
) -> LayerChanges:
    """Return the changes of a layer, and add the modules that they use to ``used``.

    The rows of a change are arranged as those of the fused matrix, because the family itself arranges them:
    it reads a layer from a reader that returns the rows of the changes.
    """
    family = family_of(config.model_type)
    sparse = config.experts is not None and config.experts.sparse[index]
    builders: dict[str, Callable[[LayerTensors], Tensor]] = {
        "qkv": lambda tensors: family.qkv(tensors)[0],
        "o": Family.o,
    }
    if not sparse:
        builders |= {"gate_up": family.gate_up, "down": family.down}
    found: dict[str, LowRank] = {}
    for field, build in builders.items():
        asked: dict[str, tuple[int, ...]] = {}
        build(LayerTensors(_noting(asked), index, config))
        own = [name for name in asked if name in modules]
        for name in own:
            _check_fit(folder, name, modules[name], asked[name], config)
        if own:
            used.update(own)
            up = build(LayerTensors(_rows_of(modules, own), index, config))
            found[field] = LowRank(torch.cat([modules[name].down for name in own]), up.contiguous())
    return found


def _noting(asked: dict[str, tuple[int, ...]]) -> TensorReader:
    """Return a reader that notes the modules that are asked for, with their shapes."""

    def read(name: str, shape: tuple[int, ...]) -> Tensor:
        if len(shape) == 2:
            asked[name.removesuffix(".weight")] = shape
        return torch.empty(shape, device="meta")

    return read


def _rows_of(modules: Mapping[str, _Module], own: Sequence[str]) -> TensorReader:
    """Return a reader of the rows ``[out, R]`` of several modules' changes, each with columns of its own."""
    ranks = [len(modules[name].down) for name in own]
    first = modules[own[0]].up

    def read(name: str, shape: tuple[int, ...]) -> Tensor:
        rows = first.new_zeros(shape[0], sum(ranks)) if len(shape) == 2 else first.new_zeros(shape)
        module = name.removesuffix(".weight")
        if module in own:
            at = sum(ranks[: own.index(module)])
            rows[:, at : at + ranks[own.index(module)]] = modules[module].up
        return rows

    return read


def _check_fit(
    folder: Path, name: str, module: _Module, shape: tuple[int, ...], config: DecoderConfig
) -> None:
    own = (module.up.shape[0], module.down.shape[1])
    if own != tuple(shape):
        raise CheckpointError(
            f"{folder}: {label(name)} changes a matrix of shape {list(own)}, but this {config.model_type} "
            f"model's is {list(shape)}; the adapter belongs to another model. Choose one for this model."
        )
