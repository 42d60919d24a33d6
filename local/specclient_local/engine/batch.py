"""Turn the requests that run into their next pieces: a step reads some prompts on, then all do one round."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Seq

from specclient_local.decoding.speculate import RoundOutcome, RoundResult, Speculator
from specclient_local.engine.answer import AnswerEvent, Piece, RunningRequest, as_engine_error
from specclient_local.engine.scheduler import Scheduler
from specclient_local.request.sequence import Sequence

_LOG = logging.getLogger("specclient")

EventDelivery = tuple[RunningRequest, AnswerEvent]
"""A request, and what its caller is to hear."""


class Batch:
    """Continuous batching: requests come and go between steps, and share the passes of the models.

    What breaks in a request's own work fails that request; what breaks in a pass fails those in it.

    Args:
        speculator: the models.
        slots: requests that run at once.
        clock: monotonic seconds.

    Attributes:
        busy_s: seconds the models have worked; what requests are told as theirs adds up to it.
    """

    def __init__(self, speculator: Speculator, slots: int, clock: Callable[[], float]) -> None:
        self.scheduler = Scheduler(slots)
        self.busy_s = 0.0
        self._speculator = speculator
        self._clock = clock
        self._jobs: dict[int, RunningRequest] = {}

    def add(self, job: RunningRequest) -> None:
        """Queue a request."""
        self._jobs[job.sequence.id] = job
        self.scheduler.add(job.sequence)

    def drop(self, job: RunningRequest, *, broken: bool = False) -> None:
        """Free what a request holds; without effect on one that is not, or no longer, here.

        Args:
            broken: whether it failed: then nothing of its cache is left to others.
        """
        if self._jobs.pop(job.sequence.id, None) is None:
            return
        try:
            if job.sequence.slot is not None:
                self._speculator.end(job.sequence, broken=broken)
        except Exception:  # noqa: BLE001 - the slot is free whatever breaks
            _LOG.exception("slot %d may hold what is left of request %d", job.sequence.slot, job.sequence.id)
        finally:
            self.scheduler.release(job.sequence)

    def step(self) -> list[EventDelivery]:
        """Admit requests, read chunks of prompts, do one round; return what there is to tell.

        Whose request ended with that holds nothing any more.
        """
        now = self._clock()
        for sequence in self.scheduler.admit(self._speculator.place):
            self._jobs[sequence.id].answer.clocked.granted = now
        told: list[EventDelivery] = []
        for sequence in self.scheduler.readers(self._speculator.chunk):
            told += self._read(self._jobs[sequence.id])
        return told + self._round([self._jobs[sequence.id] for sequence in self.scheduler.ready])

    def _read(self, job: RunningRequest) -> list[EventDelivery]:
        """Read a chunk of a request's prompt; there is something to tell where that ends it."""
        begun = self._clock()
        try:
            ready = self._speculator.prefill(job.sequence)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears it, the engine goes on
            self.drop(job, broken=True)
            return [(job, as_engine_error(error))]
        finally:
            seconds = self._clock() - begun
            self.busy_s += seconds
            job.answer.clocked.prefill_s += seconds
        if ready and job.sequence.limit == 0:
            self.drop(job)
            return [(job, job.answer.read())]
        if ready:
            self.scheduler.begin(job.sequence)
        return []

    def _round(self, jobs: Seq[RunningRequest]) -> list[EventDelivery]:
        """Let requests win their next tokens together."""
        if not jobs:
            return []
        begun = self._clock()
        outcomes = self._outcomes([job.sequence for job in jobs])
        now = self._clock()
        self.busy_s += now - begun
        rows = [outcome.rows if isinstance(outcome, RoundResult) else 1 for outcome in outcomes]
        share = (now - begun) / sum(rows)
        told: list[EventDelivery] = []
        for job, outcome, own in zip(jobs, outcomes, rows, strict=True):
            clocked = job.answer.clocked
            clocked.decode_s += share * own
            if clocked.first is None:
                clocked.first = now
            event = _pushed(job, outcome)
            if not isinstance(event, Piece) or event.generation is not None:
                self.drop(job, broken=not isinstance(event, Piece))
            elif job.sequence.full:
                self._slide(job.sequence)
            told.append((job, event))
        return told

    def _slide(self, sequence: Sequence) -> None:
        """Let a sequence read, in its own slot, what is left of its context without the oldest half."""
        self._speculator.end(sequence)
        sequence.slide()
        self.scheduler.reread(sequence)

    def _outcomes(self, sequences: Seq[Sequence]) -> Seq[RoundOutcome]:
        try:
            return self._speculator.round(sequences)
        except Exception as error:  # noqa: BLE001 - as above, of all in the pass
            return [error] * len(sequences)


def _pushed(job: RunningRequest, outcome: RoundOutcome) -> AnswerEvent:
    """Turn what a round gave a request into what its caller hears."""
    if not isinstance(outcome, RoundResult):
        return as_engine_error(outcome)
    try:
        return job.answer.push(outcome.tokens, outcome.drafted, outcome.scores)
    except Exception as error:  # noqa: BLE001 - as above
        return as_engine_error(error)
