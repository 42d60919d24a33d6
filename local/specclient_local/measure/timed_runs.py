"""Timed runs of an engine over prompts, and alternating runs of several configurations."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TypeVar

from specclient_local.engine.answer import AnswerEvent, Generation, piece_or_raise
from specclient_local.engine.engine import Engine
from specclient_local.request.params import Parameters

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """The answer to one prompt.

    Attributes:
        generation: the answer.
        latency_s: seconds from the request's arrival to its last token.
        rounds: number of accepted draft tokens in each round.
    """

    generation: Generation
    latency_s: float
    rounds: tuple[int, ...]

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first (TPOT); None for an answer of one token."""
        tokens = len(self.generation.token_ids)
        return (self.latency_s - self.generation.timings.ttft_s) / (tokens - 1) if tokens > 1 else None


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One run over all prompts.

    Attributes:
        seconds: elapsed seconds from the first prompt's arrival to the last token.
        answers: the answers, in the order of the prompts.
    """

    seconds: float
    answers: tuple[TimedAnswer, ...]

    @property
    def tokens(self) -> int:
        """Number of generated tokens."""
        return sum(len(answer.generation.token_ids) for answer in self.answers)

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens per elapsed second, including prefill."""
        return self.tokens / self.seconds

    @property
    def decode_s(self) -> float:
        """Elapsed seconds without prefill."""
        return self.seconds - sum(answer.generation.timings.prefill_s for answer in self.answers)

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token, including prefill; the median over prompts."""
        return statistics.median(answer.generation.timings.ttft_s for answer in self.answers)

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first; the median over prompts."""
        known = [answer.tpot_s for answer in self.answers if answer.tpot_s is not None]
        return statistics.median(known) if known else None

    @property
    def steps(self) -> int:
        """Number of verification passes."""
        return sum(answer.generation.speculation.steps or 0 for answer in self.answers)

    @property
    def drafted(self) -> int | None:
        """Number of verified draft tokens; None where the method does not count them."""
        return _sum([answer.generation.speculation.drafted for answer in self.answers])

    @property
    def accepted(self) -> int:
        """Number of draft tokens in the answers."""
        return sum(sum(answer.rounds) for answer in self.answers)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over verified draft tokens; None where nothing was drafted."""
        kept = _sum([answer.generation.speculation.accepted for answer in self.answers])
        return kept / self.drafted if kept is not None and self.drafted else None

    @property
    def mean_accepted_length(self) -> float:
        """Mean tokens per round, including the target's own."""
        rounds = [kept for answer in self.answers for kept in answer.rounds]
        return 1 + sum(rounds) / len(rounds) if rounds else 1.0

    @property
    def mean_draft_length(self) -> float:
        """Mean drafted tokens per round."""
        return (self.drafted or 0) / self.steps if self.steps else 0.0

    @property
    def token_ids(self) -> list[list[int]]:
        """The token ids of each answer."""
        return [answer.generation.token_ids for answer in self.answers]


def _sum(counts: Seq[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass(slots=True)
class _TimingSink:
    """Receives one request's pieces, and records when the last one arrived."""

    clock: Callable[[], float]
    arrived: float = 0.0
    ended: float = 0.0
    rounds: list[int] = field(default_factory=list)
    generation: Generation | None = None

    def __call__(self, event: AnswerEvent) -> None:
        piece = piece_or_raise(event)
        self.ended = self.clock()
        self.rounds.append(sum(piece.drafted))
        self.generation = piece.generation

    def answered(self) -> TimedAnswer:
        assert self.generation is not None
        return TimedAnswer(self.generation, self.ended - self.arrived, tuple(self.rounds))


def run_prompts(
    engine: Engine,
    prompts: Seq[Seq[int]],
    params: Parameters,
    *,
    batch: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> TimedRun:
    """Answer prompts, ``batch`` at a time, by stepping an idle engine in this thread.

    Args:
        engine: idle, with at least ``batch`` slots.
        prompts: token ids.
        params: parameters of every request.
        batch: number of requests that arrive together; the next ones arrive when these have finished.
        clock: returns monotonic seconds.

    Raises:
        BadRequestError, ContextOverflowError, EngineError: see :meth:`Engine.generate`.
    """
    answers: list[TimedAnswer] = []
    started = clock()
    for at in range(0, len(prompts), batch):
        sinks = [_TimingSink(clock) for _ in prompts[at : at + batch]]
        errors: list[BaseException] = []
        for ids, sink in zip(prompts[at : at + batch], sinks, strict=True):
            sink.arrived = clock()
            engine.add(ids, _collecting_errors(sink, errors), **params)
        while engine.step():
            pass
        if errors:
            raise errors[0]
        answers += [sink.answered() for sink in sinks]
    return TimedRun(clock() - started, tuple(answers))


def _collecting_errors(sink: _TimingSink, errors: list[BaseException]) -> Callable[[AnswerEvent], None]:
    """Return a sink that collects errors; the engine would treat a raised one as a fault of the sink."""

    def receive(event: AnswerEvent) -> None:
        if isinstance(event, BaseException):
            errors.append(event)
        else:
            sink(event)

    return receive


def run_alternating(
    ways: Mapping[str, Callable[[], T]], repeat: int, on_progress: Callable[[str], None] = lambda _: None
) -> dict[str, list[T]]:
    """Run each function ``repeat`` times, alternately, so that other load on the machine affects all alike.

    One more turn before these warms up and does not count.

    Args:
        ways: functions by name.
        repeat: turns that count; at least 1.
        on_progress: called with a description of each run when it starts.
    """
    runs: dict[str, list[T]] = {name: [] for name in ways}
    for turn in range(repeat + 1):
        for name, way in ways.items():
            on_progress(f"{name}: {f'run {turn} of {repeat}' if turn else 'warming up'}")
            result = way()
            if turn:
                runs[name].append(result)
    return runs


def median_ratio(runs: Seq[TimedRun], reference: Seq[TimedRun], *, decoding: bool = False) -> float:
    """Return the speed of ``runs`` relative to ``reference``: the median of the ratios within a turn.

    Args:
        runs: the runs, in the order of their turns.
        reference: the runs to compare with, in the same order.
        decoding: whether to leave out prefill, which the closed form does not describe.
    """

    def speed(run: TimedRun) -> float:
        return run.tokens / (run.decode_s if decoding else run.seconds)

    return statistics.median(speed(one) / speed(other) for one, other in zip(runs, reference, strict=True))
