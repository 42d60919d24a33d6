"""Reading of checked tensors from the safetensors files of heads."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import check_regular, shard_files
from specclient_local.model.weights import check_values, open_tensors, tensor_errors

_PICKLED = (".bin", ".pt", ".pth")


class CheckpointTensors:
    """Reads a checkpoint's tensors one by one. A context manager that closes the files.

    Args:
        folder: contains the file, or shards and their index.
        file: name of the file.
        dtype: type of the tensors that are read.
        device: device to load onto.

    Raises:
        CheckpointError: a file is missing or cannot be read.
    """

    def __init__(self, folder: Path, file: str, dtype: torch.dtype, device: torch.device) -> None:
        self._stack = ExitStack()
        self._dtype, self._device = dtype, device
        self.path = folder / file
        self._files: dict[str, Any] = {}
        for path in _files(folder, file):
            opened = self._stack.enter_context(open_tensors(path))
            self._files.update(dict.fromkeys(opened.keys(), opened))

    def __enter__(self) -> CheckpointTensors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        return tuple(self._files)

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Read a floating-point tensor of this shape.

        Raises:
            CheckpointError: names the file, the tensor, its shape and the expected one.
        """
        tensor = self._raw(name, shape)
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{self.path}: tensor {name} has type {str(tensor.dtype)[6:]}, but floating-point numbers "
                "are expected; choose an unquantised checkpoint."
            )
        tensor = tensor.to(self._device, self._dtype)
        check_values(self.path, [(name, tensor)])
        return tensor

    def vector(self, name: str, size: int) -> Tensor:
        """Read a floating-point tensor of ``size`` numbers, ``[size]``, which may be stored as rows of one.

        Raises:
            CheckpointError: as for :meth:`take`.
        """
        stored = tuple(self._files[name].get_slice(name).get_shape()) if name in self else ()
        rows = stored[:-1] if stored[-1:] == (size,) and set(stored[:-1]) <= {1} else ()
        return self.take(name, (*rows, size)).flatten()

    def maybe(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        """Read a floating-point tensor, or return None if it does not exist."""
        return self.take(name, shape) if name in self else None

    def integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Read an integer or bool tensor of this shape, as int64."""
        tensor = self._raw(name, shape)
        if tensor.is_floating_point():
            raise CheckpointError(
                f"{self.path}: tensor {name} has type {str(tensor.dtype)[6:]}, but integers are expected; "
                "the checkpoint is of another kind."
            )
        return tensor.to(self._device, torch.int64)

    def _raw(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._files:
            raise CheckpointError(
                f"{self.path}: tensor {name} of shape {list(shape)} is missing; the checkpoint is cut "
                "short, or of another kind than its config.json says."
            )
        with tensor_errors(self.path, name):
            tensor: Tensor = self._files[name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{self.path}: tensor {name} has shape {list(tensor.shape)}, but config.json and the target "
                f"require {list(shape)}; they belong to different models."
            )
        return tensor


def _files(folder: Path, file: str) -> list[Path]:
    """Return the file, or the shards listed in its index."""
    single, index = folder / file, folder / f"{file}.index.json"
    for path in (single, index):
        check_regular(path)
    if single.is_file():
        return [single]
    if not index.is_file():
        raise _missing(folder, file)
    return sorted(set(shard_files(index).values()))


def _missing(folder: Path, file: str) -> CheckpointError:
    """Return (not raise) the error for a folder without safetensors, with a command to convert pickles."""
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLED)
    message = f"{folder} contains no {file}; only safetensors are loaded (pickled weights can run code)."
    old = pickled[0] if pickled else "pytorch_model.bin"
    convert = (
        'python -c "import torch; from safetensors.torch import save_file; '
        f"save_file({{k: v.contiguous() for k, v in torch.load('{old}', weights_only=True).items()}}, "
        f"'{file}')\""
    )
    return CheckpointError(
        f"{message} Convert {old} in that folder with {convert}"
        if pickled
        else f"{message} If its repository has {old}, download that and convert it with {convert}"
    )
