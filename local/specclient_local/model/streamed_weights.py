"""Decoder weights whose layers are read from the checkpoint one by one.

Packing them as they are read takes the memory of a single layer beside the packed weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import overload

import torch

from specclient_local.model.checkpoint_files import is_gguf
from specclient_local.model.config import DecoderConfig
from specclient_local.model.layer_weights import DecoderWeights, LayerWeights, widened_layer
from specclient_local.model.system_memory import release_free_memory
from specclient_local.model.weights import layer_weights, outer_weights, tensor_reader

__all__ = ["CheckpointLayers", "stream_weights"]

_LAYERS_PER_RELEASE = 4
"""Layers after which freed memory is returned to the system. The next layer reuses what is not returned, and
the system takes as long to grant pages again as packing takes."""


class CheckpointLayers(Sequence[LayerWeights]):
    """A checkpoint's layers, each read from its file whenever it is asked for, and not kept.

    A safetensors file is opened for each layer, because the system counts the pages of an open file that were
    read as the process's own. A GGUF file stays open, since its header takes long to read.

    Args:
        folder: contains safetensors files; or a GGUF file.
        config: the model's configuration; gives the expected shapes.
        dtype: type of the matrices.
        widen: whether norms and biases are converted to float32.
        keep_int4: whether matrices that are in symmetric 4 bits stay so; see :func:`tensor_reader`.
    """

    def __init__(
        self, folder: Path, config: DecoderConfig, dtype: torch.dtype, *, widen: bool, keep_int4: bool = False
    ) -> None:
        self._folder, self._config, self._dtype, self._widen = folder, config, dtype, widen
        self._keep_int4 = keep_int4
        self._opened = tensor_reader(folder, config, ExitStack(), dtype, "cpu") if is_gguf(folder) else None

    def __len__(self) -> int:
        """Return the number of layers."""
        return self._config.layers

    @overload
    def __getitem__(self, index: int) -> LayerWeights: ...
    @overload
    def __getitem__(self, index: slice) -> list[LayerWeights]: ...
    def __getitem__(self, index: int | slice) -> LayerWeights | list[LayerWeights]:
        """Read a layer, or several.

        Raises:
            CheckpointError: see :func:`specclient_local.model.weights.load_weights`.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index % _LAYERS_PER_RELEASE == 0:
            release_free_memory()  # of the layers before
        with ExitStack() as stack:
            take = self._opened or tensor_reader(
                self._folder, self._config, stack, self._dtype, "cpu", keep_int4=self._keep_int4
            )
            layer = layer_weights(take, index, self._config)
        return widened_layer(layer) if self._widen else layer


def stream_weights(
    folder: Path, config: DecoderConfig, dtype: str, *, widen: bool, keep_int4: bool = False
) -> DecoderWeights:
    """Read embedding, last norm and head of a checkpoint; its layers are read one by one when asked for.

    Args:
        folder, config, dtype: as for :func:`specclient_local.model.weights.load_weights`.
        widen: whether everything but the matrices and the head is converted to float32.
        keep_int4: see :class:`CheckpointLayers`.

    Raises:
        CheckpointError: see :func:`specclient_local.model.weights.load_weights`; about a layer, when it is
            read.
    """
    numbers: torch.dtype = getattr(torch, dtype)
    with ExitStack() as stack:
        outer = outer_weights(tensor_reader(folder, config, stack, numbers, "cpu"), config)
    outer = outer.widened() if widen else outer
    return replace(outer, layers=CheckpointLayers(folder, config, numbers, widen=widen, keep_int4=keep_int4))
