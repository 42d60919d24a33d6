"""Turn a run of an engine into where its rounds' time went: what is watched is timed as it is called.

A call inside another's counts to the inner one alone, so the stages add up to the whole. What watching costs,
about a microsecond a call, counts to the stage around.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from specclient_local.decoding import speculate
from specclient_local.drafting import draft_model
from specclient_local.engine.answer import AnswerText
from specclient_local.engine.engine import Engine
from specclient_local.measure.timed_runs import TimedRun, answer
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.request.params import Parameters

PREFILL, DRAFT_PASS, DRAFTING, TARGET_PASS = "prefill", "draft passes", "drafting", "target pass"
SAMPLING, VERIFICATION, TEXT, REST = "sampling", "verification", "text", "rest"
DEVICE = "device rounds"

STAGES = {
    PREFILL: "reading prompts",
    DRAFT_PASS: "passes of the draft model",
    DRAFTING: "what drafters do beside",
    TARGET_PASS: "passes of the target",
    DEVICE: "drafts, target pass, sampling and verification as one recorded run",
    SAMPLING: "logits to probabilities, the draft's and the target's",
    VERIFICATION: "which guesses stay, and the token after them",
    TEXT: "tokens to text, and where an answer ends",
    REST: "batching, caches, bookkeeping",
}


@dataclass(frozen=True, slots=True)
class StageTime:
    """A part of the time.

    Attributes:
        share: of the whole run.
        calls: how often it was entered.
    """

    name: str
    seconds: float
    share: float
    calls: int


@dataclass(slots=True)
class Stopwatch:
    """Seconds and calls by stage; of stages inside each other, only the innermost runs.

    Args:
        clock: monotonic seconds.
        settle: called before each look at the clock; waits for a device that works on its own.
    """

    clock: Callable[[], float]
    settle: Callable[[], object] = lambda: None
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens inside to a stage."""
        self._turn()
        self._open.append(name)
        self.calls[name] = self.calls.get(name, 0) + 1
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def within(self, name: str) -> bool:
        """Whether a stage is open."""
        return name in self._open

    def _turn(self) -> None:
        self.settle()
        now = self.clock()
        if self._open:
            self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now


def profile(
    engine: Engine,
    prompts: Seq[Seq[int]],
    params: Parameters,
    *,
    batch: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[TimedRun, list[StageTime]]:
    """Answer prompts once to warm up and once watched; return that run, and its stages in order.

    A lone greedy request's rounds, otherwise one call each, are taken apart for it: they take longer then.

    Args:
        engine: idle, with at least ``batch`` slots.
        prompts: token ids.
        params: of every request.
        batch: prompts at a time.
        clock: monotonic seconds.
    """
    answer(engine, prompts, params, batch=batch, clock=clock)
    watch = Stopwatch(clock, _settle(engine.speculator.target.device))
    with _watched(engine, watch), watch.stage(REST):
        run = answer(engine, prompts, params, batch=batch, clock=clock)
    total = sum(watch.seconds.values())
    return run, [
        StageTime(name, watch.seconds[name], watch.seconds[name] / total, watch.calls[name])
        for name in STAGES
        if name in watch.seconds
    ]


def _settle(device: torch.device) -> Callable[[], object]:
    """Return what waits for a device; for the CPU nothing has to."""
    if device.type == "cuda":
        return functools.partial(torch.cuda.synchronize, device)
    return torch.mps.synchronize if device.type == "mps" else lambda: None


@contextmanager
def _watched(engine: Engine, watch: Stopwatch) -> Iterator[None]:
    """Put a stopwatch around what a round is made of, as long as the block lasts."""
    speculator = engine.speculator
    drafters = list(speculator.drafters.values())
    runners = {
        type(value) for drafter in drafters for value in _parts(drafter) if hasattr(value, "score_all")
    }
    steps: list[tuple[Any, str, str]] = [
        *((kind, "score_all", TARGET_PASS) for kind in {type(speculator.target), *runners}),
        *((kind, "draft_chain", TARGET_PASS) for kind in {type(speculator.target), *runners}),
        *((kind, "prefill", PREFILL) for kind in {type(speculator.target), *runners}),
        *((kind, "propose", DRAFTING) for kind in {type(drafter) for drafter in drafters}),
        (speculate, "all_distributions", SAMPLING),
        (draft_model, "all_distributions", SAMPLING),
        (speculate, "verify", VERIFICATION),
        (DeviceRounds, "run", DEVICE),
        (AnswerText, "push", TEXT),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in steps]
    rounds, speculator.rounds = speculator.rounds, None  # in one call there is nothing to watch
    for (owner, name, stage), (_, _, function) in zip(steps, before, strict=True):
        setattr(owner, name, _timed(watch, stage, function))
    try:
        yield
    finally:
        speculator.rounds = rounds
        for owner, name, function in before:
            setattr(owner, name, function)


def _parts(drafter: object) -> list[object]:
    """Return what a drafter is made of, of drafters in it also theirs."""
    own = list(vars(drafter).values())
    inner = [part for value in own for part in (value if isinstance(value, list | tuple) else [value])]
    return inner + [each for part in inner if hasattr(part, "propose") for each in _parts(part)]


def _timed(watch: Stopwatch, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        name = DRAFT_PASS if stage == TARGET_PASS and watch.within(DRAFTING) else stage
        with watch.stage(name):
            return function(*args, **kwargs)

    return timed
