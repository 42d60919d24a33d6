"""Memory plans: the bytes that models, slots and a context need on each device, and what would fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from specclient.errors import ConfigurationError
from specclient_local.loading.model_loader import computes_in_float32, read_any_config
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import DecoderConfig
from specclient_local.model.cuda_graphs.device_verify import SORTED_AT_ONCE
from specclient_local.model.cuda_graphs.static_runner import ROWS, SLOTS
from specclient_local.model.devices import parallel_devices, resolve_device
from specclient_local.model.heads.checkpoint import read_heads_shape, required_hidden_layers
from specclient_local.model.heads.eagle_runner import SPARE_POSITIONS
from specclient_local.model.heads.medusa_weights import MedusaShape
from specclient_local.model.kv_cache import POSITION_BLOCK
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.model.weight_shards import WeightShard
from specclient_local.request.params import MAX_DRAFT_LENGTH

_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "int8": 8, "fp8": 8, "int4": 4}
_DISTRIBUTIONS = 3
"""Distributions over the vocabulary of each row that a round holds at once: target, draft and an intermediate
result."""

_SORT, _SORTED_COPIES = 24, 3
"""Bytes of a sorted logit: places, sums and their differences; and copies in the data type of
probabilities. Kernels of top-k and top-p need less: a few bytes for each logit of a block."""

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """The memory of one model that the built-in decoder runs.

    Attributes:
        name: for error messages: ``target``, ``draft``, …
        config: the model's shape.
        dtype: data type of computation, and of keys and values.
        quantize: data type of projections and head where it is not ``dtype``.
        copies_head: whether a tied head is stored separately from the embedding; the CPU's kernels need
            another layout.
        shares_weights: whether it uses another model's weights, as a draft of the target's layers does.
        taps: number of layers after which hidden states are kept for heads.
        numbers: number of weights that replaces the decoder's; for heads.
        spare: positions per slot beyond the context.
        static: whether rounds of this target run on the device with static shapes.
    """

    name: str
    config: DecoderConfig
    dtype: str = "float32"
    quantize: str | None = None
    copies_head: bool = True
    shares_weights: bool = False
    taps: int = 0
    numbers: int | None = None
    spare: int = 0
    static: bool = False

    @property
    def parameters(self) -> int:
        """Number of weights in its matrices."""
        return self.config.parameters if self.numbers is None else self.numbers

    @property
    def weights(self) -> int:
        """Bytes of its matrices; does not include biases, norms and scales, at most a few percent."""
        c = self.config
        if self.shares_weights:
            return 0
        if self.numbers is not None:
            return self.numbers * _BITS[self.dtype] // 8
        embedding = c.vocab_size * c.hidden_size
        head = embedding if not c.tied or self.copies_head or self.quantize else 0
        inner = c.parameters - (1 if c.tied else 2) * embedding
        held = _BITS[self.quantize or self.dtype]
        return ((inner + head) * held + embedding * _BITS[self.dtype]) // 8

    @property
    def kv_per_token(self) -> int:
        """Bytes of keys and values, or of hidden states, per position."""
        c = self.config
        numbers = 2 * c.layers * c.kv_heads * c.head_dim + self.taps * c.hidden_size
        return numbers * _BITS[self.dtype] // 8

    def caches(self, slots: int, context: int) -> int:
        """Bytes of the KV caches or hidden states of ``slots`` slots; KV caches grow in whole blocks."""
        positions = self._positions(context)
        blocks = positions if self.taps else -(-positions // POSITION_BLOCK) * POSITION_BLOCK
        return slots * blocks * self.kv_per_token

    def _positions(self, context: int) -> int:
        return min(context, self.config.context) + self.spare

    def tables(self, context: int) -> int:
        """Bytes of attention masks and rotation tables, which do not depend on the number of slots."""
        c, context = self.config, self._positions(context)
        if not c.layers:
            return 0
        masks = (
            (1 if c.window is None else 2)
            * MAX_PASS_ROWS
            * 2
            * (context + POSITION_BLOCK)
            * _BITS[self.dtype]
            // 8
        )
        return masks + context * c.head_dim * 4

    @property
    def passes(self) -> int:
        """Bytes of the activations of the largest pass: a full prefill chunk with all its logits."""
        c = self.config
        widths = 3 * c.hidden_size + (2 * c.heads + 2 * c.kv_heads) * c.head_dim + 3 * c.intermediate_size
        return MAX_PASS_ROWS * (widths * _BITS[self.dtype] // 8 + 4 * c.vocab_size)

    def rounds(self, slots: int) -> int:
        """Bytes of the largest recorded round: logits, and the target's and the draft's probabilities.

        All recordings share this memory. Half-precision logits are sampled in float32, others in float64; see
        :mod:`specclient_local.model.cuda_graphs.device_verify`. For top-k and top-p, a number of logits is
        sorted at a time.
        """
        if not self.static or not slots:
            return 0
        seats, vocab, each = min(slots, SLOTS[-1]), self.config.vocab_size, _BITS[self.dtype] // 8
        rows = seats * (MAX_DRAFT_LENGTH + 1)
        p = 8 if each == 4 else 4
        cuts = max(vocab, min(rows * vocab, SORTED_AT_ONCE)) * (_SORT + _SORTED_COPIES * p)
        return seats * ROWS[-1] * vocab * each + rows * vocab * (each + _DISTRIBUTIONS * p) + cuts


@dataclass(frozen=True, slots=True)
class DeviceMemoryPlan:
    """The memory that the models on one device need.

    Attributes:
        models: the target first, if it is on this device.
        slots: number of concurrent requests.
        context: tokens of prompt and answer together.
        memory: free bytes of the device; None where unknown.
    """

    models: tuple[ModelMemory, ...]
    slots: int
    context: int
    memory: int | None

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
        return self._caches(self.slots, self.context)

    @property
    def total(self) -> int:
        """Bytes of weights, caches, tables and activations together."""
        return self._total(self.slots, self.context)

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
        low, high = 0, max(0, left // self._caches(1, self.context))
        while low < high:  # rounds need memory as well
            middle = (low + high + 1) // 2
            fits = self._total(middle, self.context) <= self.memory
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def check(self, device: str) -> None:
        """Check that the models fit in memory.

        Raises:
            ConfigurationError: they do not; names the sizes, and what would fit.
        """
        if self.fits:
            return
        assert self.memory is not None
        weights = ", ".join(f"the {m.name}'s weights {_gib(m.weights)}" for m in self.models if m.weights)
        options = [f"a context of {self.max_context}" if self.max_context else ""]
        options += [f"{self.max_slots} slots" if self.max_slots else ""]
        fitting = " or ".join(filter(None, options))
        raise ConfigurationError(
            f"{weights}, and keys and values of {self.slots} slots of {self.context} positions take "
            f"{_gib(self.caches)} ({self.kv_per_token} bytes per token); with the activations, that is "
            f"{_gib(self.total)}, but {device} has {_gib(self.memory)} free. "
            + (f"There is room for {fitting}: load with " if fitting else "Load with ")
            + "fewer slots, a smaller context, a half-precision dtype or quantised weights."
        )

    def _caches(self, slots: int, context: int) -> int:
        return sum(model.caches(slots, context) for model in self.models)

    def _total(self, slots: int, context: int) -> int:
        fixed = self.weights + sum(model.tables(context) for model in self.models)
        rounds = sum(model.rounds(slots) for model in self.models)
        return fixed + self._caches(slots, context) + max(model.passes for model in self.models) + rounds


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
    loads = [(target, "target", options.dtype, options.device, options.quantize)]
    loads += [
        (
            folder,
            "draft",
            options.draft_dtype or options.dtype,
            options.draft_device or options.device,
            options.draft_quantize,
        )
        for folder in drafts
    ]
    by_device: dict[torch.device, list[ModelMemory]] = {}
    unknown: set[torch.device] = set()
    for folder, name, dtype, device_name, quantize in loads:
        device = resolve_device(device_name)
        config = read_any_config(folder, options.runner)
        if not isinstance(config, DecoderConfig):
            unknown.add(device)
            continue
        models = by_device.setdefault(device, [])
        paths = [target if name == "target" else draft for _, target, draft in options.adapters]
        adapted = any(path is not None for path in paths)
        compute_dtype, weight_dtype = compute_and_weight_dtypes(
            config, dtype, quantize, device, options.graphs, adapted=adapted
        )
        on_cpu = device.type == "cpu"
        parts = options.tensor_parallel if name == "target" else 1
        records = options.graphs == "on" or (options.graphs == "auto" and device.type == "cuda")
        static = name == "target" and records and parts == 1 and config.llama_layout and not adapted
        for rank, own in enumerate(parallel_devices(device_name, parts)):
            part = config if parts == 1 else WeightShard(rank, parts).config(config)
            by_device.setdefault(torch.device(own), []).append(
                ModelMemory(name, part, compute_dtype, weight_dtype, copies_head=on_cpu, static=static)
            )
        if name == "target" and heads:
            models += _heads_memory(heads, models[-1])
        if name == "target" and options.layer_skip not in (None, "search"):
            kept = options.layer_skip if isinstance(options.layer_skip, int) else len(options.layer_skip)
            kept_config = replace(config, layers=kept, sliding=config.sliding[:kept])
            models.append(
                ModelMemory("layers", kept_config, compute_dtype, weight_dtype, shares_weights=True)
            )
    return {
        str(device): DeviceMemoryPlan(tuple(models), options.slots, context, free(device))
        for device, models in by_device.items()
        if device not in unknown
    }


def _heads_memory(folders: Sequence[Path], target: ModelMemory) -> list[ModelMemory]:
    """Return the memory of heads, and of the hidden states and the output matrix that the target keeps."""
    config = target.config
    no_layers = replace(config, layers=0, sliding=())
    taps = {tap for folder in folders for tap in required_hidden_layers(folder, config)}
    copied = config.vocab_size * config.hidden_size if target.copies_head and not config.tied else 0
    models = [ModelMemory("hidden states", no_layers, target.dtype, taps=len(taps), numbers=copied)]
    for folder in folders:
        shape = read_heads_shape(folder, config)
        if isinstance(shape, MedusaShape):
            models.append(ModelMemory("medusa", no_layers, target.dtype, numbers=shape.parameters))
            continue
        layer = replace(shape.config, layers=1, sliding=(False,), window=None, context=config.context)
        models.append(
            ModelMemory("eagle", layer, target.dtype, numbers=shape.parameters, spare=SPARE_POSITIONS)
        )
    return models


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB // 10 else f"{size / 2**20:.1f} MiB"
