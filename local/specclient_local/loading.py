"""Turn paths and hub ids into models that fit together, and prompts into requests that fit the models."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from specclient.errors import BadRequestError, CheckpointError, ConfigurationError, ContextOverflowError
from specclient_local.config import (
    DTYPES,
    ENGINE_METHODS,
    MAX_DRAFT_LENGTH,
    DecoderConfig,
    Method,
    SamplingParams,
    bad_parameter,
    read_config,
)
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.length import Costs, costs
from specclient_local.model.runner import Part, Runner
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.model.weights import resolve
from specclient_local.sequence import Dice, Predicted, Sequence
from specclient_local.speculate import DEFAULT_DRAFT_LENGTH, Speculator

Prompt = str | Seq[int]

DEFAULT_CONTEXT = 4096
"""Cap on the context where none is asked for: the cache of a model made for 128k would fill the memory."""

_SMALL = 64_000_000
"""Parameters below which one thread computes."""

_CALIBRATED_BATCH = 8
"""Sequences of the largest batch that is timed; of larger ones the cost is extrapolated."""

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

    @property
    def context(self) -> int:
        """Most tokens of prompt and answer together."""
        return self.speculator.target.context

    @property
    def method(self) -> Method:
        """What a request gets that names none."""
        return "plain" if self.speculator.drafter is None else "draft"

    def request(self, number: int, prompt: Prompt, params: SamplingParams) -> Sequence:
        """Turn a prompt into a request these models can run.

        Raises:
            BadRequestError: a prompt or method they have no use for.
            ContextOverflowError: prompt and answer do not fit the context.
        """
        method = params.method or ("prediction" if params.prediction is not None else self.method)
        if method == "draft" and self.speculator.drafter is None:
            raise bad_parameter("method", "draft", "plain, since this engine was loaded without a draft")
        tokens = self._tokens(prompt)
        limit = self.context - len(tokens) if params.max_tokens is None else params.max_tokens
        if limit < (params.max_tokens != 0) or len(tokens) + limit > self.context:
            wanted = "at least 1" if params.max_tokens is None else str(params.max_tokens)
            raise ContextOverflowError(
                f"{len(tokens)} prompt tokens and {wanted} new ones exceed the context of {self.context}; "
                "shorten the prompt, lower max_tokens, or load the engine with a larger context."
            )
        # A special token gives no text in which a stop string could be found: it ends the answer itself.
        stops = {token for stop in params.stop or () if (token := self.tokenizer.special(stop)) is not None}
        return Sequence(
            id=number,
            tokens=tokens,
            prompt_tokens=len(tokens),
            params=params,
            method=method,
            limit=limit,
            eos=stops.union(self.speculator.target.config.eos),
            dice=Dice(params.seed),
            prediction=self._predicted(params.prediction) if method == "prediction" else None,
        )

    def _predicted(self, prediction: Prompt | None) -> Predicted:
        """Encode what is expected of an answer: text that goes on, so without a start token."""
        if isinstance(prediction, str):
            prediction = self.tokenizer.encode(prediction, begins=False)
        return Predicted(self._ids("prediction", prediction))

    def _tokens(self, prompt: Prompt) -> list[int]:
        """Encode a prompt; an empty one is the start token alone."""
        tokens = self._ids("prompt", self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        bos = self.speculator.target.config.bos
        if tokens:
            return tokens
        if bos is None:
            raise BadRequestError("the prompt is empty and the model has no start token; give it some text.")
        return [bos]

    def _ids(self, name: str, given: object) -> list[int]:
        """Check token ids."""
        vocab = self.speculator.target.config.vocab_size
        allowed = f"text, or token ids from 0 to {vocab - 1}"
        if not isinstance(given, Iterable):
            raise bad_parameter(name, given, allowed)
        tokens: list[int] = []
        for token in given:
            if isinstance(token, bool) or not hasattr(token, "__index__"):
                raise bad_parameter(name, token, allowed)
            tokens.append(operator.index(token))  # of numpy's and torch's integers too
            if not 0 <= tokens[-1] < vocab:
                raise bad_parameter(name, token, allowed)
        return tokens


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
    _check(method, draft, dtype, slots, threads)
    folder = resolve(model)
    config = read_config(folder)
    context = _context(context, config.context, folder)
    tokenizer = Tokenizer(folder)
    threads = threads or _threads(config)
    with computing_with(threads):  # kernels are chosen and passes timed as they will run
        target = Runner.load(folder, dtype=dtype, slots=slots, context=context)
        drafter: DraftModel | None = None
        if draft is not None and method != "plain":
            drafter = _load_draft(resolve(draft), folder, tokenizer, target, dtype=dtype, slots=slots)
        cost = None if drafter is None else _measure(target, drafter.runner, slots)
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


def _measure(target: Runner, draft: Runner, slots: int) -> Costs:
    """Time passes of both models, for one sequence and a batch; small contexts cap the row counts."""
    clock = _pass_clock()
    rows = [r for r in _CALIBRATED_ROWS if r <= target.context]
    batch = min(slots, _CALIBRATED_BATCH)
    batches = sorted({1, batch})
    seconds = target.time_passes([(size, r) for size in batches for r in rows], clock=clock)
    each = [seconds[i * len(rows) : (i + 1) * len(rows)] for i in range(len(batches))]
    return costs(_draft_steps(target, draft, batches, clock), rows, each, batch)


def _draft_steps(target: Runner, draft: Runner, batches: Seq[int], clock: Callable[[], float]) -> list[float]:
    """Return the seconds of a draft step of so many sequences.

    Timed as it will run: after a pass of the target, which has displaced it from the processor's caches.
    """
    steps = min(DEFAULT_DRAFT_LENGTH, draft.context)
    seconds: list[list[float]] = [[] for _ in batches]
    for _ in range(6):  # the first only warms up
        for taken, batch in zip(seconds, batches, strict=True):
            parts = [Part(slot, [0]) for slot in range(batch)]
            target.score_all(parts)
            begun = clock()
            for _ in range(steps):
                draft.score_all(parts)
            taken.append((clock() - begun) / steps)
            for slot in range(batch):
                target.truncate(slot, 0)
                draft.truncate(slot, 0)
    return [min(taken[1:]) for taken in seconds]


def _pass_clock() -> Callable[[], float]:
    """Return what passes are timed by: the processor's own time where one thread computes."""
    fine = time.get_clock_info("thread_time").resolution <= 1e-6
    return time.thread_time if fine and torch.get_num_threads() == 1 else time.perf_counter


def _threads(config: DecoderConfig) -> int:
    """Return 1 for a small model, else all of torch's threads.

    A small model's pass is too short to share: wherever another process or thread holds a core, the
    others wait for it at every product, and a pass takes many times as long.
    """
    return 1 if config.parameters < _SMALL else torch.get_num_threads()
