"""Turn paths and hub ids into models that fit together, and prompts into requests that fit the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.config import DTYPES, DecoderConfig, read_config
from specclient_local.drafters import build, check
from specclient_local.drafting.costs import Costs
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


Draft = str | Path | Seq[str | Path] | None
"""The draft models to load: none, one, or several in the order in which their guesses are tried."""


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
    draft: Draft,
    *,
    method: str,
    dtype: str,
    slots: int,
    context: int | None,
    threads: int | None,
    layer_skip: int | Seq[int] | None = None,
    prefix_cache: bool = True,
) -> Loaded:
    """Load a target and, to speculate, its draft; see :meth:`specclient_local.engine.Engine.load`."""
    _check(method, dtype, slots, threads)
    check(method, len(_several(draft)), layer_skip)
    folder = resolve(model)
    config = read_config(folder)
    context = _context(context, config.context, folder)
    tokenizer = Tokenizer(folder)
    threads = threads or _threads(config)
    with computing_with(threads):  # kernels are chosen and passes timed as they will run
        target = Runner.load(folder, dtype=dtype, slots=slots, context=context)
        drafts = [
            _load_draft(resolve(path), folder, tokenizer, target, dtype=dtype, slots=slots)
            for path in (_several(draft) if method != "plain" else ())
        ]
        drafters = build(target, drafts, method=method, slots=slots, layer_skip=layer_skip)
    speculator = Speculator(target, drafters.by_method, drafters.costs, share=prefix_cache)
    requests = Requests(tokenizer, target.config, context, drafters.default, speculator.methods)
    return Loaded(speculator, requests, drafters.costs, threads)


def _several(draft: Draft) -> Seq[str | Path]:
    """Return the draft models that one path, several or None name."""
    if draft is None:
        return ()
    return (draft,) if isinstance(draft, str | Path) else draft


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


def _check(method: str, dtype: str, slots: int, threads: int | None) -> None:
    if method not in ("auto", *ENGINE_METHODS):
        raise ConfigurationError(f"method is {method!r}; allowed are auto, {', '.join(ENGINE_METHODS)}.")
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
) -> Runner:
    difference = tokenizer.difference(Tokenizer(folder))
    if difference is not None:
        raise CheckpointError(
            f"the draft {folder} does not fit the target {target_folder}: their vocabularies differ "
            f"({difference}, target first). Choose a draft of the same family."
        )
    context = min(target.context, read_config(folder).context)
    return Runner.load(folder, dtype=dtype, slots=slots, context=context, exact=False)


def _threads(config: DecoderConfig) -> int:
    """Return 1 for a small model, else all of torch's threads.

    A small model's pass is too short to share: wherever another process or thread holds a core, the
    others wait for it at every product, and a pass takes many times as long.
    """
    return 1 if config.parameters < _SMALL else torch.get_num_threads()
