"""Turn paths and hub ids into models that fit together, and prompts into requests that fit the models."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.decoding.sequence_builder import SequenceBuilder
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.drafting.vocabulary_match import METHOD_DESCRIPTIONS, ForeignDraft, match_vocabularies
from specclient_local.loading.drafter_set import build_drafters
from specclient_local.loading.memory_plan import free_memory, plans
from specclient_local.loading.model_loader import (
    ModelPlacement,
    load_model,
    read_any_config,
    uses_own_decoder,
)
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import read_config
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.devices import resolve_device
from specclient_local.model.model_runner import ModelConfig, ModelRunner
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.weights import resolve_checkpoint
from specclient_local.request.params import Method

_log = logging.getLogger("specclient")

DEFAULT_CONTEXT = 4096
"""Cap on the context where none is asked for: the cache of a model made for 128k would fill the memory."""

_SMALL = 64_000_000
"""Parameters below which one thread computes."""


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """What an engine runs.

    Attributes:
        speculator: the models.
        requests: what turns prompts into sequences for them.
        costs: of draft and verification passes, in plain steps, by method.
        threads: torch threads to compute with.
    """

    speculator: Speculator
    requests: SequenceBuilder
    costs: Mapping[Method, RoundCosts]
    threads: int


def load(model: str | Path, options: EngineOptions) -> LoadedEngine:
    """Load a target and, to speculate, its drafts; see :meth:`specclient_local.engine.engine.Engine.load`."""
    for device in (options.device, options.draft_device or options.device):
        resolve_device(device)  # refused before anything is read
    folder = resolve_checkpoint(model)
    placed = ModelPlacement(options.dtype, options.device, options.quantize, options.runner, options.graphs)
    config = read_any_config(folder, placed.runner)
    context = _context(options.context, config.context, folder)
    paths = [resolve_checkpoint(path) for path in (options.draft if options.method != "plain" else ())]
    headed = [resolve_checkpoint(path) for path in (options.heads if options.method != "plain" else ())]
    for device, own in plans(folder, paths, options, context, free_memory, heads=headed).items():
        own.check(device)
    tokenizer = Tokenizer(folder)
    threads = options.threads or threads_for(config)
    with computing_with(threads):  # kernels are chosen and passes timed as they will run
        taps = _taps(headed, folder, placed)
        target = load_model(folder, placed, slots=options.slots, context=context, taps=taps)
        _check_vocabulary(tokenizer, target, folder)
        drafts = [_load_draft(path, target, options) for path in paths]
        others = {i: _other(path, tokenizer, target, drafts[i], options) for i, path in enumerate(paths)}
        drafters = build_drafters(
            target,
            drafts,
            method=options.method,
            slots=options.slots,
            layer_skip=options.layer_skip,
            share=options.prefix_cache,
            heads=headed,
            foreign={i: found for i, found in others.items() if found is not None},
        )
    drafting = drafters.by_method, drafters.costs
    speculator = (
        DeviceSpeculator(target, *drafting, share=options.prefix_cache)
        if isinstance(target, StaticRunner)
        else Speculator(target, *drafting, share=options.prefix_cache)
    )
    requests = SequenceBuilder(tokenizer, target.config, context, drafters.default, speculator.methods)
    return LoadedEngine(speculator, requests, drafters.costs, threads)


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Compute with so many torch threads inside the block (the setting is the process's)."""
    before = torch.get_num_threads()
    if before != threads:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if before != threads:
            torch.set_num_threads(before)


def _context(asked: int | None, own: int, folder: Path) -> int:
    if asked is None:
        return min(own, DEFAULT_CONTEXT)
    if not 2 <= asked <= own:
        raise ConfigurationError(
            f"context is {asked}; allowed is 2 to {own}, the most {folder} was made for."
        )
    return asked


def _check_vocabulary(tokenizer: Tokenizer, target: ModelRunner, folder: Path) -> None:
    """Refuse a tokenizer of another model: one with more tokens, those added to it (a pad) not counted."""
    if tokenizer.learned > target.config.vocab_size:
        raise CheckpointError(
            f"{folder}: tokenizer.json has {tokenizer.learned} tokens, but the model's vocab_size is "
            f"{target.config.vocab_size}; the two belong to different models."
        )


def _other(
    folder: Path, tokenizer: Tokenizer, target: ModelRunner, draft: ModelRunner, options: EngineOptions
) -> ForeignDraft | None:
    """Return what is to be done about a draft's vocabulary, None where it is the target's.

    Raises:
        CheckpointError: a draft that cannot draft, with what can be done instead.
    """
    own = Tokenizer(folder)
    difference = tokenizer.difference(own)
    if difference is None:
        return None
    if options.draft_vocabulary == "same":
        raise CheckpointError(
            f"the draft {folder} does not fit the target {tokenizer.folder}: their vocabularies differ "
            f"({difference}, target first). Choose a draft of the same family, or load with "
            "draft_vocabulary='auto'."
        )
    found = match_vocabularies(tokenizer, own, (target.config, draft.config), options.draft_vocabulary)
    if options.draft_vocabulary == "auto":
        _log.warning(
            "the draft %s has another vocabulary than the target %s (%s, target first): %s; answers stay "
            "exact. A draft of the target's family is accepted more.",
            folder,
            tokenizer.folder,
            difference,
            METHOD_DESCRIPTIONS[found.way],
        )
    return found


def _load_draft(folder: Path, target: ModelRunner, options: EngineOptions) -> ModelRunner:
    device = options.draft_device or options.device
    placed = ModelPlacement(
        options.draft_dtype or options.dtype,
        device,
        options.draft_quantize,
        options.runner,
        options.graphs,
    )
    if options.runner == "own" and not uses_own_decoder(folder, "auto"):
        placed = replace(placed, runner="auto")  # the target's runner is the one that was asked for
    context = min(target.context, read_any_config(folder, placed.runner).context)
    return load_model(folder, placed, slots=options.slots, context=context, exact=False)


def _taps(heads: Sequence[Path], folder: Path, placed: ModelPlacement) -> tuple[int, ...]:
    """Return after how many of the target's layers its heads read hidden states, ascending."""
    if not heads:
        return ()
    if not uses_own_decoder(folder, placed.runner):
        raise ConfigurationError(
            f"heads is {str(heads[0])!r}, but transformers runs the target; only models of the own decoder "
            "keep hidden states for heads. Leave it out."
        )
    from specclient_local.model.heads.checkpoint import required_hidden_layers  # noqa: PLC0415 - for heads alone

    target = read_config(folder)
    return tuple(sorted({tap for path in heads for tap in required_hidden_layers(path, target)}))


def threads_for(config: ModelConfig) -> int:
    """Return 1 for a small model, else all of torch's threads.

    A small model's pass is too short to share: wherever another process or thread holds a core, the
    others wait for it at every product, and a pass takes many times as long.
    """
    return 1 if config.parameters < _SMALL else torch.get_num_threads()
