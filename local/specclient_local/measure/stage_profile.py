"""Profile the stages of an engine's rounds, by timing the functions that implement them.

The time of a nested call counts for the inner stage only, so the stages add up to the whole. The overhead of
timing, about a microsecond per call, counts for the outer stage.
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
from specclient_local.measure.timed_runs import TimedRun, run_prompts
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.request.params import Parameters

PREFILL, DRAFT_PASS, DRAFTING, TARGET_PASS = "prefill", "draft passes", "drafting", "target pass"
SAMPLING, VERIFICATION, TEXT, REST = "sampling", "verification", "text", "rest"
DEVICE = "device rounds"

STAGES = {
    PREFILL: "reading prompts",
    DRAFT_PASS: "passes of the draft model",
    DRAFTING: "drafters, without their passes",
    TARGET_PASS: "passes of the target",
    DEVICE: "drafts, target pass, sampling and verification as one recorded run",
    SAMPLING: "logits to probabilities, the draft's and the target's",
    VERIFICATION: "acceptance of drafted tokens, and the token after them",
    TEXT: "detokenization and stop conditions",
    REST: "batching, caches, bookkeeping",
}


@dataclass(frozen=True, slots=True)
class StageTime:
    """The time of one stage.

    Attributes:
        name: one of :data:`STAGES`.
        seconds: time spent in it, without nested stages.
        share: fraction of the run, 0 to 1.
        calls: number of times it was entered.
    """

    name: str
    seconds: float
    share: float
    calls: int


@dataclass(slots=True)
class Stopwatch:
    """Measures seconds and calls by stage; only the innermost open stage accumulates time.

    Args:
        clock: returns monotonic seconds.
        settle: called before each reading of the clock; waits for an asynchronous device.
    """

    clock: Callable[[], float]
    settle: Callable[[], object] = lambda: None
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Attribute the time of the block to a stage."""
        self._turn()
        self._open.append(name)
        self.calls[name] = self.calls.get(name, 0) + 1
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def within(self, name: str) -> bool:
        """Return whether a stage is open."""
        return name in self._open

    def _turn(self) -> None:
        self.settle()
        now = self.clock()
        if self._open:
            self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now


def profile_stages(
    engine: Engine,
    prompts: Seq[Seq[int]],
    params: Parameters,
    *,
    batch: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[TimedRun, list[StageTime]]:
    """Run prompts once to warm up and once profiled; return the profiled run, and its stages in order.

    Rounds of a single greedy request normally are one compiled call. They run step by step here, which is
    slower.

    Args:
        engine: idle, with at least ``batch`` slots.
        prompts: token ids.
        params: parameters of every request.
        batch: concurrent requests.
        clock: returns monotonic seconds.
    """
    run_prompts(engine, prompts, params, batch=batch, clock=clock)
    watch = Stopwatch(clock, _settle(engine.speculator.target.device))
    with _watched(engine, watch), watch.stage(REST):
        run = run_prompts(engine, prompts, params, batch=batch, clock=clock)
    total = sum(watch.seconds.values())
    return run, [
        StageTime(name, watch.seconds[name], watch.seconds[name] / total, watch.calls[name])
        for name in STAGES
        if name in watch.seconds
    ]


def _settle(device: torch.device) -> Callable[[], object]:
    """Return a function that waits for a device; it does nothing for the CPU."""
    if device.type == "cuda":
        return functools.partial(torch.cuda.synchronize, device)
    return torch.mps.synchronize if device.type == "mps" else lambda: None


@contextmanager
def _watched(engine: Engine, watch: Stopwatch) -> Iterator[None]:
    """Wrap the functions that make up a round in timers, inside the block."""
    speculator = engine.speculator
    drafters = list(speculator.drafters.values())
    runners = {
        type(value) for drafter in drafters for value in _parts(drafter) if hasattr(value, "score_all")
    }
    steps: list[tuple[Any, str, str]] = [
        *((kind, "score_all", TARGET_PASS) for kind in {type(speculator.target), *runners}),
        *((kind, "draft_chains", TARGET_PASS) for kind in {type(speculator.target), *runners}),
        *((kind, "prefill", PREFILL) for kind in {type(speculator.target), *runners}),
        *((kind, "propose", DRAFTING) for kind in {type(drafter) for drafter in drafters}),
        (speculate, "all_distributions", SAMPLING),
        (draft_model, "all_distributions", SAMPLING),
        (speculate, "verify", VERIFICATION),
        (DeviceRounds, "run", DEVICE),
        (AnswerText, "push", TEXT),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in steps]
    rounds, speculator.rounds = speculator.rounds, None  # a compiled round is one call without stages
    for (owner, name, stage), (_, _, function) in zip(steps, before, strict=True):
        setattr(owner, name, _timed(watch, stage, function))
    try:
        yield
    finally:
        speculator.rounds = rounds
        for owner, name, function in before:
            setattr(owner, name, function)


def _parts(drafter: object) -> list[object]:
    """Return the attributes of a drafter, and those of the drafters it contains."""
    values = list(vars(drafter).values())
    inner = [part for value in values for part in (value if isinstance(value, list | tuple) else [value])]
    return inner + [each for part in inner if hasattr(part, "propose") for each in _parts(part)]


def _timed(watch: Stopwatch, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        name = DRAFT_PASS if stage == TARGET_PASS and watch.within(DRAFTING) else stage
        with watch.stage(name):
            return function(*args, **kwargs)

    return timed
