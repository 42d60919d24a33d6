"""The worker: a thread that steps the batch and delivers events to callers."""

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
from specclient_local.model.torch_threads import computing_with

_LOG = logging.getLogger("specclient")
_LINGER_S = 2.0
"""Seconds without work after which the thread ends."""


class Worker:
    """Owns the models: queues requests, steps them, and delivers each request's events to its sink.

    All methods are thread-safe. The thread runs only while there is work. A forked child may continue to use
    the worker; requests in flight stay with the parent.

    Args:
        speculator: the models.
        slots: the number of requests that run at once.
        threads: the number of torch threads.
        clock: returns monotonic seconds.
        max_waiting: the number of requests that may wait; further requests are refused. None means no limit.

    Attributes:
        jobs: requests that wait or run, by number.
        slots: the number of requests that run at once.
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
        """Set the state without requests and without a thread."""
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
        """Queue a request, to be processed by :meth:`step`.

        Raises:
            EngineError: the worker is closed.
            RateLimitError: ``max_waiting`` requests wait already.
        """
        with self._changed:
            if self._closed:
                raise EngineError("the engine is closed; load another.")
            waiting = len(self.jobs) - len(self._cancelled) - self.slots
            if self._max_waiting is not None and waiting >= self._max_waiting:
                raise RateLimitError(
                    f"{self.slots} requests run and {waiting} wait, as many as max_waiting allows; "
                    "try again later, or load the engine with more slots or a larger max_waiting."
                )
            self.jobs[job.sequence.id] = job
            self._inbox.append(job)
            self._changed.notify()

    def start(self) -> None:
        """Start the stepping thread if it does not run."""
        with self._changed:
            if not (self._closed or (self._thread is not None and self._thread.is_alive())):
                self._thread = threading.Thread(target=self._work, name="specclient-engine", daemon=True)
                self._thread.start()

    def cancel(self, number: int) -> None:
        """Cancel a request; its slot is free in the next step. A finished request is not affected."""
        with self._changed:
            if number in self.jobs:
                self._cancelled.add(number)
                self._changed.notify()

    def check_outside_sink(self, call: str) -> None:
        """Check that the caller is not a sink; a sink that waits for the engine would wait forever.

        Args:
            call: name of the method that was called, for the message.

        Raises:
            EngineError: the calling thread is in a step.
        """
        if self._owner == threading.get_ident():
            raise EngineError(
                f"{call} was called from a sink, but the engine continues only when its sinks return; "
                "pass the piece to another thread, or queue a request with add()."
            )

    def step(self) -> bool:
        """Prefill chunks of prompts, then run one round for all other requests.

        Returns:
            Whether any request is left.
        """
        with self._owned(), computing_with(self.threads):
            try:
                self._take_in()
                deliveries = self.batch.step()
            except BaseException as error:
                self._fail_all(str(as_engine_error(error)))  # the progress of each request is unknown
                raise
            for job, event in deliveries:
                self._tell(job, event)
            if self._closed:
                self._fail_all(_CLOSED)
            interrupt, self._interrupt = self._interrupt, None
            if interrupt is not None:
                raise interrupt
            with self._changed:
                return bool(self.jobs)

    def close(self) -> None:
        """Fail unfinished requests and stop the thread. Safe to call twice, and from a sink."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if self._owner == threading.get_ident():
            return  # called from a sink: the step that called the sink fails the remaining requests
        if thread is not None:
            thread.join()
        with self._owned():
            self._fail_all(_CLOSED)

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Hold the models exclusively."""
        self.check_outside_sink("step()")
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
        """Deliver an event to its sink; a failing sink does not stop other requests."""
        if not isinstance(event, Piece) or event.generation is not None:
            self._forget(job)
        try:
            job.sink(event)
        except BaseException as error:  # noqa: BLE001 - a caller's own code may raise anything
            self.cancel(job.sequence.id)
            if isinstance(error, KeyboardInterrupt):
                self._interrupt = error  # raised to the caller of step(), not to this request
                return
            _LOG.exception("request %d was cancelled: its sink failed", job.sequence.id)

    def _fail_all(self, message: str) -> None:
        self._take_in()
        for job in tuple(self.jobs.values()):
            self._tell(job, EngineError(message))

    def _work(self) -> None:
        with computing_with(self.threads):
            while self._wait_for_work():
                try:
                    self.step()
                except BaseException:  # noqa: BLE001 - without the thread all callers would wait forever
                    _LOG.exception("the engine failed in a step")

    def _forked(self) -> None:
        """Reset the state in a forked child, where only the forking thread exists.

        Requests in flight, their callers and held locks belong to the parent.
        """
        for job in self.jobs.values():
            if job.sequence.slot is not None:
                self._speculator.end(job.sequence)
        self.threads = 1  # torch's thread pool does not survive the fork
        self._idle()

    def _wait_for_work(self) -> bool:
        """Wait for requests up to a time limit; False ends the thread, which the next request restarts."""
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
    """Stop the threads before the interpreter exits; a thread inside torch would crash it."""
    for worker in tuple(_LIVE):
        worker.close()
