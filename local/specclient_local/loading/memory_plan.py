"""Memory plans: the bytes that models, slots and a context need on each device, and what would fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from specclient_local.loading.model_loader import (
    computes_in_float32,
    draft_runner,
    packs_one_by_one,
    read_any_config,
    rounded_cache_dtype,
)
from specclient_local.loading.model_memory import ModelMemory
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import DecoderConfig
from specclient_local.model.cuda_graphs.static_runner import PADDING_POSITIONS
from specclient_local.model.devices import parallel_devices, resolve_device
from specclient_local.model.heads.checkpoint import read_heads_shape, required_hidden_layers
from specclient_local.model.heads.eagle_runner import SPARE_POSITIONS
from specclient_local.model.heads.medusa_weights import MedusaShape
from specclient_local.model.heads.mtp_weights import MtpShape
from specclient_local.model.paged_cache import PAGE, page_count
from specclient_local.model.weight_shards import WeightShard

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class DeviceMemoryPlan:
    """The memory that the models on one device need.

    Attributes:
        models: the target first, if it is on this device.
        slots: number of concurrent requests.
        context: tokens of prompt and answer together.
        memory: free bytes of the device; None where unknown.
        tokens: positions of a cache in pages that were asked for; None for those that slots can use.
    """

    models: tuple[ModelMemory, ...]
    slots: int
    context: int
    memory: int | None
    tokens: int | None = None

    @property
    def paged(self) -> bool:
        """Whether the target's cache is in pages."""
        return any(model.paged for model in self.models)

    @property
    def max_cache_tokens(self) -> int | None:
        """Positions in pages for which memory has room, maybe more than slots can use; None where unknown."""
        pages = self._fitting_pages(self.slots, self.context)
        return None if pages is None else pages * PAGE

    @property
    def cache_tokens(self) -> int:
        """Positions that a cache in pages has, in whole pages; at least those of one full slot."""
        return self._tokens(self.slots, self.context)

    @property
    def weights(self) -> int:
        """Bytes of all models' weights."""
        return sum(model.weights for model in self.models)

    @property
    def kv_per_token(self) -> int:
        """Bytes of keys and values per position of one slot, of all models."""
        return sum(model.kv_per_token for model in self.models)

    @property
    def caches(self) -> int:
        """Bytes of the keys and values of all slots."""
        return self._caches(self.slots, self.context, self._tokens(self.slots, self.context))

    def cache_of(self, model: ModelMemory) -> int:
        """Return the bytes of one model's keys and values of all slots."""
        if model.paged:
            return model.pages(self.slots, self.cache_tokens)
        return model.caches(self.slots, self.context)

    @property
    def total(self) -> int:
        """Bytes of weights, caches, tables and activations together."""
        return self._total(self.slots, self.context)

    @property
    def resident(self) -> int:
        """Bytes that are held between rounds once every slot has been full: weights, caches and tables."""
        return self.weights + self.caches + sum(model.tables(self.context) for model in self.models)

    @property
    def loading_peak(self) -> int:
        """Most bytes in use while the models are loaded, one after the other, onto a CPU.

        Positions of the caches take memory once they are in use.
        """
        peak = loaded = 0
        for model in self.models:
            peak = max(peak, loaded + model.weights + model.loading)
            loaded += model.weights + model.tables(self.context)
        return max(peak, loaded)

    @property
    def fits(self) -> bool:
        """Whether the total fits in memory; true where the memory is unknown."""
        return self.memory is None or self.total <= self.memory

    @property
    def max_context(self) -> int | None:
        """Longest context that fits with these slots, at most the target's.

        0 where none fits; None where the memory is unknown.
        """
        if self.memory is None:
            return None
        low, high = 0, self.models[0].config.context
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if self._total(self.slots, middle) <= self.memory else (low, middle - 1)
            )
        return low

    @property
    def max_slots(self) -> int | None:
        """Number of slots that fit with this context; 0 for none, None where the memory is unknown."""
        if self.memory is None:
            return None
        left = self.memory - self._total(0, self.context)
        low, high = 0, max(0, left // self._caches(1, self.context, 0))
        while low < high:  # rounds need memory as well
            middle = (low + high + 1) // 2
            fits = self._total(middle, self.context) <= self.memory
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    @property
    def total_text(self) -> str:
        """The total in GiB or MiB."""
        return _gib(self.total)

    def described(self, device: str) -> str:
        """Return a sentence with what the models need and what a device has; its memory must be known."""
        assert self.memory is not None
        weights = ", ".join(f"the {m.name}'s weights {_gib(m.weights)}" for m in self.models if m.weights)
        held = f"{self.slots} slots of {self.context} positions"
        held = f"{self.cache_tokens} tokens in pages" if self.paged else held
        return (
            f"{weights}, and keys and values of {held} take "
            f"{_gib(self.caches)} ({self.kv_per_token} bytes per token); with the activations, that is "
            f"{_gib(self.total)}, but {device} has {_gib(self.memory)} free."
        )

    def _tokens(self, slots: int, context: int) -> int:
        """Return the positions of a cache in pages: as asked for, else what slots can use and memory has
        room for, but at least one full context.
        """
        if not self.paged:
            return 0
        full = page_count(context + PADDING_POSITIONS)
        if self.tokens is not None:
            return max(full, page_count(self.tokens)) * PAGE
        fitting = self._fitting_pages(slots, context)
        return max(full, slots * full if fitting is None else min(slots * full, fitting)) * PAGE

    def _fitting_pages(self, slots: int, context: int) -> int | None:
        per_page = PAGE * sum(model.kv_per_token for model in self.models if model.paged)
        if self.memory is None or not per_page:
            return None
        return max(0, self.memory - self._total(slots, context, 0)) // per_page

    def _caches(self, slots: int, context: int, tokens: int) -> int:
        return sum(
            model.pages(slots, tokens) if model.paged else model.caches(slots, context)
            for model in self.models
        )

    def _total(self, slots: int, context: int, tokens: int | None = None) -> int:
        tokens = self._tokens(slots, context) if tokens is None else tokens
        fixed = self.weights + sum(model.tables(context) for model in self.models)
        rounds = sum(model.rounds(slots) for model in self.models)
        passes = max(model.passes for model in self.models)
        return fixed + self._caches(slots, context, tokens) + passes + rounds


def compute_and_weight_dtypes(
    config: DecoderConfig,
    dtype: str,
    quantize: str | None,
    device: torch.device,
    graphs: str = "auto",
    *,
    adapted: bool = False,
) -> tuple[str, str | None]:
    """Return the data type of a model's computation and caches, and that of its matrices if different.

    Args:
        config: the model's configuration.
        dtype, quantize, graphs: see :class:`specclient_local.loading.options.EngineOptions`.
        device: where the model runs.
        adapted: whether adapters change the model.
    """
    widened = computes_in_float32(config, dtype, str(device), graphs, adapted=adapted)
    return ("float32", quantize or dtype) if widened else (dtype, quantize)


def memory_plans(
    target: Path,
    drafts: Sequence[Path],
    options: EngineOptions,
    context: int,
    free: Callable[[torch.device], int | None],
    *,
    heads: Sequence[Path] = (),
) -> dict[str, DeviceMemoryPlan]:
    """Compute the memory that an engine's models need on each device.

    Args:
        target: the target's checkpoint folder; its weights are not read.
        drafts: folders of the draft models.
        options: how to load them.
        context: tokens of prompt and answer together.
        free: returns a device's free bytes; :func:`~specclient_local.loading.free_memory.free_memory`, before
            the models are loaded.
        heads: folders of heads; only their ``config.json`` is read.

    Returns:
        Plans by device name. A device on which transformers runs a model has no plan, since the size of that
        model's caches is unknown before it is loaded.

    Raises:
        CheckpointError, ConfigurationError: see :meth:`specclient_local.engine.engine.Engine.load`.
    """
    by_device: dict[torch.device, list[ModelMemory]] = {}
    unknown: set[torch.device] = set()
    for load in _model_loads(target, drafts, options):
        device = resolve_device(load.device)
        runner = options.runner if load.name == "target" else draft_runner(load.folder, options.runner)
        config = read_any_config(load.folder, runner)
        if not isinstance(config, DecoderConfig):
            unknown.add(device)
            continue
        models = by_device.setdefault(device, [])
        for own, part in _parts_memory(load, config, options):
            by_device.setdefault(own, []).append(part)
        if load.name == "target" and heads:
            models += _heads_memory(heads, models[-1])
        if load.name == "target" and options.layer_skip not in (None, "search"):
            kept = options.layer_skip if isinstance(options.layer_skip, int) else len(options.layer_skip)
            kept_config = replace(config, layers=kept, sliding=config.sliding[:kept])
            whole = models[0]
            models.append(
                ModelMemory(
                    "layers",
                    kept_config,
                    whole.dtype,
                    whole.kv_dtype,
                    quantize=whole.quantize,
                    shares_weights=True,
                )
            )
    return {
        str(device): DeviceMemoryPlan(
            tuple(models), options.slots, context, free(device), options.cache_tokens
        )
        for device, models in by_device.items()
        if device not in unknown
    }


class _ModelLoad(NamedTuple):
    """The checkpoint of one model, and how it is loaded; see :class:`EngineOptions`."""

    folder: Path
    name: str
    dtype: str
    device: str
    quantize: str | None


def _model_loads(target: Path, drafts: Sequence[Path], options: EngineOptions) -> list[_ModelLoad]:
    """Return the target and the drafts."""
    loads = [_ModelLoad(target, "target", options.dtype, options.device, options.quantize)]
    dtype, device = options.draft_dtype or options.dtype, options.draft_device or options.device
    return [*loads, *(_ModelLoad(each, "draft", dtype, device, options.draft_quantize) for each in drafts)]


def _parts_memory(
    load: _ModelLoad, config: DecoderConfig, options: EngineOptions
) -> list[tuple[torch.device, ModelMemory]]:
    """Return the memory of a model, or of the parts of a divided one, each with its device."""
    is_target, device = load.name == "target", resolve_device(load.device)
    paths = [target if is_target else draft for _, target, draft in options.adapters]
    adapted = any(path is not None for path in paths)
    parts = options.tensor_parallel if is_target else 1
    graphs = options.static_shapes if is_target else options.graphs
    dtype, weights = load.dtype, load.quantize
    if parts == 1:  # compiled passes do not run a part of a model
        dtype, weights = compute_and_weight_dtypes(
            config, load.dtype, load.quantize, device, graphs, adapted=adapted
        )
    records = graphs == "on" or (graphs == "auto" and device.type == "cuda")
    static = is_target and records and parts == 1 and config.llama_layout and not adapted
    packed = parts == 1 and packs_one_by_one(
        config, load.dtype, load.quantize, str(device), graphs, adapted=adapted
    )
    rounded = rounded_cache_dtype(config, load.dtype, load.quantize, str(device), graphs, adapted=adapted)
    return [
        (
            torch.device(own),
            ModelMemory(
                load.name,
                config if parts == 1 else WeightShard(rank, parts).config(config),
                dtype,
                rounded if parts == 1 else None,
                quantize=weights,
                copies_head=device.type == "cpu",
                static=static,
                packed=packed,
                file_dtype=load.dtype,
                paged=is_target and options.paged,
            ),
        )
        for rank, own in enumerate(parallel_devices(load.device, parts))
    ]


def _heads_memory(folders: Sequence[Path], target: ModelMemory) -> list[ModelMemory]:
    """Return the memory of heads, and of the hidden states and the output matrix that the target keeps."""
    config = target.config
    no_layers = replace(config, layers=0, sliding=())
    taps = {tap for folder in folders for tap in required_hidden_layers(folder, config)}
    copied = config.vocab_size * config.hidden_size if target.copies_head and not config.tied else 0
    states = ModelMemory("hidden states", no_layers, target.dtype, taps=len(taps), numbers=copied)
    models = [replace(states, paged=target.paged)]
    for folder in folders:
        shape = read_heads_shape(folder, config)
        if isinstance(shape, MedusaShape):
            models.append(ModelMemory("medusa", no_layers, target.dtype, numbers=shape.parameters))
            continue
        closed = (False,) * shape.config.layers
        layers = replace(shape.config, sliding=closed, window=None, context=config.context)
        name = "mtp" if isinstance(shape, MtpShape) else "peagle" if shape.parallel else "eagle"
        models.append(
            ModelMemory(name, layers, target.dtype, numbers=shape.parameters, spare=SPARE_POSITIONS)
        )
    return models


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 2**20:.1f} MiB"
