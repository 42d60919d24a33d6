"""Load a target and its drafts from folders or hub ids, and check that they fit together."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from specclient.errors import CheckpointError, ConfigurationError
from specclient.runtime.masked_urls import mask_url
from specclient.types.request_limits import RequestLimits
from specclient_local.decoding.common_recordings import record_common
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.decoding.launch_ahead import LaunchAheadSpeculator
from specclient_local.decoding.sequence_builder import SequenceBuilder
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.drafting.vocabulary_match import METHOD_DESCRIPTIONS, ForeignDraft, match_vocabularies
from specclient_local.loading.drafter_set import DrafterSet, build_drafters
from specclient_local.loading.free_memory import free_memory
from specclient_local.loading.known_costs import keep_costs, known_costs, load_key
from specclient_local.loading.memory_advice import PlannedEngine
from specclient_local.loading.model_loader import (
    ModelPlacement,
    check_adapters,
    draft_runner,
    has_static_shapes,
    load_model,
    read_any_config,
    uses_own_decoder,
)
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import DecoderConfig, read_config
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.devices import resolve_device
from specclient_local.model.model_runner import ModelConfig, ModelRunner
from specclient_local.model.paged_cache import PAGE
from specclient_local.model.quantization import check_quantization
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.torch_threads import computing_with
from specclient_local.model.weights import resolve_checkpoint
from specclient_local.request.params import Method

_log = logging.getLogger("specclient")

DEFAULT_CONTEXT = 4096
"""Upper limit of the default context, in tokens: the KV cache of a 128k context would fill the memory."""

_MAX_SINGLE_THREAD_PARAMETERS = 64_000_000
"""Models with fewer parameters compute in one thread."""


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """The parts of a loaded engine.

    Attributes:
        speculator: runs rounds on the target and its drafters.
        requests: builds sequences from prompts and parameters.
        costs: costs of draft and verification passes by method, in units of a plain step.
        threads: number of torch threads to compute with.
    """

    speculator: Speculator
    requests: SequenceBuilder
    costs: Mapping[Method, RoundCosts]
    threads: int


def load_engine(
    model: str | Path, options: EngineOptions, limits: RequestLimits | None = None
) -> LoadedEngine:
    """Load a target with its drafts; see :meth:`specclient_local.engine.engine.Engine.load`."""
    for device, quantize in (
        (options.device, options.quantize),
        (options.draft_device or options.device, options.draft_quantize),
    ):  # rejects an unavailable device or format before any file is read
        check_quantization(quantize, resolve_device(device))
    folder = resolve_checkpoint(model)
    placed = ModelPlacement(
        *(options.dtype, options.device, options.quantize, options.runner, options.static_shapes),
        tensor_parallel=options.tensor_parallel,
        adapters=_adapter_folders(target for _, target, _ in options.adapters),
    )
    check_adapters(folder, placed)
    config = read_any_config(folder, placed.runner)
    context = _context(options.context, config.context, folder)
    paths = [resolve_checkpoint(path) for path in (options.draft if options.method != "plain" else ())]
    heads = [resolve_checkpoint(path) for path in options.head_paths(str(model))]
    draft_adapters = _adapter_folders(draft for _, _, draft in options.adapters)
    for path in paths:
        check_adapters(path, _draft_placement(path, options, draft_adapters))
    plans = PlannedEngine(folder, paths, options, context, free_memory, heads).checked()
    if options.paged:
        _check_static(folder, config, placed)
        plan = plans[str(resolve_device(options.device))]
        placed = replace(placed, pages=plan.cache_tokens // PAGE)
    tokenizer = Tokenizer(folder)
    threads = options.threads or threads_for(config)
    with computing_with(threads):  # loading times kernels and passes, so it needs the final thread count
        taps = _taps(heads, folder, placed)
        target = load_model(folder, placed, slots=options.slots, context=context, taps=taps)
        _check_vocabulary(tokenizer, target, folder)
        drafts = [_load_draft(path, target, options, draft_adapters) for path in paths]
        foreign = {
            i: _foreign_draft(path, tokenizer, target, drafts[i], options) for i, path in enumerate(paths)
        }
        adapters = filter(None, (*placed.adapters, *draft_adapters))
        key = load_key(target, (folder, *paths, *heads, *adapters), options, threads)
        drafters = build_drafters(
            target,
            drafts,
            method=options.method,
            slots=options.slots,
            layer_skip=options.layer_skip,
            sharing=options.prefix_sharing,
            heads=heads,
            foreign={i: draft for i, draft in foreign.items() if draft is not None},
            known=known_costs(key),
        )
        keep_costs(key, drafters.costs)
        speculator = _speculator(target, drafters, options)
    methods, limits = speculator.methods, limits or RequestLimits()
    names = tuple(name for name, _, _ in options.adapters)
    requests = SequenceBuilder(tokenizer, target.config, context, drafters.default, methods, limits, names)
    return LoadedEngine(speculator, requests, drafters.costs, threads)


def _speculator(target: ModelRunner, drafters: DrafterSet, options: EngineOptions) -> Speculator:
    """Return the speculator, with the most common rounds recorded if they run on a device."""
    if not isinstance(target, StaticRunner):
        return Speculator(target, drafters.by_method, drafters.costs, sharing=options.prefix_sharing)
    kind = LaunchAheadSpeculator if options.launch_ahead else DeviceSpeculator
    own = kind(target, drafters.by_method, drafters.costs, sharing=options.prefix_sharing)
    with target.cache.borrowed():
        record_common(own.device_rounds, drafters.default)
    return own


def _check_static(folder: Path, config: ModelConfig, placed: ModelPlacement) -> None:
    """Check that a target's passes have static shapes, which a cache in pages needs.

    Raises:
        ConfigurationError: they have not.
    """
    if not isinstance(config, DecoderConfig) or not has_static_shapes(config, placed):
        raise ConfigurationError(
            f"kv_cache is 'paged', but {folder} is a model, or has adapters, whose passes have no static "
            "shapes; leave it out."
        )


def _context(context: int | None, longest: int, folder: Path) -> int:
    if context is None:
        return min(longest, DEFAULT_CONTEXT)
    if not 2 <= context <= longest:
        raise ConfigurationError(
            f"context is {context}; allowed is 2 to {longest}, the longest that {folder} supports."
        )
    return context


def _check_vocabulary(tokenizer: Tokenizer, target: ModelRunner, folder: Path) -> None:
    """Raise CheckpointError if the tokenizer has more tokens than the model, without added ones such as a
    pad.
    """
    if tokenizer.learned > target.config.vocab_size:
        raise CheckpointError(
            f"{folder}: tokenizer.json has {tokenizer.learned} tokens, but the model's vocab_size is "
            f"{target.config.vocab_size}; the two belong to different models."
        )


def _foreign_draft(
    folder: Path, tokenizer: Tokenizer, target: ModelRunner, draft: ModelRunner, options: EngineOptions
) -> ForeignDraft | None:
    """Return how to use a draft with another vocabulary; None if it has the target's vocabulary.

    Raises:
        CheckpointError: the draft cannot be used with this target.
    """
    draft_tokenizer = Tokenizer(folder)
    difference = tokenizer.difference(draft_tokenizer)
    if difference is None:
        return None
    if options.draft_vocabulary == "same":
        raise CheckpointError(
            f"the draft {folder} does not fit the target {tokenizer.folder}: their vocabularies differ "
            f"({difference}, target first). Choose a draft of the same family, or load with "
            "draft_vocabulary='auto'."
        )
    configs = target.config, draft.config
    foreign = match_vocabularies(tokenizer, draft_tokenizer, configs, options.draft_vocabulary)
    if options.draft_vocabulary == "auto":
        _log.warning(
            "the draft %s has another vocabulary than the target %s (%s, target first): %s; answers stay "
            "exact. A draft of the target's family has a higher acceptance rate.",
            folder,
            tokenizer.folder,
            difference,
            METHOD_DESCRIPTIONS[foreign.way],
        )
    return foreign


def _adapter_folders(paths: Iterable[str | None]) -> tuple[Path | None, ...]:
    """Return the folders of adapters."""
    return tuple(None if path is None else _adapter_folder(path) for path in paths)


def _adapter_folder(path: str) -> Path:
    try:
        return resolve_checkpoint(path)
    except CheckpointError as error:
        shown = mask_url(path) if "://" in path else path
        raise CheckpointError(
            f"no adapter at {shown}; name a folder with adapter_config.json and adapter_model.safetensors, "
            "or a hub id that can be downloaded."
        ) from error


def _draft_placement(
    folder: Path, options: EngineOptions, adapters: tuple[Path | None, ...]
) -> ModelPlacement:
    return ModelPlacement(
        options.draft_dtype or options.dtype,
        options.draft_device or options.device,
        options.draft_quantize,
        draft_runner(folder, options.runner),
        options.graphs,
        adapters=adapters,
    )


def _load_draft(
    folder: Path, target: ModelRunner, options: EngineOptions, adapters: tuple[Path | None, ...]
) -> ModelRunner:
    placed = _draft_placement(folder, options, adapters)
    context = min(target.context, read_any_config(folder, placed.runner).context)
    return load_model(folder, placed, slots=options.slots, context=context, exact=False)


def _taps(heads: Sequence[Path], folder: Path, placed: ModelPlacement) -> tuple[int, ...]:
    """Return the numbers of layers after which the heads read the target's hidden states, ascending."""
    if not heads:
        return ()
    if not uses_own_decoder(folder, placed.runner):
        given = "method is 'mtp'" if heads[0] == folder else f"heads is {str(heads[0])!r}"
        raise ConfigurationError(
            f"{given}, but transformers runs the target; only models that the built-in decoder runs keep "
            "hidden states for heads. Leave it out."
        )
    from specclient_local.model.heads.checkpoint import required_hidden_layers  # noqa: PLC0415 - only heads need it

    target = read_config(folder)
    return tuple(sorted({tap for path in heads for tap in required_hidden_layers(path, target)}))


def threads_for(config: ModelConfig) -> int:
    """Return the number of threads for a model: 1 for a small one, else torch's current number.

    A small model's matrix products are too short to divide. If another process or thread occupies a core, all
    threads wait for the slowest one at every product, and a pass takes many times as long.
    """
    return 1 if config.parameters < _MAX_SINGLE_THREAD_PARAMETERS else torch.get_num_threads()
