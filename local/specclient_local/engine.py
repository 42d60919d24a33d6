"""Turn prompts into answers: one thread owns the models, callers talk to it through queues."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Unpack

from specclient.errors import EngineError
from specclient_local.answer import (
    Answer,
    Clocked,
    Event,
    Generation,
    Job,
    Piece,
    Scored,
    Sink,
    failed,
    unwrapped,
)
from specclient_local.batch import Batch
from specclient_local.loading import Loaded, computing_with, load
from specclient_local.params import Parameters, SamplingParams
from specclient_local.requests import Prompt

_LOG = logging.getLogger("specclient")
_LINGER_S = 2.0


class Engine:
    """Exact speculative decoding of one target model.

    Build it with :meth:`load`. All methods may be called from any thread. The worker thread lives only
    while there is work. A forked child may use it too; requests in flight stay with the parent.

    Attributes:
        tokenizer: of the target (and the draft).
        context: most tokens of prompt and answer together.
        method: what a request gets that names none.
        costs: of draft and verification passes as measured at load, in plain steps, by method.
        threads: torch threads it computes with.
    """

    def __init__(self, loaded: Loaded, *, slots: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.tokenizer = loaded.requests.tokenizer
        self.costs = loaded.costs
        self.threads = loaded.threads
        self.context = loaded.requests.context
        self.method = loaded.requests.method
        self._requests = loaded.requests
        self._speculator = loaded.speculator
        self._slots = slots
        self._clock = clock
        self._ids = itertools.count()
        self._closed = False
        self._idle()
        _LIVE.add(self)

    def _idle(self) -> None:
        """Begin without requests and without a worker."""
        self._batch = Batch(self._speculator, self._slots, self._clock)
        self._jobs: dict[int, Job] = {}
        self._inbox: list[Job] = []
        self._cancelled: set[int] = set()
        self._interrupt: KeyboardInterrupt | None = None
        self._stepping = threading.Lock()
        self._owner: int | None = None
        self._changed = threading.Condition()
        self._worker: threading.Thread | None = None

    @classmethod
    def load(
        cls,
        model: str | Path,
        draft: str | Path | None = None,
        *,
        method: Literal["auto", "plain", "draft"] = "auto",
        dtype: str = "float32",
        slots: int = 4,
        context: int | None = None,
        threads: int | None = None,
    ) -> Engine:
        """Load a target and, to speculate, its draft.

        Args:
            model: folder or hub id of the target.
            draft: folder or hub id of a smaller model with the same vocabulary.
            method: ``draft`` or ``plain``; ``auto`` drafts if there is a draft.
            dtype: ``float32``, ``bfloat16`` or ``float16``. Greedy identity is promised in float32.
            slots: requests that run at once; further ones wait.
            context: tokens of prompt and answer together; the model's own, at most 4096, by default.
            threads: torch threads while the engine works; by default 1 below 64 M parameters, else torch's.

        Raises:
            CheckpointError: a folder that is no usable checkpoint, or two that do not fit together.
            ConfigurationError: an argument outside what is allowed.
        """
        loaded = load(model, draft, method=method, dtype=dtype, slots=slots, context=context, threads=threads)
        return cls(loaded, slots=slots)

    @property
    def busy_s(self) -> float:
        """Seconds the models have worked so far; the requests' ``timings.engine_s`` add up to it."""
        return self._batch.busy_s

    def generate(self, prompt: Prompt, **params: Unpack[Parameters]) -> Generation:
        """Answer a prompt and return the whole answer.

        Args:
            prompt: text, or token ids.
            params: fields of :class:`~specclient_local.params.SamplingParams`.

        Raises:
            BadRequestError: a parameter outside what is allowed.
            ContextOverflowError: prompt and answer do not fit the context.
            EngineError: the engine failed, or was closed.
        """
        generation: Generation | None = None
        for piece in self.stream(prompt, **params):
            generation = piece.generation
        assert generation is not None
        return generation

    def score(self, prompt: Prompt, top: int = 1) -> Scored:
        """Say how likely the model holds each token of a prompt, in one prefill and without an answer.

        It waits for a slot as an answer does. Log-probabilities are float32, of the
        model's own distribution (temperature 1, nothing left out).

        Args:
            prompt: text, or token ids.
            top: likeliest tokens to tell with each place, 0 to 20.

        Raises:
            BadRequestError, ContextOverflowError, EngineError: see :meth:`generate`.
        """
        scored = self.generate(prompt, max_tokens=0, prompt_logprobs=top).scored
        assert scored is not None
        return scored

    def stream(self, prompt: Prompt, **params: Unpack[Parameters]) -> Iterator[Piece]:
        """Answer a prompt round by round; the last piece has the whole. Closing early stops the work."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        number = self.add(prompt, events.put, **params)
        self._start()
        try:
            while True:
                piece = unwrapped(events.get())
                yield piece
                if piece.generation is not None:
                    return
        finally:
            self.cancel(number)

    async def astream(self, prompt: Prompt, **params: Unpack[Parameters]) -> AsyncGenerator[Piece, None]:
        """Do as :meth:`stream` in an asyncio event loop; cancelling the task stops the work."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()
        number = self.add(prompt, lambda e: _post(loop, events, e), **params)
        self._start()
        try:
            while True:
                piece = unwrapped(await events.get())
                yield piece
                if piece.generation is not None:
                    return
        finally:
            self.cancel(number)

    def add(self, prompt: Prompt, sink: Sink, **params: Unpack[Parameters]) -> int:
        """Queue a request for whoever calls :meth:`step`, and return its number.

        Args:
            prompt: text, or token ids.
            sink: called from the stepping thread with each piece, or with the exception that ended it.
            params: fields of :class:`~specclient_local.params.SamplingParams`.

        Raises:
            BadRequestError, ContextOverflowError, EngineError: see :meth:`generate`.
        """
        sequence = self._requests.sequence(next(self._ids), prompt, SamplingParams(**params))
        answer = Answer.begin(sequence, self.tokenizer, Clocked(self._clock()))
        job = Job(sequence, answer, sink)
        with self._changed:
            if self._closed:
                raise EngineError("the engine is closed; load another.")
            self._jobs[sequence.id] = job
            self._inbox.append(job)
            self._changed.notify()
        return sequence.id

    def cancel(self, number: int) -> None:
        """Stop a request; its slot is free in the next step. Without effect on a finished one."""
        with self._changed:
            if number in self._jobs:
                self._cancelled.add(number)
                self._changed.notify()

    def step(self) -> bool:
        """Read some prompts on and let all others do one round; return whether any request is left."""
        with self._owned(), computing_with(self.threads):
            try:
                self._take_in()
                told = self._batch.step()
            except BaseException as error:
                self._fail_all(str(failed(error)))  # no telling how far any of them got
                raise
            for job, event in told:
                self._tell(job, event)
            if self._closed:
                self._fail_all(_CLOSED)
            interrupt, self._interrupt = self._interrupt, None
            if interrupt is not None:
                raise interrupt
            with self._changed:
                return bool(self._jobs)

    def close(self) -> None:
        """Fail what is unfinished and stop the worker; safe to call twice, and from a sink."""
        with self._changed:
            self._closed = True
            worker = self._worker
            self._changed.notify_all()
        if self._owner == threading.get_ident():
            return  # called from a sink: who called it fails the rest
        if worker is not None:
            worker.join()
        with self._owned():
            self._fail_all(_CLOSED)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Have the models to oneself."""
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
            self._batch.add(job)
        for number in cancelled:
            if number in self._jobs:
                self._forget(self._jobs[number])

    def _forget(self, job: Job) -> None:
        with self._changed:
            self._jobs.pop(job.sequence.id, None)
        self._batch.drop(job)

    def _tell(self, job: Job, event: Event) -> None:
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
        for job in tuple(self._jobs.values()):
            self._tell(job, EngineError(message))

    def _start(self) -> None:
        """Have a worker thread running."""
        with self._changed:
            if not (self._closed or (self._worker is not None and self._worker.is_alive())):
                self._worker = threading.Thread(target=self._work, name="specclient-engine", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        with computing_with(self.threads):
            while self._wait_for_work():
                try:
                    self.step()
                except BaseException:  # noqa: BLE001 - without a worker all callers would wait
                    _LOG.exception("the engine failed in a step")

    def _forked(self) -> None:
        """Start over in a forked child, where no thread but the forking one lives on.

        The requests in flight, their callers and whatever lock was held at that moment are the parent's.
        """
        for job in self._jobs.values():
            if job.sequence.slot is not None:
                self._speculator.end(job.sequence)
        self.threads = 1  # the threads behind a parallel product do not survive the fork either
        self._idle()

    def _wait_for_work(self) -> bool:
        """Wait a while for requests; False ends the worker, and the next request starts another."""
        with self._changed:
            if not self._jobs and not self._closed:
                self._changed.wait(_LINGER_S)
            if self._jobs and not self._closed:
                return True
            self._worker = None
            return False


_CLOSED = "the engine was closed before the answer was complete."
_LIVE: weakref.WeakSet[Engine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in tuple(_LIVE):
        engine._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    """Stop workers before the interpreter goes: a thread inside torch at that moment would crash it."""
    for engine in tuple(_LIVE):
        engine.close()


def _post(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Event], event: Event) -> None:
    """Hand an event to a loop; one that is closed has nobody left to read it."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, event)
