"""Turn paths and hub ids into models that fit together, with the costs of their passes measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from specclient.errors import CheckpointError, ConfigurationError
from specclient_local.config import MAX_DRAFT_LENGTH, METHODS, read_config
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.length import Costs, costs
from specclient_local.model.runner import Runner
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.weights import resolve
from specclient_local.speculate import DEFAULT_DRAFT_LENGTH, Speculator

DEFAULT_CONTEXT = 4096
"""Cap on the context where none is asked for: the cache of a model made for 128k would fill the memory."""

_SMALL = 64_000_000
"""Parameters below which one thread computes."""

_CALIBRATED_ROWS = (1, 2, 3, 5, MAX_DRAFT_LENGTH + 1)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an engine runs.

    Attributes:
        tokenizer: of the target (and the draft).
        speculator: the models.
        costs: of draft and verification passes, in plain steps; None without a draft.
        threads: torch threads to compute with.
    """

    tokenizer: Tokenizer
    speculator: Speculator
    costs: Costs | None
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
) -> Loaded:
    """Load a target and, to speculate, its draft; see :meth:`specclient_local.engine.Engine.load`."""
    _check(method, draft, slots, threads)
    folder = resolve(model)
    context = _context(context, read_config(folder).context, folder)
    tokenizer = Tokenizer(folder)
    target = Runner.load(folder, dtype=dtype, slots=slots, context=context)
    drafter: DraftModel | None = None
    if draft is not None and method != "plain":
        drafter = _load_draft(resolve(draft), folder, tokenizer, target, dtype=dtype, slots=slots)
    threads = threads or _best_threads(target)
    with computing_with(threads):
        cost = None if drafter is None else _measure(target, drafter.runner)
    return Loaded(tokenizer, Speculator(target, drafter, cost), cost, threads)


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


def _check(method: str, draft: object, slots: int, threads: int | None) -> None:
    if method not in ("auto", *METHODS):
        raise ConfigurationError(f"method is {method!r}; allowed are auto, {', '.join(METHODS)}.")
    if method == "draft" and draft is None:
        raise ConfigurationError("method is 'draft', but draft is None; name a draft model, or use 'plain'.")
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


def _measure(target: Runner, draft: Runner, clock: Callable[[], float] = time.perf_counter) -> Costs:
    """Time passes of both models; the row counts are capped by very small contexts.

    The draft is timed as it will run: after a pass of the target, which has displaced it from the
    processor's caches.
    """
    rows = [r for r in _CALIBRATED_ROWS if r <= target.context]
    seconds = target.time_passes(rows, clock=clock)
    steps = min(DEFAULT_DRAFT_LENGTH, draft.context)
    draft_seconds: list[float] = []
    for _ in range(5):
        target.score(0, [0])
        begun = clock()
        for _ in range(steps):
            draft.score(0, [0])
        draft_seconds.append((clock() - begun) / steps)
        target.truncate(0, 0)
        draft.truncate(0, 0)
    return costs(sorted(draft_seconds)[2], rows, seconds)


def _best_threads(target: Runner) -> int:
    """Return 1 or all of torch's threads.

    A small model's pass is too short to share: wherever another process or thread holds a core, the
    others wait for it at every product, and a pass takes many times as long. Large ones are timed.
    """
    available = torch.get_num_threads()
    if available == 1 or target.decoder.parameters < _SMALL:
        return 1
    seconds: dict[int, float] = {}
    rows = [r for r in (1, 5) if r <= target.context]
    for count in (1, available):
        with computing_with(count):
            seconds[count] = sum(target.time_passes(rows))
    return min(seconds, key=lambda count: seconds[count])
