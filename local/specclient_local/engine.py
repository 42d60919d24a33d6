"""Turn prompts into answers: one thread owns the models, callers talk to it through queues."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import queue
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Unpack

from specclient.errors import BadRequestError, ContextOverflowError, EngineError
from specclient_local.answer import Answer, Clocked, Generation, Piece
from specclient_local.config import Method, Parameters, SamplingParams, bad_parameter
from specclient_local.loading import Loaded, computing_with, load
from specclient_local.scheduler import Scheduler
from specclient_local.sequence import Dice
from specclient_local.sequence import Sequence as Request

_LOG = logging.getLogger("specclient")
_LINGER_S = 2.0

Event = Piece | BaseException
Sink = Callable[[Event], None]
Prompt = str | Sequence[int]


@dataclass(slots=True, eq=False)
class _Job:
    """A request and where its pieces go."""

    sequence: Request
    answer: Answer
    sink: Sink
    prefilled: bool = False


class Engine:
    """Exact speculative decoding of one target model.

    Build it with :meth:`load`. All methods may be called from any thread. The worker thread lives only
    while there is work.

    Attributes:
        tokenizer: of the target (and the draft).
        context: most tokens of prompt and answer together.
        method: what a request gets that names none.
        costs: of draft and verification passes as measured at load, in plain steps; None without a draft.
        threads: torch threads it computes with.
    """

    def __init__(self, loaded: Loaded, *, slots: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.tokenizer = loaded.tokenizer
        self.costs = loaded.costs
        self.threads = loaded.threads
        self._speculator = loaded.speculator
        self.context = loaded.speculator.target.context
        self.method: Method = "plain" if loaded.speculator.drafter is None else "draft"
        self._scheduler = Scheduler(slots)
        self._clock = clock
        self._ids = itertools.count()
        self._jobs: dict[int, _Job] = {}
        self._inbox: list[_Job] = []
        self._cancelled: set[int] = set()
        self._stepping = threading.Lock()
        self._changed = threading.Condition()
        self._worker: threading.Thread | None = None
        self._closed = False
        _LIVE.add(self)

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
            threads: torch threads while the engine works; measured by default.

        Raises:
            CheckpointError: a folder that is no usable checkpoint, or two that do not fit together.
            ConfigurationError: an argument outside what is allowed.
        """
        loaded = load(model, draft, method=method, dtype=dtype, slots=slots, context=context, threads=threads)
        return cls(loaded, slots=slots)

    # What callers use

    def generate(self, prompt: Prompt, **params: Unpack[Parameters]) -> Generation:
        """Answer a prompt and return the whole answer.

        Args:
            prompt: text, or token ids.
            params: fields of :class:`~specclient_local.config.SamplingParams`.

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

    def stream(self, prompt: Prompt, **params: Unpack[Parameters]) -> Iterator[Piece]:
        """Answer a prompt round by round; the last piece has the whole. Closing early stops the work."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        number = self.add(prompt, events.put, **params)
        self._start()
        try:
            while True:
                piece = _piece(events.get())
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
                piece = _piece(await events.get())
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
            params: fields of :class:`~specclient_local.config.SamplingParams`.

        Raises:
            BadRequestError, ContextOverflowError, EngineError: see :meth:`generate`.
        """
        sequence = self._sequence(prompt, SamplingParams(**params))
        answer = Answer.begin(sequence, self.tokenizer, Clocked(self._clock()))
        job = _Job(sequence, answer, sink)
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
        """Let every running request do one chunk of prefill or one round; return whether any is left."""
        with self._stepping:
            self._take_in()
            now = self._clock()
            for sequence in self._scheduler.admit():
                self._jobs[sequence.id].answer.clocked.granted = now
            for sequence in tuple(self._scheduler.running):
                self._advance(self._jobs[sequence.id])
            with self._changed:
                return bool(self._jobs)

    def close(self) -> None:
        """Fail what is unfinished and stop the worker; safe to call twice."""
        with self._changed:
            self._closed = True
            worker = self._worker
            self._changed.notify_all()
        if worker is not None and worker is not threading.current_thread():
            worker.join()
        with self._stepping:
            self._take_in()
            for job in tuple(self._jobs.values()):
                self._finish(job, EngineError("the engine was closed before the answer was complete."))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What the stepping thread does

    def _take_in(self) -> None:
        with self._changed:
            arrived, self._inbox = self._inbox, []
            cancelled, self._cancelled = self._cancelled, set()
        for job in arrived:
            self._scheduler.add(job.sequence)
        for number in cancelled:
            if number in self._jobs:
                self._finish(self._jobs[number])

    def _advance(self, job: _Job) -> None:
        """Do a request's next piece of work; what breaks in it breaks this request alone."""
        clocked, begun = job.answer.clocked, self._clock()
        try:
            if not job.prefilled:
                job.prefilled = self._speculator.prefill(job.sequence)
                clocked.prefill_s += self._clock() - begun
                return
            won = self._speculator.round(job.sequence)
            now = self._clock()
            clocked.decode_s += now - begun
            clocked.first = now if clocked.first is None else clocked.first
            piece = job.answer.push(won.tokens, won.drafted)
            if piece.generation is not None:
                self._finish(job, piece)
            else:
                self._tell(job, piece)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears it, the engine goes on
            failure = EngineError(f"the engine failed on this request: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._finish(job, failure)

    def _finish(self, job: _Job, event: Event | None = None) -> None:
        """Free what a request holds, then tell its caller."""
        with self._changed:
            if self._jobs.pop(job.sequence.id, None) is None:
                return
        if job.sequence.slot is not None:
            self._speculator.end(job.sequence)
        self._scheduler.release(job.sequence)
        if event is not None:
            self._tell(job, event)

    def _tell(self, job: _Job, event: Event) -> None:
        """Hand an event to its caller; one who cannot take it is no reason to stop the others."""
        try:
            job.sink(event)
        except Exception:  # noqa: BLE001 - a caller's own code
            _LOG.exception("request %d cannot be answered: its sink failed", job.sequence.id)
            self.cancel(job.sequence.id)

    def _start(self) -> None:
        """Have a worker thread running."""
        with self._changed:
            if self._worker is None and not self._closed:
                self._worker = threading.Thread(target=self._work, name="specclient-engine", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        with computing_with(self.threads):
            while self._wait_for_work():
                self.step()

    def _wait_for_work(self) -> bool:
        """Wait a while for requests; False ends the worker, and the next request starts another."""
        with self._changed:
            if not self._jobs and not self._closed:
                self._changed.wait(_LINGER_S)
            if self._jobs and not self._closed:
                return True
            self._worker = None
            return False

    def _sequence(self, prompt: Prompt, params: SamplingParams) -> Request:
        method = params.method or self.method
        if method == "draft" and self._speculator.drafter is None:
            raise bad_parameter("method", "draft", "plain, since this engine was loaded without a draft")
        tokens = self._tokens(prompt)
        limit = self.context - len(tokens) if params.max_tokens is None else params.max_tokens
        if limit < 1 or len(tokens) + limit > self.context:
            wanted = "at least 1" if params.max_tokens is None else str(params.max_tokens)
            raise ContextOverflowError(
                f"{len(tokens)} prompt tokens and {wanted} new ones exceed the context of {self.context}; "
                "shorten the prompt, lower max_tokens, or load the engine with a larger context."
            )
        config = self._speculator.target.config
        return Request(
            id=next(self._ids),
            tokens=tokens,
            prompt_tokens=len(tokens),
            params=params,
            method=method,
            limit=limit,
            eos=frozenset(config.eos),
            dice=Dice(params.seed),
        )

    def _tokens(self, prompt: Prompt) -> list[int]:
        """Encode a prompt; an empty one is the start token alone."""
        config = self._speculator.target.config
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        for token in tokens:
            if not isinstance(token, int) or not 0 <= token < config.vocab_size:
                raise bad_parameter("prompt", token, f"text, or token ids from 0 to {config.vocab_size - 1}")
        if tokens:
            return tokens
        if config.bos is None:
            raise BadRequestError("the prompt is empty and the model has no start token; give it some text.")
        return [config.bos]


_LIVE: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stop workers before the interpreter goes: a thread inside torch at that moment would crash it."""
    for engine in tuple(_LIVE):
        engine.close()


def _piece(event: Event) -> Piece:
    if isinstance(event, BaseException):
        raise event
    return event


def _post(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Event], event: Event) -> None:
    """Hand an event to a loop; one that is closed has nobody left to read it."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, event)
