"""Turn paths and hub ids into models that fit together, with the costs of their passes measured."""

from __future__ import annotations

from collections.abc import Iterator
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
from specclient_local.speculate import Speculator

DEFAULT_CONTEXT = 4096
"""Cap on the context where none is asked for: the cache of a model made for 128k would fill the memory."""

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
    return DraftModel(
        Runner.load(folder, dtype=dtype, slots=slots, context=context), target.config.vocab_size
    )


def _measure(target: Runner, draft: Runner) -> Costs:
    """Time passes of both models; the row counts are capped by very small contexts."""
    rows = [r for r in _CALIBRATED_ROWS if r <= target.context]
    return costs(draft.time_passes([1])[0], rows, target.time_passes(rows))


def _best_threads(target: Runner) -> int:
    """Return 1 or all of torch's threads, whichever serves one row and five rows faster."""
    available = torch.get_num_threads()
    if available == 1:
        return 1
    seconds: dict[int, float] = {}
    rows = [r for r in (1, 5) if r <= target.context]
    for count in (1, available):
        with computing_with(count):
            seconds[count] = sum(target.time_passes(rows))
    return min(seconds, key=lambda count: seconds[count])
