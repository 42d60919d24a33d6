"""Turn an engine and prompts into timed answers, in ways that take turns on the same machine."""

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
    """One prompt's answer.

    Attributes:
        latency_s: from its arrival to its last token.
        rounds: for each of its rounds, how many drafted tokens it kept.
    """

    generation: Generation
    latency_s: float
    rounds: tuple[int, ...]

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first (TPOT); None of an answer that has but one."""
        tokens = len(self.generation.token_ids)
        return (self.latency_s - self.generation.timings.ttft_s) / (tokens - 1) if tokens > 1 else None


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One time through all prompts.

    Attributes:
        seconds: elapsed, from the first prompt's arrival to the last one's last token.
        answers: in the order of the prompts.
    """

    seconds: float
    answers: tuple[TimedAnswer, ...]

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return sum(len(answer.generation.token_ids) for answer in self.answers)

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated over the seconds elapsed, prefills included."""
        return self.tokens / self.seconds

    @property
    def decode_s(self) -> float:
        """Seconds without those of reading prompts."""
        return self.seconds - sum(answer.generation.timings.prefill_s for answer in self.answers)

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token, prefill included: the median over prompts."""
        return statistics.median(answer.generation.timings.ttft_s for answer in self.answers)

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first: the median over prompts."""
        told = [answer.tpot_s for answer in self.answers if answer.tpot_s is not None]
        return statistics.median(told) if told else None

    @property
    def steps(self) -> int:
        """Verification passes."""
        return sum(answer.generation.speculation.steps or 0 for answer in self.answers)

    @property
    def drafted(self) -> int | None:
        """Draft tokens verified; None where the method does not tell."""
        return _sum([answer.generation.speculation.drafted for answer in self.answers])

    @property
    def accepted(self) -> int:
        """Draft tokens that are in the answers."""
        return sum(sum(answer.rounds) for answer in self.answers)

    @property
    def acceptance_rate(self) -> float | None:
        """Draft tokens kept over draft tokens verified; None where nothing was drafted."""
        kept = _sum([answer.generation.speculation.accepted for answer in self.answers])
        return kept / self.drafted if kept is not None and self.drafted else None

    @property
    def mean_accepted_length(self) -> float:
        """Tokens a round, the target's own included."""
        rounds = [kept for answer in self.answers for kept in answer.rounds]
        return 1 + sum(rounds) / len(rounds) if rounds else 1.0

    @property
    def mean_draft_length(self) -> float:
        """Tokens drafted a round."""
        return (self.drafted or 0) / self.steps if self.steps else 0.0

    @property
    def token_ids(self) -> list[list[int]]:
        """The answers' tokens."""
        return [answer.generation.token_ids for answer in self.answers]


def _sum(counts: Seq[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass(slots=True)
class _TimingSink:
    """Hears one request's pieces, and when the last one came."""

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


def answer(
    engine: Engine,
    prompts: Seq[Seq[int]],
    params: Parameters,
    *,
    batch: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> TimedRun:
    """Answer prompts, ``batch`` at a time; the engine must be idle, and is stepped from this thread.

    Args:
        engine: with at least ``batch`` slots.
        prompts: token ids.
        params: of every request.
        batch: how many arrive at once; the next ones arrive when these are answered.
        clock: monotonic seconds.

    Raises:
        BadRequestError, ContextOverflowError, EngineError: see :meth:`Engine.generate`.
    """
    answers: list[TimedAnswer] = []
    begun = clock()
    for at in range(0, len(prompts), batch):
        ears = [_TimingSink(clock) for _ in prompts[at : at + batch]]
        heard: list[BaseException] = []
        for ids, ear in zip(prompts[at : at + batch], ears, strict=True):
            ear.arrived = clock()
            engine.add(ids, _listening(ear, heard), **params)
        while engine.step():
            pass
        if heard:
            raise heard[0]
        answers += [ear.answered() for ear in ears]
    return TimedRun(clock() - begun, tuple(answers))


def _listening(ear: _TimingSink, heard: list[BaseException]) -> Callable[[AnswerEvent], None]:
    """Return a sink that keeps an exception for later: one raised in a sink is the sink's fault."""

    def listen(event: AnswerEvent) -> None:
        if isinstance(event, BaseException):
            heard.append(event)
        else:
            ear(event)

    return listen


def run_alternating(
    ways: Mapping[str, Callable[[], T]], repeat: int, told: Callable[[str], None] = lambda _: None
) -> dict[str, list[T]]:
    """Run each way ``repeat`` times, in turns: what slows the machine slows all alike.

    A turn before these warms up and does not count.

    Args:
        ways: by name.
        repeat: at least 1.
        told: is told what runs now.
    """
    runs: dict[str, list[T]] = {name: [] for name in ways}
    for turn in range(repeat + 1):
        for name, way in ways.items():
            told(f"{name}: {f'run {turn} of {repeat}' if turn else 'warming up'}")
            made = way()
            if turn:
                runs[name].append(made)
    return runs


def median_ratio(these: Seq[TimedRun], those: Seq[TimedRun], *, decoding: bool = False) -> float:
    """Return how many times as fast ``these`` runs are as ``those`` of the same turns: the median.

    Args:
        decoding: leave the reading of prompts out, of which theory says nothing.
    """

    def speed(run: TimedRun) -> float:
        return run.tokens / (run.decode_s if decoding else run.seconds)

    return statistics.median(speed(one) / speed(other) for one, other in zip(these, those, strict=True))
