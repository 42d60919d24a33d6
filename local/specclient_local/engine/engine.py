"""Turn prompts into answers: whole, piece by piece, in threads and in event loops."""

from __future__ import annotations

import asyncio
import itertools
import queue
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Literal, Unpack

from specclient.errors import ConfigurationError
from specclient_local.decoding.sequence_builder import Prompt
from specclient_local.decoding.speculate import Speculator
from specclient_local.engine.answer import (
    AnswerEvent,
    AnswerText,
    EventSink,
    Generation,
    Piece,
    RequestClock,
    RunningRequest,
    Scored,
    piece_or_raise,
)
from specclient_local.engine.worker import Worker
from specclient_local.loading.configured_models import resolve_pair_name
from specclient_local.loading.engine_loader import LoadedEngine, load
from specclient_local.loading.options import EngineOptions
from specclient_local.request.params import Method, Parameters, SamplingParams
from specclient_local.request.validation import check, integer, optional


class Engine:
    """Exact speculative decoding of one target model.

    Build it with :meth:`load`. All methods may be called from any thread. The worker thread lives only
    while there is work. A forked child may use it too; requests in flight stay with the parent.

    Attributes:
        tokenizer: of the target (and the draft).
        context: most tokens of prompt and answer together.
        method: what a request gets that names none.
        costs: of draft and verification passes as measured at load, in plain steps, by method.
    """

    def __init__(
        self,
        loaded: LoadedEngine,
        *,
        slots: int,
        max_waiting: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.tokenizer = loaded.requests.tokenizer
        self.costs = loaded.costs
        self.context = loaded.requests.context
        self.method = loaded.requests.method
        self._requests = loaded.requests
        self._speculator = loaded.speculator
        self._clock = clock
        self._ids = itertools.count()
        self._worker = Worker(loaded.speculator, slots, loaded.threads, clock, max_waiting)

    @classmethod
    def load(
        cls,
        model: str | Path,
        draft: str | Path | Seq[str | Path] | None = None,
        *,
        method: Literal["auto", "plain", "draft", "ngram", "layer_skip", "union", "medusa", "eagle"] = "auto",
        heads: str | Path | Seq[str | Path] | None = None,
        layer_skip: int | Seq[int] | Literal["search"] | None = None,
        dtype: str = "float32",
        draft_dtype: str | None = None,
        device: str = "auto",
        draft_device: str | None = None,
        quantize: Literal["int8", "int4", "fp8"] | None = None,
        draft_quantize: Literal["int8", "int4", "fp8"] | None = None,
        runner: Literal["auto", "own", "hf"] = "auto",
        slots: int = 4,
        context: int | None = None,
        threads: int | None = None,
        prefix_cache: bool = True,
        graphs: Literal["auto", "on", "off"] = "auto",
        draft_vocabulary: Literal["auto", "same", "shared", "retokenised"] = "auto",
        max_waiting: int | None = None,
    ) -> Engine:
        """Load a target and, to speculate, its draft.

        Args:
            model: folder or hub id of the target; ``demo`` is the bundled pair.
            draft: folder or hub id of a smaller model; several are tried in order.
            method: of requests that name none: ``plain``, ``draft``, ``ngram`` (what followed before in
                prompt and answer), ``layer_skip``, ``medusa`` or ``eagle`` (heads of the target), or
                ``union`` (all of its drafts and ``ngram`` at once). ``auto`` drafts with what there is, by
                heads before all else, and takes ``union`` where there are several drafts.
            heads: folder or hub id of Medusa or EAGLE heads of the target, or one of each: as the EAGLE and
                Medusa repositories publish them, or in the format of ``speculators``. Those of the bundled
                target are ``bundled:eagle3`` and ``bundled:medusa``.
            layer_skip: how many of the target's own first layers draft, which of its layers do, or
                ``search``: those that are found to suit the requests while they run.
            dtype: ``float32``, ``bfloat16`` or ``float16``. Greedy identity is promised in float32. Of a
                model in bfloat16 on a processor the weights alone are in it where passes are compiled: sums,
                keys and values are in float32, and identity is promised as there.
            device: ``auto`` (the first CUDA device, else the CPU), ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
            quantize: hold the weights as ``int8``, ``int4`` or ``fp8``. Answers are then exactly those of the
                quantised target.
            draft_dtype, draft_device, draft_quantize: the draft's; type and device are the target's by
                default.
            runner: ``own`` decoder (Llama family), ``hf`` (any decoder-only model that transformers has, more
                slowly), or ``auto``: the own where it can.
            slots: requests that run at once; further ones wait.
            context: tokens of prompt and answer together; the model's own, at most 4096, by default.
            threads: torch threads while the engine works; by default 1 below 64 M parameters, else torch's.
            prefix_cache: whether a request takes what it can of its prompt from the caches of others, running
                or done; its answer is the same either way.
            graphs: give the own decoder's passes static shapes, and record and replay them where the device
                is CUDA's: ``on``, ``off``, or ``auto``: there alone.
            draft_vocabulary: what is done about a draft whose vocabulary is not the target's: ``shared``
                holds it to the tokens that both have, ``retokenised`` proposes its greedy text in the
                target's tokens, ``auto`` chooses (and says so), ``same`` refuses it. Answers are exact in
                each case.
            max_waiting: requests that may wait for a slot; one more is refused at once. None takes all.

        Raises:
            CheckpointError: a folder that is no usable checkpoint, or two that do not fit together.
            ConfigurationError: an argument outside what is allowed.
        """
        if not optional(integer(0))(max_waiting):
            raise ConfigurationError(
                f"max_waiting is {max_waiting!r}; allowed is None, or an integer of at least 0."
            )
        model, draft = resolve_pair_name(model, draft)
        options = {
            "draft": draft,
            "method": method,
            "heads": heads,
            "layer_skip": layer_skip,
            "dtype": dtype,
            "draft_dtype": draft_dtype,
            "device": device,
            "draft_device": draft_device,
            "draft_vocabulary": draft_vocabulary,
            "quantize": quantize,
            "draft_quantize": draft_quantize,
            "runner": runner,
            "slots": slots,
            "context": context,
            "threads": threads,
            "prefix_cache": prefix_cache,
            "graphs": graphs,
        }
        return cls(load(model, EngineOptions.read(options)), slots=slots, max_waiting=max_waiting)

    @property
    def threads(self) -> int:
        """Torch threads it computes with."""
        return self._worker.threads

    @property
    def methods(self) -> tuple[Method, ...]:
        """What a request may ask for."""
        return self._requests.methods

    @property
    def speculator(self) -> Speculator:
        """The models themselves, to be measured while no request runs."""
        return self._speculator

    @property
    def unfinished(self) -> int:
        """How many requests wait or run."""
        return len(self._worker.jobs)

    @property
    def slots(self) -> int:
        """Requests that run at once."""
        return self._worker.slots

    @property
    def cache_use(self) -> float:
        """Share of the slots' room for tokens that running requests take, from 0 to 1."""
        taken = sum(len(each.tokens) for each in tuple(self._worker.batch.scheduler.running))
        return min(taken / (self.slots * self.context), 1.0)

    @property
    def busy_s(self) -> float:
        """Seconds the models have worked so far; the requests' ``timings.engine_s`` add up to it."""
        return self._worker.batch.busy_s

    def generate(self, prompt: Prompt, **params: Unpack[Parameters]) -> Generation:
        """Answer a prompt and return the whole answer.

        Args:
            prompt: text, or token ids.
            params: fields of :class:`~specclient_local.request.params.SamplingParams`.

        Raises:
            BadRequestError: a parameter outside what is allowed.
            ContextOverflowError: prompt and answer do not fit the context.
            RateLimitError: as many requests wait as may.
            EngineError: the engine failed, or was closed.
        """
        generation: Generation | None = None
        for piece in self.stream(prompt, **params):
            generation = piece.generation
        assert generation is not None
        return generation

    def generate_many(self, prompt: Prompt, n: int, **params: Unpack[Parameters]) -> list[Generation]:
        """Answer a prompt ``n`` times, all at once as far as there are slots; the prompt is read once.

        With a ``seed`` the answer at index i is that of ``generate`` with ``seed + i``: all differ, and each
        can be had again. Where one fails the others are stopped.

        Args:
            prompt: text, or token ids.
            n: how many answers, at least 1.
            params: fields of :class:`~specclient_local.request.params.SamplingParams`.

        Raises:
            BadRequestError, ContextOverflowError, RateLimitError, EngineError: see :meth:`generate`.
        """
        check("n", n, "an integer of at least 1", integer(1))
        self._worker.outside_sinks("generate_many()")
        events: queue.SimpleQueue[tuple[int, AnswerEvent]] = queue.SimpleQueue()
        seed, numbers = params.get("seed"), list[int]()
        answers: dict[int, Generation] = {}

        def sink(i: int) -> EventSink:
            return lambda event: events.put((i, event))

        try:
            for i in range(n):
                if seed is not None:
                    params["seed"] = seed + i
                numbers.append(self.add(prompt, sink(i), **params))
            self._worker.start()
            while len(answers) < n:
                i, event = events.get()
                generation = piece_or_raise(event).generation
                if generation is not None:
                    answers[i] = generation
        finally:
            for number in numbers:
                self.cancel(number)
        return [answers[i] for i in range(n)]

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
        self._worker.outside_sinks("stream() or generate()")
        events: queue.SimpleQueue[AnswerEvent] = queue.SimpleQueue()
        number = self.add(prompt, events.put, **params)
        self._worker.start()
        try:
            while True:
                piece = piece_or_raise(events.get())
                yield piece
                if piece.generation is not None:
                    return
        finally:
            self.cancel(number)

    async def astream(self, prompt: Prompt, **params: Unpack[Parameters]) -> AsyncGenerator[Piece, None]:
        """Do as :meth:`stream` in an asyncio event loop; cancelling the task stops the work."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[AnswerEvent] = asyncio.Queue()
        number = self.add(prompt, lambda e: _post(loop, events, e), **params)
        self._worker.start()
        try:
            while True:
                piece = piece_or_raise(await events.get())
                yield piece
                if piece.generation is not None:
                    return
        finally:
            self.cancel(number)

    def add(self, prompt: Prompt, sink: EventSink, **params: Unpack[Parameters]) -> int:
        """Queue a request for whoever calls :meth:`step`, and return its number.

        Args:
            prompt: text, or token ids.
            sink: called from the stepping thread with each piece, or with the exception that ended it. The
                engine waits for it, so it may call ``add``, ``cancel`` and ``close``, and nothing that waits
                for the engine.
            params: fields of :class:`~specclient_local.request.params.SamplingParams`.

        Raises:
            BadRequestError, ContextOverflowError, EngineError: see :meth:`generate`.
        """
        sequence = self._requests.sequence(next(self._ids), prompt, SamplingParams(**params))
        answer = AnswerText.begin(sequence, self.tokenizer, RequestClock(self._clock()))
        self._worker.add(RunningRequest(sequence, answer, sink))
        return sequence.id

    def cancel(self, number: int) -> None:
        """Stop a request; its slot is free in the next step. Without effect on a finished one."""
        self._worker.cancel(number)

    def step(self) -> bool:
        """Read some prompts on and let all others do one round; return whether any request is left."""
        return self._worker.step()

    def close(self) -> None:
        """Fail what is unfinished and stop the worker; safe to call twice, and from a sink."""
        self._worker.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _post(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[AnswerEvent], event: AnswerEvent) -> None:
    """Hand an event to a loop; one that is closed has nobody left to read it."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, event)
