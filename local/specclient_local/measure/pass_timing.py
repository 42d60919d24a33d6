"""Time the passes of a loaded engine, by their rows and by the length of the context."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.shared_vocabulary import SharedVocabularyDrafter
from specclient_local.engine.engine import Engine
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.torch_threads import computing_with

if TYPE_CHECKING:
    from specclient_local.model.model_runner import ModelRunner

ROWS = (1, 2, 3, 5, 9, 11, 17)
"""Row counts to time: a plain step, and verifications of 1, 2, 4, 8, 10 and 16 drafted tokens."""


@dataclass(frozen=True, slots=True)
class PassTiming:
    """The duration of a pass.

    Attributes:
        model: ``target`` or ``draft``.
        rows: tokens of one sequence in the pass.
        context: cached positions before them.
        seconds: minimum over several passes, which alternate with those of other row counts.
    """

    model: str
    rows: int
    context: int
    seconds: float


def timed_contexts(longest: int) -> list[int]:
    """Return the context lengths to time: 64, 256, 1024, …, and the longest with room for a pass."""
    contexts = [at for at in (64, 256, 1024, 4096, 16384) if at + ROWS[-1] <= longest]
    last = longest - ROWS[-1]
    return contexts if contexts and contexts[-1] > last // 2 else [*contexts, max(last, 0)]


def time_passes(
    engine: Engine,
    *,
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> list[PassTiming]:
    """Time passes of the target and, where a model drafts, steps of the draft.

    Args:
        engine: must be idle.
        repeats: passes per row count and context.
        clock: returns monotonic seconds.
    """
    target, draft = engine.speculator.target, draft_runner(engine)
    timings: list[PassTiming] = []
    with computing_with(engine.threads):
        for at in timed_contexts(target.context):
            for model, runner, rows in (("target", target, ROWS), ("draft", draft, (1,))):
                fitting = [] if runner is None else [n for n in rows if at + n <= runner.context]
                if runner is None or not fitting:
                    continue
                shapes = [(1, n) for n in fitting]
                seconds = runner.time_passes(shapes, at=at, repeats=repeats, clock=clock)
                timings += [
                    PassTiming(model, n, at, taken) for n, taken in zip(fitting, seconds, strict=True)
                ]
    return timings


def draft_cost(
    engine: Engine, *, at: int = 128, turns: int = 15, clock: Callable[[], float] = time.perf_counter
) -> float | None:
    """Return c: the median seconds of a draft pass over those of a plain target pass; None without a draft.

    Four draft passes follow each target pass, as in a round, since the target's pass evicts the draft's
    weights from the CPU caches.

    Args:
        engine: must be idle.
        at: cached positions before the pass.
        turns: number of target passes to time.
        clock: returns monotonic seconds.
    """
    target, draft = engine.speculator.target, draft_runner(engine)
    if draft is None:
        return None
    at = max(0, min(at, target.context - 4, draft.context - 4))
    part = SlotInput(0, [0])

    def timed(runner: ModelRunner, steps: int) -> float:
        begun = clock()
        if steps == 1 or runner.draft_chains([part], [steps], runner.config.vocab_size) is None:
            for _ in range(steps):
                runner.score_all([part])
        taken = (clock() - begun) / steps
        runner.truncate(0, at)
        return taken

    with computing_with(engine.threads):
        for runner in (target, draft):
            runner.prefill(0, [0] * at)
        plain: list[float] = []
        drafts: list[float] = []
        for _ in range(turns):
            plain.append(timed(target, 1))
            drafts.append(timed(draft, 4))
        for runner in (target, draft):
            runner.truncate(0, 0)
    return statistics.median(drafts) / statistics.median(plain)


def draft_runner(engine: Engine) -> ModelRunner | None:
    """Return the runner of the draft model or of the target's drafting layers; None without either."""
    drafters = engine.speculator.drafters
    drafter = drafters.get("draft", drafters.get("layer_skip"))
    if isinstance(drafter, SharedVocabularyDrafter):
        drafter = drafter.model
    return drafter.runner if isinstance(drafter, DraftModel) else None
