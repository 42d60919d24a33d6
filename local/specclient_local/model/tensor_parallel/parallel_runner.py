"""Runs a model that is divided among several devices: this process has the first part, others the rest.

All processes hold the same slots. Each operation that changes them is sent to the other processes before it
is done here, so all do the same in the same order, and meet in the sums of every pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specclient_local.model.config import DecoderConfig, read_config
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner, max_shared_rows
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.tensor_parallel.device_group import DeviceGroup, check_distributed
from specclient_local.model.tensor_parallel.shard_processes import ShardProcesses
from specclient_local.model.tensor_parallel.sharded_passes import ShardedPasses
from specclient_local.model.weight_shards import WeightShard
from specclient_local.model.weights import DecoderWeights, load_weights


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """The settings by which a process loads and runs its part.

    Attributes:
        folder: the checkpoint.
        dtype, quantize: see :class:`specclient_local.loading.options.EngineOptions`.
        device: name of the part's device.
        slots, context, exact: see :func:`specclient_local.loading.model_loader.load_model`.
        shard: the part.
        meeting: see :class:`DeviceGroup`.
        threads: number of torch threads.
    """

    folder: Path
    dtype: str
    quantize: str | None
    device: str
    slots: int
    context: int
    exact: bool
    shard: WeightShard
    meeting: Path
    threads: int

    def load(self) -> tuple[DecoderConfig, DecoderWeights]:
        """Load the part.

        Raises:
            CheckpointError, ConfigurationError: see :func:`load_weights`.
        """
        whole = read_config(self.folder)
        with torch.inference_mode():
            weights = load_weights(
                self.folder, whole, self.dtype, self.device, self.quantize, shard=self.shard
            )
        return self.shard.config(whole), weights

    def decoder(self, config: DecoderConfig, weights: DecoderWeights) -> TransformerDecoder:
        """Return the part as a decoder, after all processes have met."""
        group = DeviceGroup(self.meeting, self.shard.rank, self.shard.size, torch.device(self.device))
        most = max_shared_rows(self.slots)

        def passes(config: DecoderConfig, weights: DecoderWeights, turns: Tensor) -> ShardedPasses:
            return ShardedPasses(config, weights, turns, group, exact=self.exact, most=most)

        with torch.inference_mode():
            return TransformerDecoder(config, weights, self.context, passes=passes)


class ParallelRunner(DecoderRunner):
    """A :class:`DecoderRunner` of the first part of a model.

    Args:
        decoder: the part.
        slots: number of slots.
        context: number of positions of each.
        others: the processes of the other parts.
    """

    def __init__(self, decoder: TransformerDecoder, slots: int, context: int, others: ShardProcesses) -> None:
        super().__init__(decoder, slots, context)
        self._others = others

    @classmethod
    def load_parts(cls, settings: Sequence[ShardSettings]) -> ParallelRunner:
        """Load all parts of a model; the first one in this process.

        Raises:
            CheckpointError, ConfigurationError: a part cannot be loaded, or its process not be started.
        """
        own, *rest = settings
        check_distributed(torch.device(own.device))
        own.shard.config(read_config(own.folder))  # raises before any process is started
        others = ShardProcesses(rest)
        try:
            config, weights = own.load()
            others.wait_until_loaded()
            with torch.inference_mode():
                return cls(own.decoder(config, weights), own.slots, own.context, others)
        except BaseException:
            others.stop()
            raise

    def run_pass(self, parts: Sequence[SlotInput], *, unread: bool = False) -> list[Tensor]:
        """See :class:`DecoderRunner`; the other parts need no logits."""
        self._others.send("run_unread", [*parts])
        return super().run_pass(parts, unread=unread)

    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """See :class:`DecoderRunner`."""
        self._others.send("keep", slot, root, [*path])
        super().keep(slot, root, path)

    def truncate(self, slot: int, length: int) -> None:
        """See :class:`DecoderRunner`."""
        self._others.send("truncate", slot, length)
        super().truncate(slot, length)

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """See :class:`DecoderRunner`."""
        self._others.send("copy", source, slot, start, end)
        super().copy(source, slot, start, end)

    def erase(self, slot: int) -> None:
        """See :class:`DecoderRunner`."""
        self._others.send("erase", slot)
        super().erase(slot)

    def assume_length(self, slot: int, length: int) -> None:
        """See :class:`DecoderRunner`."""
        self._others.send("assume_length", slot, length)
        super().assume_length(slot, length)

    def stop(self) -> None:
        """End the other processes; nothing can be run afterwards."""
        self._others.stop()
