"""Turn queued requests into events for their callers: whoever steps has the models to itself meanwhile."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from specclient.errors import EngineError, RateLimitError
from specclient_local.decoding.speculate import Speculator
from specclient_local.engine.answer import AnswerEvent, Piece, RunningRequest, as_engine_error
from specclient_local.engine.batch import Batch
from specclient_local.loading.engine_loader import computing_with

_LOG = logging.getLogger("specclient")
_LINGER_S = 2.0


class Worker:
    """The models' owner: takes requests in, steps them, and tells each caller what became of its own.

    All methods may be called from any thread. The thread it starts lives only while there is work. A
    forked child may go on using it; requests in flight stay with the parent.

    Args:
        speculator: the models.
        slots: requests that run at once.
        threads: torch threads to compute with.
        clock: monotonic seconds.
        max_waiting: requests beyond those that run; further ones are refused. None takes all.

    Attributes:
        jobs: requests that wait or run, by number.
        slots: as above.
    """

    def __init__(
        self,
        speculator: Speculator,
        slots: int,
        threads: int,
        clock: Callable[[], float],
        max_waiting: int | None = None,
    ) -> None:
        self.threads = threads
        self._max_waiting = max_waiting
        self._speculator = speculator
        self.slots = slots
        self._clock = clock
        self._closed = False
        self._idle()
        _LIVE.add(self)

    def _idle(self) -> None:
        """Begin without requests and without a thread."""
        self.batch = Batch(self._speculator, self.slots, self._clock)
        self.jobs: dict[int, RunningRequest] = {}
        self._inbox: list[RunningRequest] = []
        self._cancelled: set[int] = set()
        self._interrupt: KeyboardInterrupt | None = None
        self._stepping = threading.Lock()
        self._owner: int | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, job: RunningRequest) -> None:
        """Queue a request for whoever calls :meth:`step`.

        Raises:
            EngineError: it is closed.
            RateLimitError: as many as may wait do.
        """
        with self._changed:
            if self._closed:
                raise EngineError("the engine is closed; load another.")
            waiting = len(self.jobs) - len(self._cancelled) - self.slots
            if self._max_waiting is not None and waiting >= self._max_waiting:
                raise RateLimitError(
                    f"{self.slots} requests run and {waiting} wait, as many as max_waiting allows; "
                    "ask again later, or load the engine with more slots or a larger max_waiting."
                )
            self.jobs[job.sequence.id] = job
            self._inbox.append(job)
            self._changed.notify()

    def start(self) -> None:
        """Have a thread running that steps."""
        with self._changed:
            if not (self._closed or (self._thread is not None and self._thread.is_alive())):
                self._thread = threading.Thread(target=self._work, name="specclient-engine", daemon=True)
                self._thread.start()

    def cancel(self, number: int) -> None:
        """Stop a request; its slot is free in the next step. Without effect on a finished one."""
        with self._changed:
            if number in self.jobs:
                self._cancelled.add(number)
                self._changed.notify()

    def outside_sinks(self, call: str) -> None:
        """Refuse a call that would wait for itself: one from a sink, which the engine waits for.

        Raises:
            EngineError: this thread is in a step.
        """
        if self._owner == threading.get_ident():
            raise EngineError(
                f"{call} was called from a sink, but the engine goes on only when its sinks return; "
                "let the sink hand the piece to another thread, or queue a request by add()."
            )

    def step(self) -> bool:
        """Read some prompts on and let all others do one round; return whether any request is left."""
        with self._owned(), computing_with(self.threads):
            try:
                self._take_in()
                told = self.batch.step()
            except BaseException as error:
                self._fail_all(str(as_engine_error(error)))  # no telling how far any of them got
                raise
            for job, event in told:
                self._tell(job, event)
            if self._closed:
                self._fail_all(_CLOSED)
            interrupt, self._interrupt = self._interrupt, None
            if interrupt is not None:
                raise interrupt
            with self._changed:
                return bool(self.jobs)

    def close(self) -> None:
        """Fail what is unfinished and stop the thread; safe to call twice, and from a sink."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if self._owner == threading.get_ident():
            return  # called from a sink: who called it fails the rest
        if thread is not None:
            thread.join()
        with self._owned():
            self._fail_all(_CLOSED)

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Have the models to oneself."""
        self.outside_sinks("step()")
        with self._stepping:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    def _take_in(self) -> None:
        with self._changed:
            arrived, self._inbox = self._inbox, []
            cancelled, self._cancelled = self._cancelled, set()
        for job in arrived:
            self.batch.add(job)
        for number in cancelled:
            if number in self.jobs:
                self._forget(self.jobs[number])

    def _forget(self, job: RunningRequest) -> None:
        with self._changed:
            self.jobs.pop(job.sequence.id, None)
        self.batch.drop(job)

    def _tell(self, job: RunningRequest, event: AnswerEvent) -> None:
        """Hand an event to its caller; one who cannot take it is no reason to stop the others."""
        if not isinstance(event, Piece) or event.generation is not None:
            self._forget(job)
        try:
            job.sink(event)
        except BaseException as error:  # noqa: BLE001 - a caller's own code may raise anything
            self.cancel(job.sequence.id)
            if isinstance(error, KeyboardInterrupt):
                self._interrupt = error  # meant for whoever steps, not for this request
                return
            _LOG.exception("request %d cannot be answered: its sink failed", job.sequence.id)

    def _fail_all(self, message: str) -> None:
        self._take_in()
        for job in tuple(self.jobs.values()):
            self._tell(job, EngineError(message))

    def _work(self) -> None:
        with computing_with(self.threads):
            while self._wait_for_work():
                try:
                    self.step()
                except BaseException:  # noqa: BLE001 - without a thread all callers would wait
                    _LOG.exception("the engine failed in a step")

    def _forked(self) -> None:
        """Start over in a forked child, where no thread but the forking one lives on.

        The requests in flight, their callers and whatever lock was held at that moment are the parent's.
        """
        for job in self.jobs.values():
            if job.sequence.slot is not None:
                self._speculator.end(job.sequence)
        self.threads = 1  # the threads behind a parallel product do not survive the fork either
        self._idle()

    def _wait_for_work(self) -> bool:
        """Wait a while for requests; False ends the thread, and the next request starts another."""
        with self._changed:
            if not self.jobs and not self._closed:
                self._changed.wait(_LINGER_S)
            if self.jobs and not self._closed:
                return True
            self._thread = None
            return False


_CLOSED = "the engine was closed before the answer was complete."
_LIVE: weakref.WeakSet[Worker] = weakref.WeakSet()


def _after_fork() -> None:
    for worker in tuple(_LIVE):
        worker._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    """Stop threads before the interpreter goes: a thread inside torch at that moment would crash it."""
    for worker in tuple(_LIVE):
        worker.close()
