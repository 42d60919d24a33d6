"""The engine: generates text from prompts, whole or streamed, from threads and event loops."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, Never, Unpack

from specclient.errors import ConfigurationError
from specclient.runtime.allowed_names import allowed_names
from specclient.types.request_limits import RequestLimits
from specclient_local.decoding.sequence_builder import Prompt
from specclient_local.decoding.speculate import Speculator
from specclient_local.engine.answer import (
    AnswerEvent,
    EventSink,
    Generation,
    Piece,
    Scored,
    only_last,
    piece_or_raise,
)
from specclient_local.engine.request_builder import RequestBuilder
from specclient_local.engine.worker import Worker
from specclient_local.loading.configured_models import resolve_pair_name
from specclient_local.loading.engine_loader import LoadedEngine, load_engine
from specclient_local.loading.options import EngineOptions
from specclient_local.model.tensor_parallel.parallel_runner import ParallelRunner
from specclient_local.request.params import EngineMethod, Method, Parameters, SamplingParams
from specclient_local.request.validation import check, integer, optional

_AHEAD = 4  # requests of one call that wait, so that no slot is idle


class Engine:
    """Exact speculative decoding of one target model.

    Create it with :meth:`load`. All methods are thread-safe. The worker thread runs only while there is
    work. A forked child process may use the engine too; requests in flight stay with the parent.

    Attributes:
        tokenizer: the tokenizer of the target (and the draft).
        context: the maximum number of tokens of prompt and answer together.
        method: the method of requests that name none.
        costs: the cost of draft and verification passes by method, measured at load, in plain decoding steps.
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
        self._sequences = loaded.requests
        self._requests = RequestBuilder(loaded.requests, clock)
        self._speculator = loaded.speculator
        self._worker = Worker(loaded.speculator, slots, loaded.threads, clock, max_waiting)

    @classmethod
    def load(
        cls,
        model: str | Path,
        draft: str | Path | Seq[str | Path] | None = None,
        *,
        method: EngineMethod | Literal["auto"] = "auto",
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
        prefix_cache: bool | Literal["owner"] = True,
        graphs: Literal["auto", "on", "off"] = "auto",
        launch_ahead: bool = False,
        kv_cache: Literal["contiguous", "paged"] = "contiguous",
        cache_tokens: int | None = None,
        draft_vocabulary: Literal["auto", "same", "shared", "retokenised"] = "auto",
        adapters: Mapping[str, Any] | Seq[Any] | None = None,
        tensor_parallel: int = 1,
        max_waiting: int | None = None,
        request_limits: RequestLimits | None = None,
        **unknown: Never,
    ) -> Engine:
        """Load a target model and, for speculation, its draft.

        Args:
            model: folder, GGUF file or hub id of the target; ``demo`` is the bundled pair.
            draft: folder, GGUF file or hub id of a smaller model. Several drafts are tried in order.
            max_waiting: the number of requests that may wait for a slot; a further request is refused. None
                means no limit.
            request_limits: limits on what one request may ask for, such as the size of its grammar. None
                means the defaults.

        The other arguments are the fields of :class:`~specclient_local.loading.options.EngineOptions`, which
        describes them.

        Raises:
            CheckpointError: a folder is not a usable checkpoint, or two checkpoints do not fit together.
            ConfigurationError: an argument has a value that is not allowed.
            TypeError: an argument is unknown; names the one that was probably meant.
        """
        for name in unknown:  # as Python does from 3.13 on
            known = (*EngineOptions.__slots__, "max_waiting", "request_limits")
            raise TypeError(
                f"Engine.load() got an unexpected keyword argument {name!r}; {allowed_names(name, known)}"
            )
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
            "launch_ahead": launch_ahead,
            "kv_cache": kv_cache,
            "cache_tokens": cache_tokens,
            "adapters": adapters,
            "tensor_parallel": tensor_parallel,
        }
        loaded = load_engine(model, EngineOptions.read(options), request_limits)
        return cls(loaded, slots=slots, max_waiting=max_waiting)

    @property
    def threads(self) -> int:
        """The number of torch threads that compute."""
        return self._worker.threads

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that a request may name."""
        return self._sequences.methods

    @property
    def speculator(self) -> Speculator:
        """The models, for measurements while no request runs."""
        return self._speculator

    @property
    def unfinished(self) -> int:
        """The number of requests that wait or run."""
        return len(self._worker.jobs)

    @property
    def slots(self) -> int:
        """The number of requests that run at once."""
        return self._worker.slots

    @property
    def cache_use(self) -> float:
        """The share of the KV cache that running requests occupy, from 0 to 1."""
        pool = self._speculator.pages
        if pool is not None:
            return pool.held / pool.pages
        taken = sum(len(each.tokens) for each in tuple(self._worker.batch.scheduler.running))
        return min(taken / (self.slots * self.context), 1.0)

    @property
    def busy_s(self) -> float:
        """The seconds that the models have worked; the sum of the requests' ``timings.engine_s``."""
        return self._worker.batch.busy_s

    def generate(self, prompt: Prompt, **params: Unpack[Parameters]) -> Generation:
        """Generate an answer to a prompt and return it whole.

        Args:
            prompt: text or token ids.
            params: fields of :class:`~specclient_local.request.params.SamplingParams`.

        Raises:
            BadRequestError: a parameter has a value that is not allowed.
            ContextOverflowError: prompt and answer do not fit the context.
            RateLimitError: ``max_waiting`` requests wait already.
            EngineError: the engine failed or was closed.
        """
        return self.generate_many(prompt, 1, **params)[0]

    def generate_many(self, prompt: Prompt, n: int, **params: Unpack[Parameters]) -> list[Generation]:
        """Generate ``n`` answers to a prompt, as many at a time as slots allow; the prompt is prefilled once.

        Only a few further requests are queued at a time, so the memory for them does not depend on ``n``.
        With a ``seed``, answer i equals ``generate`` with ``seed + i``, so the answers differ and are
        reproducible. If one request fails, the others are cancelled.

        Args:
            prompt: text or token ids.
            n: the number of answers, at least 1.
            params: fields of :class:`~specclient_local.request.params.SamplingParams`.

        Raises:
            BadRequestError, ContextOverflowError, RateLimitError, EngineError: see :meth:`generate`.
        """
        check("n", n, "an integer of at least 1", integer(1))
        self._worker.check_outside_sink("generate() or generate_many()")
        events: queue.SimpleQueue[tuple[int, AnswerEvent]] = queue.SimpleQueue()
        seed, numbers = params.get("seed"), dict[int, int]()  # of open requests, by answer
        answers: dict[int, Generation] = {}

        def sink(i: int) -> EventSink:
            return only_last(lambda event: events.put((i, event)))

        begun = 0
        try:
            while len(answers) < n:
                for i in range(begun, min(n, len(answers) + self.slots + _AHEAD)):
                    if seed is not None:
                        params["seed"] = seed + i
                    numbers[i] = self.add(prompt, sink(i), **params)
                    begun += 1
                self._worker.start()
                i, event = events.get()
                generation = piece_or_raise(event).generation
                assert generation is not None
                answers[i] = generation
                del numbers[i]
        finally:
            for number in numbers.values():
                self.cancel(number)
        return [answers[i] for i in range(n)]

    def score(self, prompt: Prompt, top: int = 1) -> Scored:
        """Return the log-probability of each token of a prompt, from one prefill without an answer.

        The request waits for a slot like any other. Log-probabilities are float32 values of the model's own
        distribution (temperature 1, no truncation).

        Args:
            prompt: text or token ids.
            top: the number of most likely tokens to return for each position, 0 to 20.

        Raises:
            BadRequestError, ContextOverflowError, EngineError: see :meth:`generate`.
        """
        scored = self.generate(prompt, max_tokens=0, prompt_logprobs=top).scored
        assert scored is not None
        return scored

    def stream(self, prompt: Prompt, **params: Unpack[Parameters]) -> Iterator[Piece]:
        """Yield the answer to a prompt round by round; the last piece carries the whole answer.

        Closing the iterator early cancels the request. Arguments and errors are those of :meth:`generate`.
        """
        self._worker.check_outside_sink("stream()")
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

    async def astream(
        self,
        prompt: Prompt,
        *,
        turn: asyncio.Lock | None = None,
        checked: SamplingParams | None = None,
        owner: str = "",
        **params: Unpack[Parameters],
    ) -> AsyncGenerator[Piece, None]:
        """Yield the answer as :meth:`stream` does; cancelling the task cancels the request.

        Args:
            prompt: text or token ids.
            turn: a lock that is held until the request is queued. Requests that share it are queued in the
                order in which they acquire it, however long their prompts and grammars take to process.
            checked: the parameters instead of ``params``, so that many choices do not check them again.
            owner: whose request it is. Suffix decoding drafts from answers of the same owner, and
                ``cached_tokens`` counts prompts of the same owner. With ``prefix_cache="owner"``, keys and
                values are reused for the same owner only.
            params: fields of :class:`~specclient_local.request.params.SamplingParams`.
        """
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[AnswerEvent] = asyncio.Queue()
        async with turn or nullcontext():
            request = await self._requests.build_off_loop(
                prompt, lambda e: _post(loop, events, e), checked or SamplingParams(**params), owner
            )
            self._worker.add(request)
        number = request.sequence.id
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
        """Queue a request, to be processed by :meth:`step`, and return its number.

        Args:
            prompt: text or token ids.
            sink: called in the stepping thread with each piece, or with the exception that ended the request.
                The engine waits for the call to return, so it may call ``add``, ``cancel`` and ``close``, but
                nothing that waits for the engine.
            params: fields of :class:`~specclient_local.request.params.SamplingParams`.

        Raises:
            BadRequestError, ContextOverflowError, EngineError: see :meth:`generate`.
        """
        request = self._requests.build(prompt, sink, SamplingParams(**params))
        self._worker.add(request)
        return request.sequence.id

    def check_prompt(self, prompt: Prompt, **params: Unpack[Parameters]) -> None:
        """Check a prompt that is to be answered later, as :meth:`add` would.

        Raises:
            BadRequestError, ContextOverflowError: see :meth:`generate`.
        """
        self._sequences.tokens(prompt, SamplingParams(**params))

    def cancel(self, number: int) -> None:
        """Cancel a request; its slot is free in the next step. A finished request is not affected."""
        self._worker.cancel(number)

    def step(self) -> bool:
        """Prefill chunks of prompts, then run one round for all other requests.

        Returns:
            Whether any request is left.
        """
        return self._worker.step()

    def close(self) -> None:
        """Fail unfinished requests and stop the worker thread. Safe to call twice, and from a sink."""
        self._worker.close()
        self._sequences.grammars.close()
        if isinstance(self._speculator.target, ParallelRunner):
            self._speculator.target.stop()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _post(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[AnswerEvent], event: AnswerEvent) -> None:
    """Put an event into a queue of an event loop; a closed loop has no reader left."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, event)
