"""Answers: text from accepted tokens, the origin of each piece, stop conditions, and timings."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch

from specclient.errors import EngineError
from specclient.types.usage import Speculation
from specclient_local.model.detokenizer import IncrementalDetokenizer, StopStringFilter
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.sequence import FinishReason, Sequence, TokenScore

TextSegment = tuple[str, bool]
"""Text and whether the draft proposed it."""


@dataclass(frozen=True, slots=True)
class Timings:
    """The durations of a request, in seconds.

    Attributes:
        queue_s: the wait for a slot.
        prefill_s: the models' work on the prompt.
        decode_s: the request's share of the models' work in rounds.
        ttft_s: the time from arrival to the first token, queueing included.
    """

    queue_s: float
    prefill_s: float
    decode_s: float
    ttft_s: float

    @property
    def engine_s(self) -> float:
        """The models' work on the request, in seconds."""
        return self.prefill_s + self.decode_s


@dataclass(frozen=True, slots=True)
class Scored:
    """Log-probabilities of the tokens of a prompt.

    Attributes:
        token_ids: the prompt's tokens, start token included.
        scores: the score of each token given the tokens before it; None for the first token.
    """

    token_ids: list[int]
    scores: list[TokenScore | None]


@dataclass(frozen=True, slots=True)
class Generation:
    """A whole answer.

    Attributes:
        text: the text, without stop string and special tokens.
        token_ids: the new tokens, including an end token.
        finish_reason: ``stop`` (end token or stop string) or ``length``.
        prompt_tokens: the number of prompt tokens, start token included.
        prompt_token_ids: the prompt's tokens.
        cached_tokens: the prompt tokens taken from the prefix cache instead of being prefilled.
        speculation: see :meth:`specclient_local.request.sequence.SpeculationCounts.speculation`.
        logprobs: the scores of the new tokens if ``logprobs`` was set.
        scored: the scores of the prompt if ``prompt_logprobs`` was set.
        stop_string: the stop string that ended the answer; None if none did.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    prompt_tokens: int
    prompt_token_ids: list[int]
    speculation: Speculation
    timings: Timings
    logprobs: list[TokenScore] | None = None
    scored: Scored | None = None
    cached_tokens: int = 0
    stop_string: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of an answer that one round adds.

    Attributes:
        text: the new text; empty while a character or a possible stop string is incomplete.
        token_ids: the round's tokens.
        drafted: for each token, whether the draft proposed it.
        segments: ``text`` split where its origin changes; a character belongs to the token that completes it.
        logprobs: the scores of the round's tokens if requested.
        prompt_token_ids, scored: see :class:`Generation`; set on the first piece only.
        finish_reason, generation: set on the last piece only.
    """

    text: str
    token_ids: tuple[int, ...]
    drafted: tuple[bool, ...]
    segments: tuple[TextSegment, ...]
    logprobs: tuple[TokenScore, ...] = ()
    prompt_token_ids: list[int] | None = None
    scored: Scored | None = None
    finish_reason: FinishReason | None = None
    generation: Generation | None = None


@dataclass(slots=True)
class RequestClock:
    """Time stamps (monotonic seconds) and durations of a request in progress."""

    arrived: float
    granted: float = 0.0
    first: float | None = None
    prefill_s: float = 0.0
    decode_s: float = 0.0

    def timings(self) -> Timings:
        """Return the timings of the finished request."""
        first = self.arrived if self.first is None else self.first
        return Timings(self.granted - self.arrived, self.prefill_s, self.decode_s, first - self.arrived)


@dataclass(slots=True)
class AnswerText:
    """The text of a growing sequence.

    Args:
        sequence: the sequence, to which pushed tokens are appended.
        clock: its timings.
    """

    sequence: Sequence
    clock: RequestClock
    _stream: IncrementalDetokenizer
    _filter: StopStringFilter
    _held: list[TextSegment] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _logprobs: list[TokenScore] = field(default_factory=list)
    _begun: bool = False
    _stop_string: str | None = None

    @classmethod
    def begin(cls, sequence: Sequence, tokenizer: Tokenizer, clock: RequestClock) -> AnswerText:
        """Return an empty answer."""
        stream = IncrementalDetokenizer(tokenizer, sequence.tokens)
        return cls(sequence, clock, stream, StopStringFilter(sequence.params.stop or ()))

    def push(self, tokens: Seq[int], drafted: Seq[bool], scores: Seq[TokenScore] = ()) -> Piece:
        """Append a round's tokens, up to the one that ends the answer."""
        sequence, before = self.sequence, len(self.sequence.tokens)
        first, self._begun = not self._begun, True
        segments: list[TextSegment] = []
        for token, flag in zip(tokens, drafted, strict=True):
            sequence.take(token)
            segments += self._emit(token, drafted=flag)
            if sequence.finish_reason is not None:
                break
        text = "".join(text for text, _ in segments)
        self._text.append(text)
        taken = sequence.tokens[before:]
        self._logprobs += scores[: len(taken)]
        if sequence.prediction is not None:
            sequence.prediction.appear(sum(drafted[: len(taken)]))
        return Piece(
            text=text,
            token_ids=tuple(taken),
            drafted=tuple(drafted[: len(taken)]),
            segments=tuple(_joined(segments)),
            logprobs=tuple(scores[: len(taken)]),
            prompt_token_ids=self._prompt_ids() if first else None,
            scored=self._scored() if first else None,
            finish_reason=sequence.finish_reason,
            generation=self._generation(),
        )

    def _emit(self, token: int, *, drafted: bool) -> list[TextSegment]:
        """Return the text that a token completes, and finish the sequence at a stop string."""
        sequence = self.sequence
        new = "" if token in sequence.eos else self._stream.push(token)
        if sequence.finish_reason is not None:
            new += self._stream.flush()
        if not sequence.params.stop:  # no text is ever held back
            return [(new, drafted)]
        self._held.append((new, drafted))
        out, stopped = self._filtered(new)
        if stopped:
            sequence.finish_reason, self._stop_string = "stop", self._filter.stopped_by
        elif sequence.finish_reason is not None:
            out += len(self._filter.flush())
        return self._release(out)

    def _filtered(self, new: str) -> tuple[int, bool]:
        """Return how many held characters may be emitted, and whether a stop string ended the answer.

        A stop string that is complete before ``min_tokens`` is ordinary text.
        """
        params, size = self.sequence.params, self.sequence.generated
        text, stopped = self._filter.push(new)
        out = len(text)
        while stopped and size < params.min_tokens:
            held = "".join(part for part, _ in self._held)
            out += min(len(stop) for stop in params.stop or () if held.startswith(stop, out))
            text, stopped = self._filter.push(held[out:])
            out += len(text)
        return out, stopped

    def _release(self, count: int) -> list[TextSegment]:
        """Remove and return the first ``count`` held characters."""
        out: list[TextSegment] = []
        while count > 0:
            text, flag = self._held.pop(0)
            out.append((text[:count], flag))
            if count < len(text):
                self._held.insert(0, (text[count:], flag))
            count -= len(text)
        return out

    def end_without_tokens(self) -> Piece:
        """End an answer to a request for the prompt's scores alone."""
        self.sequence.finish_reason = "length"
        return self.push((), ())

    def _prompt_ids(self) -> list[int]:
        return self.sequence.prompt

    def _scored(self) -> Scored | None:
        if self.sequence.params.prompt_logprobs is None:
            return None
        return Scored(self._prompt_ids(), [None, *self.sequence.scores])

    def _generation(self) -> Generation | None:
        sequence = self.sequence
        if sequence.finish_reason is None:
            return None
        return Generation(
            text="".join(self._text),
            token_ids=sequence.new_tokens,
            finish_reason=sequence.finish_reason,
            prompt_tokens=len(sequence.prompt),
            prompt_token_ids=self._prompt_ids(),
            speculation=sequence.speculation(),
            timings=self.clock.timings(),
            logprobs=None if sequence.params.logprobs is None else list(self._logprobs),
            scored=self._scored(),
            cached_tokens=sequence.cached_tokens,
            stop_string=self._stop_string,
        )


AnswerEvent = Piece | BaseException
"""An event for a request's caller: a piece, or the exception that ended the request."""

EventSink = Callable[[AnswerEvent], None]


@dataclass(slots=True, eq=False)
class RunningRequest:
    """A request and the sink that receives its events."""

    sequence: Sequence
    answer: AnswerText
    sink: EventSink


def as_engine_error(error: BaseException) -> EngineError:
    """Return the error that the caller receives for an exception in the engine."""
    if isinstance(error, EngineError):
        return error
    if _out_of_memory(error):
        failure = EngineError(
            f"the engine ran out of memory in a pass with this request ({str(error).splitlines()[0]}); "
            "load it with fewer slots, a smaller context or a half-precision dtype."
        )
        failure.__cause__ = error.with_traceback(None)  # its frames would keep the pass's tensors alive
        return failure
    failure = EngineError(f"the engine failed on this request: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocation failed; on a CPU torch raises a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    message = str(error)
    return isinstance(error, RuntimeError) and ("allocate memory" in message or "out of memory" in message)


def piece_or_raise(event: AnswerEvent) -> Piece:
    """Return a piece, or raise the exception that the event is."""
    if isinstance(event, BaseException):
        raise event
    return event


def only_last(sink: EventSink) -> EventSink:
    """Pass on only the event that ends a request.

    A reader of whole answers that wakes for each piece competes with the next round for the interpreter.
    """

    def deliver(event: AnswerEvent) -> None:
        if not isinstance(event, Piece) or event.generation is not None:
            sink(event)

    return deliver


def _joined(segments: Seq[TextSegment]) -> list[TextSegment]:
    """Merge adjacent segments of the same origin and drop empty ones."""
    out: list[TextSegment] = []
    for text, flag in segments:
        if text and out and out[-1][1] == flag:
            out[-1] = (out[-1][0] + text, flag)
        elif text:
            out.append((text, flag))
    return out
