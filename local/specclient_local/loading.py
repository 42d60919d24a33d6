"""Turn paths and hub ids into models that fit together, and prompts into requests that fit the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.calibrate import measure
from specclient_local.config import DTYPES, DecoderConfig, read_config
from specclient_local.drafting.base import Drafter
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.length import Costs
from specclient_local.model.runner import Runner
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.weights import resolve
from specclient_local.params import ENGINE_METHODS, Method
from specclient_local.requests import Requests
from specclient_local.speculate import Speculator

DEFAULT_CONTEXT = 4096
"""Cap on the context where none is asked for: the cache of a model made for 128k would fill the memory."""

_SMALL = 64_000_000
"""Parameters below which one thread computes."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an engine runs.

    Attributes:
        speculator: the models.
        requests: what turns prompts into sequences for them.
        costs: of draft and verification passes, in plain steps, by method.
        threads: torch threads to compute with.
    """

    speculator: Speculator
    requests: Requests
    costs: Mapping[Method, Costs]
    threads: int


def load(
    model: str | Path,
    draft: str | Path | None,
    *,
    method: str,
    dtype: str,
    slots: int,
    context: int | None,
    threads: int | None,
    prefix_cache: bool,
) -> Loaded:
    """Load a target and, to speculate, its draft; see :meth:`specclient_local.engine.Engine.load`."""
    _check(method, draft, dtype, slots, threads)
    folder = resolve(model)
    config = read_config(folder)
    context = _context(context, config.context, folder)
    tokenizer = Tokenizer(folder)
    threads = threads or _threads(config)
    drafters: dict[Method, Drafter] = {}
    costs: dict[Method, Costs] = {}
    with computing_with(threads):  # kernels are chosen and passes timed as they will run
        target = Runner.load(folder, dtype=dtype, slots=slots, context=context)
        if draft is not None and method != "plain":
            drafter = _load_draft(resolve(draft), folder, tokenizer, target, dtype=dtype, slots=slots)
            drafters["draft"], costs["draft"] = drafter, measure(target, drafter.runner, slots)
    speculator = Speculator(target, drafters, costs, share=prefix_cache)
    default: Method = "draft" if drafters else "plain"
    requests = Requests(tokenizer, target.config, context, default, speculator.methods)
    return Loaded(speculator, requests, costs, threads)


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


def _check(method: str, draft: object, dtype: str, slots: int, threads: int | None) -> None:
    if method not in ("auto", *ENGINE_METHODS):
        raise ConfigurationError(f"method is {method!r}; allowed are auto, {', '.join(ENGINE_METHODS)}.")
    if method == "draft" and draft is None:
        raise ConfigurationError("method is 'draft', but draft is None; name a draft model, or use 'plain'.")
    if dtype not in DTYPES:
        raise ConfigurationError(f"dtype is {dtype!r}; allowed are {', '.join(DTYPES)}.")
    for name, value in (("slots", slots), ("threads", 1 if threads is None else threads)):
        if value < 1:
            raise ConfigurationError(f"{name} is {value}; allowed is at least 1.")


def _context(asked: int | None, own: int, folder: Path) -> int:
    if asked is None:
        return min(own, DEFAULT_CONTEXT)
    if not 2 <= asked <= own:
        raise ConfigurationError(
            f"context is {asked}; allowed is 2 to {own}, the most {folder} was made for."
        )
    return asked


def _load_draft(
    folder: Path, target_folder: Path, tokenizer: Tokenizer, target: Runner, *, dtype: str, slots: int
) -> DraftModel:
    difference = tokenizer.difference(Tokenizer(folder))
    if difference is not None:
        raise CheckpointError(
            f"the draft {folder} does not fit the target {target_folder}: their vocabularies differ "
            f"({difference}, target first). Choose a draft of the same family."
        )
    context = min(target.context, read_config(folder).context)
    runner = Runner.load(folder, dtype=dtype, slots=slots, context=context, exact=False)
    return DraftModel(runner, target.config.vocab_size)


def _threads(config: DecoderConfig) -> int:
    """Return 1 for a small model, else all of torch's threads.

    A small model's pass is too short to share: wherever another process or thread holds a core, the
    others wait for it at every product, and a pass takes many times as long.
    """
    return 1 if config.parameters < _SMALL else torch.get_num_threads()
