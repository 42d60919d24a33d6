"""Turn a prompt and its parameters into one growing request: its tokens, its random stream, its figures."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specclient.errors import EngineError
from specclient.types.usage import Speculation
from specclient_local.request.params import Method, SamplingParams

FinishReason = Literal["stop", "length"]

NO_TOKEN = -1
"""In the place of a one-hot distribution's token: no token may come here."""

EMPTY_CONSTRAINT_MESSAGE = (
    "no token may come next: the request's json_schema, regex or grammar, its bad_words and min_tokens "
    "exclude each other here, or cannot be written in the model's tokens; loosen one of them."
)

_BUFFER = 64


class RandomStream:
    """A request's own stream of uniform numbers in [0, 1), drawn from its own PCG64.

    The numbers depend on the seed alone, so a seeded request draws the same whatever else runs.
    """

    __slots__ = ("_buffer", "_generator")

    def __init__(self, seed: int | None) -> None:
        # Shifted, so that every seed of the documented range, negative ones too, has a stream of its own.
        entropy = None if seed is None else seed + 2**63
        self._generator = np.random.Generator(np.random.PCG64(entropy))
        self._buffer: list[float] = []

    def uniform(self) -> float:
        """Return the next number."""
        if not self._buffer:
            self._fill()
        return self._buffer.pop()

    def ahead(self, count: int) -> list[float]:
        """Return the next numbers without taking them, for a walk that says afterwards how many it used."""
        while len(self._buffer) < count:
            self._fill()
        return self._buffer[: -count - 1 : -1]

    def skip(self, count: int) -> None:
        """Take so many of the numbers that :meth:`ahead` showed."""
        del self._buffer[len(self._buffer) - count :]

    def _fill(self) -> None:
        self._buffer = self._generator.random(_BUFFER)[::-1].tolist() + self._buffer

    def accept(self, probability: float) -> bool:
        """Return True with this probability; certain outcomes consume nothing."""
        return probability >= 1.0 or (probability > 0.0 and self.uniform() < probability)

    def draw(self, distribution: int | NDArray[np.float64]) -> int:
        """Return a token by inversion of the cumulative distribution; a one-hot one consumes nothing.

        Raises:
            EngineError: the distribution is ``NO_TOKEN``.
        """
        if isinstance(distribution, int):
            if distribution == NO_TOKEN:
                raise EngineError(EMPTY_CONSTRAINT_MESSAGE)
            return distribution
        cumulative = np.cumsum(distribution)
        at = self.uniform() * cumulative[-1]
        # side="right" steps over tokens of probability zero, also where the number is exactly 0
        return int(np.searchsorted(cumulative, at, side="right"))


class LogitsProcessor(Protocol):
    """What beside the model says which token may come next and how likely: penalties, biases, a grammar.

    It holds one request's state, grown by :meth:`take`. The draft is shaped like the target, so that what
    it proposes is allowed; the answer's distribution is the shaped target's whatever the draft says.
    """

    @property
    def ended(self) -> bool:
        """Whether nothing may follow the tokens taken."""
        ...

    def shape(self, logits: Tensor, paths: Seq[Seq[int]]) -> Tensor:
        """Return logits ``[N, V]`` shaped, the given ones untouched.

        Args:
            logits: ``[N, V]`` as the model says them.
            paths: for each row the guesses between the tokens taken and that row; empty at the root.
        """
        ...

    def take(self, token: int) -> None:
        """Learn that the answer has grown by a token."""
        ...


@dataclass(frozen=True, slots=True)
class TokenScore:
    """How likely the model held a token in its place, given all tokens before it.

    Of the model's own distribution, the softmax of its logits: temperature, top-p and top-k, which shape
    what is drawn, do not enter.

    Attributes:
        token: its id.
        logprob: natural logarithm of its probability.
        rank: 1 for the most likely token of all (the greedy choice), 2 for the next, …
        top: the most likely tokens with their log-probabilities, likeliest first, as many as asked for.
    """

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class PredictionProgress:
    """A request's prediction, and what became of its tokens: each counts once, however often it was tried."""

    tokens: list[int]
    _proposed: set[int] = field(default_factory=set)
    _appeared: set[int] = field(default_factory=set)
    _kept: range = range(0)

    def count(self, proposed: range, kept: int) -> None:
        """Note a pass over the tokens at these indices, of which the target kept the first ``kept``."""
        self._proposed.update(proposed)
        self._kept = proposed[:kept]

    def appear(self, count: int) -> None:
        """Note how many of those kept are in the answer; it may end before the others."""
        self._appeared.update(self._kept[:count])
        self._kept = range(0)

    @property
    def accepted(self) -> int:
        """How many were kept and are in the answer."""
        return len(self._appeared)

    @property
    def rejected(self) -> int:
        """How many were proposed and are not in the answer."""
        return len(self._proposed - self._appeared)


@dataclass(slots=True)
class SpeculationCounts:
    """Counts of a request's verification passes; see :meth:`speculation` for what they mean."""

    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    reached: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def count(self, depth: int, drafted: int, accepted: int) -> None:
        """Add one pass whose tree had ``drafted`` nodes down to ``depth``, ``accepted`` of them kept."""
        self.steps += 1
        self.drafted += drafted
        self.accepted += accepted
        while len(self.reached) < depth:
            self.reached.append(0)
            self.kept.append(0)
        for i in range(depth):
            self.reached[i] += 1
            self.kept[i] += i < accepted

    def speculation(self, method: Method, predicted: PredictionProgress | None = None) -> Speculation:
        """Return the figures of a request.

        ``steps`` counts every pass of the target after the prefill, those with an empty draft too, so
        before the cut below tokens = steps + accepted, and ``mean_accepted_length`` is tokens per pass.
        A draft never reaches past ``max_tokens``. Where an end token or stop string falls inside an
        accepted draft, the tokens behind it count as accepted (the target kept them) though the answer
        ends before them.

        Of a prediction's tokens ``predicted_accepted`` are in the answer, ``predicted_rejected`` were
        proposed and are not; a draft model's figures stay unknown.
        """
        mean = 1 + self.accepted / self.steps if self.steps else None
        if method == "prediction" and predicted is not None:
            return Speculation(
                method=method,
                steps=self.steps,
                mean_accepted_length=mean,
                predicted_accepted=predicted.accepted,
                predicted_rejected=predicted.rejected,
                source="engine",
            )
        if method == "plain":
            return Speculation(method="plain", drafted=0, accepted=0, steps=self.steps, source="engine")
        return Speculation(
            method=method,
            drafted=self.drafted,
            accepted=self.accepted,
            steps=self.steps,
            acceptance_rate=self.accepted / self.drafted if self.drafted else None,
            mean_accepted_length=mean,
            per_position=tuple(k / r for k, r in zip(self.kept, self.reached, strict=True)) or None,
            accepted_per_position=tuple(self.kept) or None,
            source="engine",
        )


@dataclass(slots=True, eq=False)
class Sequence:
    """One request on its way through the engine.

    Attributes:
        id: the engine's number for it.
        tokens: prompt and new tokens; the last one is the root of the next round's tree, not yet in any
            cache.
        prompt_tokens: how many of ``tokens`` were given, or left when the oldest were dropped.
        limit: most new tokens, the context considered.
        window: as many tokens as there may be before the oldest are dropped; None where they are not to be.
        given: the prompt, where some of it was dropped.
        eos: tokens that end the answer.
        slot: row of the caches while it runs, else None.
        prediction: what the user expects, for the method of that name.
        rules: what beside the model shapes its logits, if anything does.
        scores: of the prompt's tokens read so far, where ``prompt_logprobs`` asks for them.
        cached_tokens: of the prompt, those whose keys and values the target had from another request.
    """

    id: int
    tokens: list[int]
    prompt_tokens: int
    params: SamplingParams
    method: Method
    limit: int
    eos: Set[int]
    dice: RandomStream
    prediction: PredictionProgress | None = None
    rules: LogitsProcessor | None = None
    slot: int | None = None
    tally: SpeculationCounts = field(default_factory=SpeculationCounts)
    scores: list[TokenScore] = field(default_factory=list)
    cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    window: int | None = None
    given: list[int] | None = None
    _earlier: list[int] = field(default_factory=list)

    @property
    def prompt(self) -> list[int]:
        """The tokens given."""
        return self.tokens[: self.prompt_tokens] if self.given is None else self.given

    @property
    def new_tokens(self) -> list[int]:
        """Tokens generated so far."""
        return [*self._earlier, *self.tokens[self.prompt_tokens :]]

    @property
    def produced(self) -> int:
        """How many tokens were generated so far."""
        return len(self._earlier) + len(self.tokens) - self.prompt_tokens

    def speculation(self) -> Speculation:
        """Return the figures so far; see :meth:`SpeculationCounts.speculation`."""
        return self.tally.speculation(self.method, self.prediction)

    @property
    def reproducible(self) -> bool:
        """Whether a seed fixes what is drawn: the same answer in any company and on the next run."""
        return self.params.seed is not None and self.params.temperature > 0.0

    @property
    def remaining(self) -> int:
        """How many tokens may still follow, before the oldest are dropped if they are to be."""
        left = self.limit - self.produced
        return left if self.window is None else min(left, self.window - len(self.tokens))

    @property
    def full(self) -> bool:
        """Whether the oldest tokens are to be dropped before another may follow."""
        return self.window is not None and len(self.tokens) >= self.window and self.finish_reason is None

    def slide(self) -> None:
        """Drop the oldest tokens, all but the newest half of the window: they are the prompt from now on."""
        assert self.window is not None
        self.given, self._earlier = self.prompt, self.new_tokens
        self.tokens = self.tokens[-(self.window - self.window // 2) :]
        self.prompt_tokens = len(self.tokens)

    @property
    def granted(self) -> int:
        """The cache slot, for code that only runs while one is held."""
        if self.slot is None:
            raise RuntimeError(f"sequence {self.id} holds no slot")
        return self.slot

    def take(self, token: int) -> None:
        """Grow by one token, and finish where it is an end token or the last one allowed."""
        self.tokens.append(token)
        if self.rules is not None:
            self.rules.take(token)
        if token in self.eos or (self.rules is not None and self.rules.ended):
            self.finish_reason = "stop"
        elif self.produced >= self.limit:
            self.finish_reason = "length"
