"""Builds the requests of an engine, in the calling thread or beside an event loop."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable
from functools import partial

import anyio.to_thread

from specclient_local.decoding.sequence_builder import Prompt, SequenceBuilder
from specclient_local.engine.answer import AnswerText, EventSink, RequestClock, RunningRequest
from specclient_local.request.params import SamplingParams

_ON_LOOP = 4096
"""Characters, or token ids, of a text that is processed in the event loop; a longer one needs a thread."""


class RequestBuilder:
    """Builds requests that are not queued yet, and numbers them. It is safe to use from several threads.

    Args:
        sequences: builds their sequences.
        clock: returns monotonic seconds.
    """

    def __init__(self, sequences: SequenceBuilder, clock: Callable[[], float]) -> None:
        self._sequences = sequences
        self._clock = clock
        self._ids = itertools.count()
        self._trials: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter] = (
            weakref.WeakKeyDictionary()
        )

    def build(
        self, prompt: Prompt, sink: EventSink, params: SamplingParams, owner: str = ""
    ) -> RunningRequest:
        """Return a request.

        Args:
            prompt: text or token ids.
            sink: called with each piece of the answer.
            params: its parameters.
            owner: whose request it is.

        Raises:
            BadRequestError, ContextOverflowError: see
                :meth:`specclient_local.decoding.sequence_builder.SequenceBuilder.sequence`.
        """
        sequence = self._sequences.sequence(next(self._ids), prompt, params, owner)
        answer = AnswerText.begin(sequence, self._sequences.tokenizer, RequestClock(self._clock()))
        return RunningRequest(sequence, answer, sink)

    async def build_off_loop(
        self, prompt: Prompt, sink: EventSink, params: SamplingParams, owner: str = ""
    ) -> RunningRequest:
        """Return a request as :meth:`build` does, without blocking the event loop for long.

        Parsing and compiling a grammar takes milliseconds to seconds, and so does tokenizing a long text, so
        both run in a thread. Only one grammar at a time is tried out in the other process, so that such
        grammars do not occupy the threads that other requests need.
        """
        create = partial(self.build, prompt, sink, params, owner)
        if params.constrained:
            grammars = self._sequences.grammars
            if not await anyio.to_thread.run_sync(grammars.is_proven, params, abandon_on_cancel=True):
                loop = asyncio.get_running_loop()
                one = self._trials.setdefault(loop, anyio.CapacityLimiter(1))
                await anyio.to_thread.run_sync(grammars.prove, params, abandon_on_cancel=True, limiter=one)
        elif max(_length(prompt), _length(params.prediction)) <= _ON_LOOP:
            return create()
        return await anyio.to_thread.run_sync(create, abandon_on_cancel=True)


def _length(text: Prompt | None) -> int:
    return 0 if text is None or not hasattr(text, "__len__") else len(text)
