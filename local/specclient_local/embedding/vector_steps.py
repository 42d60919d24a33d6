"""The steps after pooling: dense layers, layer norms, and scaling to length 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specclient.errors import CheckpointError
from specclient_local.embedding.layout import ACTIVATIONS, DenseLayout, LayerNormLayout, VectorStep
from specclient_local.model.checkpoint_files import check_regular
from specclient_local.model.weights import check_values, open_tensors, tensor_errors

VectorFunction = Callable[[Tensor], Tensor]

_WEIGHTS = "model.safetensors"
_ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {name: getattr(nn, name) for name in ACTIVATIONS}


def load_step(step: VectorStep, device: torch.device) -> VectorFunction:
    """Return the function of a step, ``[B, inputs]`` to ``[B, outputs]`` in float32.

    Raises:
        CheckpointError: its weights are missing, have other shapes, or cannot be read.
    """
    if isinstance(step, DenseLayout):
        return _dense(step, device)
    if isinstance(step, LayerNormLayout):
        shapes = {"norm.weight": (step.size,), "norm.bias": (step.size,)}
        tensors = _read(step.folder / _WEIGHTS, shapes, device)
        weight, bias = tensors["norm.weight"], tensors["norm.bias"]
        return lambda x: F.layer_norm(x, (step.size,), weight, bias)
    return lambda x: F.normalize(x, dim=-1)


def _dense(step: DenseLayout, device: torch.device) -> VectorFunction:
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (step.outputs, step.inputs)}
    if step.bias:
        shapes["linear.bias"] = (step.outputs,)
    projects = step.residual and step.inputs != step.outputs
    if projects:
        shapes["residual.weight"] = (step.outputs, step.inputs)
    tensors = _read(step.folder / _WEIGHTS, shapes, device)
    activation = _ACTIVATIONS[step.activation]()

    def apply(x: Tensor) -> Tensor:
        out: Tensor = activation(F.linear(x, tensors["linear.weight"], tensors.get("linear.bias")))
        if not step.residual:
            return out
        return out + (F.linear(x, tensors["residual.weight"]) if projects else x)

    return apply


def _read(path: Path, shapes: Mapping[str, tuple[int, ...]], device: torch.device) -> dict[str, Tensor]:
    """Read tensors of the given shapes, in float32."""
    check_regular(path)
    if not path.exists():
        raise CheckpointError(
            f"{path} is missing; only safetensors are loaded (pickled weights can run code). Save the model "
            "again with sentence-transformers."
        )
    found: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        with open_tensors(path, name) as file, tensor_errors(path, name):
            stored = tuple(file.get_slice(name).get_shape())
            if stored != shape:
                raise CheckpointError(
                    f"{path}: tensor {name} has shape {list(stored)}, but config.json requires "
                    f"{list(shape)}; the two belong to different models."
                )
            found[name] = file.get_tensor(name).float().to(device)
    check_values(path, found.items())
    return found
