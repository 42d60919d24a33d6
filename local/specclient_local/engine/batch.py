"""Continuous batching: each step prefills chunks of prompts, then runs one round for all ready requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Seq

from specclient_local.decoding.round_entry import RoundOutcome, RoundResult
from specclient_local.decoding.speculate import Speculator
from specclient_local.engine.answer import AnswerEvent, Piece, RunningRequest, as_engine_error
from specclient_local.engine.scheduler import Scheduler
from specclient_local.request.sequence import Sequence

_LOG = logging.getLogger("specclient")

EventDelivery = tuple[RunningRequest, AnswerEvent]
"""A request and the event to deliver to its caller."""


class Batch:
    """Runs requests that join and leave between steps and share the models' passes.

    An error in the work of one request fails that request. An error in a shared pass fails all requests in
    the pass.

    Args:
        speculator: the models.
        slots: the number of requests that run at once.
        clock: returns monotonic seconds.

    Attributes:
        busy_s: the seconds that the models have worked; the sum over the requests' shares.
    """

    def __init__(self, speculator: Speculator, slots: int, clock: Callable[[], float]) -> None:
        self.scheduler = Scheduler(slots)
        self.busy_s = 0.0
        self._speculator = speculator
        self._clock = clock
        self._counted = 0.0  # time until which work is counted; a round that was launched ahead goes on
        self._jobs: dict[int, RunningRequest] = {}

    def add(self, job: RunningRequest) -> None:
        """Queue a request."""
        self._jobs[job.sequence.id] = job
        self.scheduler.add(job.sequence)

    def drop(self, job: RunningRequest, *, broken: bool = False) -> None:
        """Free the slot and cache of a request; an unknown request is ignored.

        Args:
            broken: whether the request failed. Its cache is then not reused by other requests.
        """
        if self._jobs.pop(job.sequence.id, None) is None:
            return
        try:
            if job.sequence.slot is not None:
                self._speculator.end(job.sequence, broken=broken)
        except Exception:  # noqa: BLE001 - the slot is freed in any case
            _LOG.exception("slot %d was not cleaned up after request %d", job.sequence.slot, job.sequence.id)
        finally:
            self.scheduler.release(job.sequence)

    def step(self) -> list[EventDelivery]:
        """Admit requests, prefill chunks of prompts, run one round; return the events to deliver.

        Requests that ended in this step are dropped already.
        """
        now = self._clock()
        for sequence in self.scheduler.admit(self._speculator.place):
            clock = self._jobs[sequence.id].answer.clock
            clock.granted = clock.granted or now  # one that is admitted again was granted a slot before
        events: list[EventDelivery] = []
        for sequence in self.scheduler.next_prefills(self._speculator.chunk):
            events += self._prefill(self._jobs[sequence.id])
        going = filter(self._speculator.can_continue, self.scheduler.ready)
        return events + self._round([self._jobs[sequence.id] for sequence in going])

    def _prefill(self, job: RunningRequest) -> list[EventDelivery]:
        """Prefill a chunk of a request's prompt; return an event if that ends the request."""
        begun = self._clock()
        try:
            ready = self._speculator.prefill(job.sequence)
        except Exception as error:  # noqa: BLE001 - any error goes to the caller, and the engine continues
            self.drop(job, broken=True)
            return [(job, as_engine_error(error))]
        finally:
            self._counted = self._clock()
            seconds = self._counted - begun
            self.busy_s += seconds
            job.answer.clock.prefill_s += seconds
        if ready and job.sequence.limit == 0:
            self.drop(job)
            return [(job, job.answer.end_without_tokens())]
        if ready:
            self.scheduler.begin(job.sequence)
        return []

    def _round(self, jobs: Seq[RunningRequest]) -> list[EventDelivery]:
        """Run one shared round; each request gains one or more tokens.

        Requests that arrived after the round was launched gain none; they are in the next one.
        """
        if not jobs:
            return []
        begun = self._counted if self._speculator.launched else self._clock()
        outcomes = self._outcomes([job.sequence for job in jobs])
        now = self._counted = self._clock()
        self.busy_s += now - begun
        gained = [(job, own) for job, own in zip(jobs, outcomes, strict=True) if own is not None]
        # The time of the shared pass is divided in proportion to each request's rows.
        rows = [outcome.rows if isinstance(outcome, RoundResult) else 1 for _, outcome in gained]
        share = (now - begun) / sum(rows)
        events: list[EventDelivery] = []
        for (job, outcome), own in zip(gained, rows, strict=True):
            clock = job.answer.clock
            clock.decode_s += share * own
            if clock.first is None:
                clock.first = now
            event = _pushed(job, outcome)
            if not isinstance(event, Piece) or event.generation is not None:
                self.drop(job, broken=not isinstance(event, Piece))
            elif job.sequence.full:
                self._slide(job.sequence)
            events.append((job, event))
        return events

    def _slide(self, sequence: Sequence) -> None:
        """Drop the oldest half of a full context and queue the rest for prefill in the same slot.

        Where requests share memory, the request is admitted again, before those that wait.
        """
        self._speculator.end(sequence)
        sequence.slide()
        if self._speculator.pages is not None:
            self.scheduler.place_again(sequence)
        else:
            self.scheduler.prefill_again(sequence)

    def _outcomes(self, sequences: Seq[Sequence]) -> Seq[RoundOutcome | None]:
        try:
            return self._speculator.round_ahead(sequences)
        except Exception as error:  # noqa: BLE001 - as above, for all requests in the pass
            return [error] * len(sequences)


def _pushed(job: RunningRequest, outcome: RoundOutcome) -> AnswerEvent:
    """Add a round's tokens to the answer and return the event for the caller."""
    if not isinstance(outcome, RoundResult):
        return as_engine_error(outcome)
    try:
        return job.answer.push(outcome.tokens, outcome.drafted, outcome.scores)
    except Exception as error:  # noqa: BLE001 - as above
        return as_engine_error(error)
