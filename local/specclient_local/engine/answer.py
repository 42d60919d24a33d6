"""Turn won tokens into an answer: text increments, where each came from, and when it ends."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch

from specclient.errors import EngineError
from specclient.types.usage import Speculation
from specclient_local.model.tokenizer import IncrementalDetokenizer, StopStringFilter, Tokenizer
from specclient_local.request.sequence import FinishReason, Sequence, TokenScore

TextSegment = tuple[str, bool]
"""Text, and whether the draft proposed it."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of a request.

    Attributes:
        queue_s: until a slot was free.
        prefill_s: of the models on its prompt; decode_s: of the models on its rounds.
        ttft_s: from its arrival to its first token, queueing included.
    """

    queue_s: float
    prefill_s: float
    decode_s: float
    ttft_s: float

    @property
    def engine_s(self) -> float:
        """Seconds the models worked on it."""
        return self.prefill_s + self.decode_s


@dataclass(frozen=True, slots=True)
class Scored:
    """How likely the model holds the tokens of a prompt.

    Attributes:
        token_ids: the prompt as the model read it, start token included.
        scores: of each of them given those before it; None of the first, before which there is nothing.
    """

    token_ids: list[int]
    scores: list[TokenScore | None]


@dataclass(frozen=True, slots=True)
class Generation:
    """A whole answer.

    Attributes:
        text: without the stop string and without special tokens.
        token_ids: the new tokens, an end token included.
        finish_reason: ``stop`` (end token or stop string) or ``length``.
        prompt_tokens: tokens of the prompt, start token included; ``prompt_token_ids``: which.
        cached_tokens: how many of them the target did not read again, another request having begun so.
        speculation: see :meth:`specclient_local.request.sequence.SpeculationCounts.speculation`.
        logprobs: of each new token, where ``logprobs`` asked for them.
        scored: the prompt, where ``prompt_logprobs`` asked for it.
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


@dataclass(frozen=True, slots=True)
class Piece:
    """What one round adds to an answer.

    Attributes:
        text: may be empty while a character or a stop string is unfinished.
        token_ids: the round's tokens.
        drafted: for each of them, whether the draft proposed it.
        segments: ``text`` cut where its origin changes; a character counts to the token that completes it.
        logprobs: of the round's tokens, where asked for.
        prompt_token_ids, scored: see :class:`Generation`; on the first piece only.
        finish_reason, generation: on the last piece only.
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
    """Moments and seconds of a request, as they come."""

    arrived: float
    granted: float = 0.0
    first: float | None = None
    prefill_s: float = 0.0
    decode_s: float = 0.0

    def timings(self) -> Timings:
        """Return the finished request's timings."""
        first = self.arrived if self.first is None else self.first
        return Timings(self.granted - self.arrived, self.prefill_s, self.decode_s, first - self.arrived)


@dataclass(slots=True)
class AnswerText:
    """The text side of a sequence.

    Args:
        sequence: grows by what is pushed.
        clocked: its timings.
    """

    sequence: Sequence
    clocked: RequestClock
    _stream: IncrementalDetokenizer
    _filter: StopStringFilter
    _held: list[TextSegment] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _logprobs: list[TokenScore] = field(default_factory=list)
    _begun: bool = False

    @classmethod
    def begin(cls, sequence: Sequence, tokenizer: Tokenizer, clocked: RequestClock) -> AnswerText:
        """Begin an empty answer."""
        stream = IncrementalDetokenizer(tokenizer, sequence.tokens)
        return cls(sequence, clocked, stream, StopStringFilter(sequence.params.stop or ()))

    def push(self, tokens: Seq[int], drafted: Seq[bool], scores: Seq[TokenScore] = ()) -> Piece:
        """Grow by a round's tokens, one by one, up to the one that ends the answer."""
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
        """Return the text that a token lets out, and finish the sequence at a stop string."""
        sequence = self.sequence
        new = "" if token in sequence.eos else self._stream.push(token)
        if sequence.finish_reason is not None:
            new += self._stream.flush()
        if not sequence.params.stop:  # then nothing is ever held back
            return [(new, drafted)]
        self._held.append((new, drafted))
        out, stopped = self._filtered(new)
        if stopped:
            sequence.finish_reason = "stop"
        elif sequence.finish_reason is not None:
            out += len(self._filter.flush())
        return self._release(out)

    def _filtered(self, new: str) -> tuple[int, bool]:
        """Return how many characters of what is held may go out, and whether a stop string ended them.

        One that is complete before the answer has ``min_tokens`` is text like any other.
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
        """Take the first ``count`` characters out of what is held."""
        out: list[TextSegment] = []
        while count > 0:
            text, flag = self._held.pop(0)
            out.append((text[:count], flag))
            if count < len(text):
                self._held.insert(0, (text[count:], flag))
            count -= len(text)
        return out

    def read(self) -> Piece:
        """End an answer of no tokens: what was asked for is the prompt."""
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
            timings=self.clocked.timings(),
            logprobs=None if sequence.params.logprobs is None else list(self._logprobs),
            scored=self._scored(),
            cached_tokens=sequence.cached_tokens,
        )


AnswerEvent = Piece | BaseException
"""What a request's caller is sent: pieces, or the exception that ended it."""

EventSink = Callable[[AnswerEvent], None]


@dataclass(slots=True, eq=False)
class RunningRequest:
    """A request and where its pieces go."""

    sequence: Sequence
    answer: AnswerText
    sink: EventSink


def as_engine_error(error: BaseException) -> EngineError:
    """Return what a caller is sent when something breaks in the engine."""
    if isinstance(error, EngineError):
        return error
    if _out_of_memory(error):
        failure = EngineError(
            f"the engine ran out of memory in a pass with this request ({str(error).splitlines()[0]}); "
            "load it with fewer slots, a smaller context or a half-precision dtype."
        )
        failure.__cause__ = error.with_traceback(None)  # its frames hold what the pass had allocated
        return failure
    failure = EngineError(f"the engine failed on this request: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed; on a processor torch has no class of its own for it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and ("allocate memory" in said or "out of memory" in said)


def piece_or_raise(event: AnswerEvent) -> Piece:
    """Return a piece, or raise what came in its place."""
    if isinstance(event, BaseException):
        raise event
    return event


def _joined(segments: Seq[TextSegment]) -> list[TextSegment]:
    """Merge neighbours of one origin, and leave out empty text."""
    out: list[TextSegment] = []
    for text, flag in segments:
        if text and out and out[-1][1] == flag:
            out[-1] = (out[-1][0] + text, flag)
        elif text:
            out.append((text, flag))
    return out
