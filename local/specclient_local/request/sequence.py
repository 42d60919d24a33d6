"""A request in the engine: its tokens, random stream, logits processor and counts."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specclient.types.usage import Speculation
from specclient_local.request.params import Method, SamplingParams
from specclient_local.request.validation import EmptyConstraintError

FinishReason = Literal["stop", "length"]

NO_TOKEN = -1
"""The token of a one-hot distribution in which no token is allowed."""

_BUFFER = 64
"""Random numbers generated at a time."""


class RandomStream:
    """A request's own stream of uniform random numbers in [0, 1), from its own PCG64 generator.

    The numbers depend on the seed alone, so a seeded request draws the same numbers whatever else runs.
    Verification consumes them; see :mod:`specclient_local.decoding.verify`.

    Args:
        seed: from -2**63 to 2**64 - 1; None seeds from the operating system.
    """

    __slots__ = ("_buffer", "_generator")

    def __init__(self, seed: int | None) -> None:
        # Shifted by 2**63 because PCG64 takes no negative seeds.
        entropy = None if seed is None else seed + 2**63
        self._generator = np.random.Generator(np.random.PCG64(entropy))
        self._buffer: list[float] = []

    def uniform(self) -> float:
        """Return the next number, and consume it."""
        if not self._buffer:
            self._fill()
        return self._buffer.pop()

    def peek(self, count: int) -> list[float]:
        """Return the next numbers without consuming them. Then call :meth:`consume` with the number used."""
        while len(self._buffer) < count:
            self._fill()
        return self._buffer[: -count - 1 : -1]

    def consume(self, count: int) -> None:
        """Consume ``count`` of the numbers that :meth:`peek` returned."""
        del self._buffer[len(self._buffer) - count :]

    def _fill(self) -> None:
        # The next number is the last of the buffer, so that it can be popped.
        self._buffer = self._generator.random(_BUFFER)[::-1].tolist() + self._buffer

    def accept(self, probability: float) -> bool:
        """Return True with the given probability. A certain outcome (0 or 1) consumes no number."""
        return probability >= 1.0 or (probability > 0.0 and self.uniform() < probability)

    def draw(self, distribution: int | NDArray[np.float64]) -> int:
        """Draw a token by inversion of the cumulative distribution. A one-hot distribution consumes no
        number.

        Raises:
            EmptyConstraintError: the distribution is ``NO_TOKEN``.
        """
        if isinstance(distribution, int):
            if distribution == NO_TOKEN:
                raise EmptyConstraintError
            return distribution
        cumulative = np.cumsum(distribution)
        at = self.uniform() * cumulative[-1]
        # side="right" skips tokens of probability zero, even if the number is exactly 0.
        return int(np.searchsorted(cumulative, at, side="right"))


class LogitsProcessor(Protocol):
    """Changes the logits of one request: penalties, biases, bad words, a grammar.

    It holds the state of one request, extended by :meth:`take`. Target and draft use the same processor, so
    that the draft proposes allowed tokens. The answer's distribution is that of the target's processed logits
    in any case.
    """

    @property
    def ended(self) -> bool:
        """Whether the answer is complete: no token may follow."""
        ...

    def process(self, logits: Tensor, paths: Seq[Seq[int]]) -> Tensor:
        """Return the processed logits as a new tensor.

        Args:
            logits: ``[N, V]`` of the model; not modified.
            paths: ``[N]`` for each row, the drafted tokens between the answer so far and that row; empty at
                the root.
        """
        ...

    def take(self, token: int) -> None:
        """Append a token to the answer."""
        ...


@dataclass(frozen=True, slots=True)
class TokenScore:
    """The log-probability of a token given all tokens before it.

    It refers to the model's own distribution, the softmax of its logits, before temperature, top-p and top-k.

    Attributes:
        token: the id.
        logprob: natural logarithm of its probability.
        rank: 1 for the most likely token, 2 for the next, …
        top: the most likely tokens with their log-probabilities, most likely first, as many as the request
            wants.
    """

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class PredictionProgress:
    """A request's predicted tokens and their outcome. A token counts once, however often it was proposed."""

    tokens: list[int]
    _proposed: set[int] = field(default_factory=set)
    _appeared: set[int] = field(default_factory=set)
    _kept: range = range(0)

    def count(self, proposed: range, kept: int) -> None:
        """Record a verification of the tokens at indices ``proposed``, of which the first ``kept`` were
        accepted.
        """
        self._proposed.update(proposed)
        self._kept = proposed[:kept]

    def appear(self, count: int) -> None:
        """Record how many of the accepted tokens were emitted; an answer can end inside them."""
        self._appeared.update(self._kept[:count])
        self._kept = range(0)

    @property
    def accepted(self) -> int:
        """Number of predicted tokens that were accepted and emitted."""
        return len(self._appeared)

    @property
    def rejected(self) -> int:
        """Number of predicted tokens that were proposed and not emitted."""
        return len(self._proposed - self._appeared)


@dataclass(slots=True)
class SpeculationCounts:
    """Counts of a request's verifications; :meth:`speculation` explains them.

    Attributes:
        drafted: nodes verified.
        accepted: nodes accepted.
        steps: passes of the target after the prefill.
        reached: per depth, number of drafts at least that deep.
        kept: per depth, number of drafts accepted at least that far.
    """

    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    reached: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def count(self, depth: int, drafted: int, accepted: int) -> None:
        """Add a verification of a tree of ``drafted`` nodes and the given depth, ``accepted`` of them
        accepted.
        """
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

        ``steps`` counts every pass of the target after the prefill, also those with an empty draft, so that
        tokens = steps + accepted, and ``mean_accepted_length`` is tokens per pass. A draft never extends past
        ``max_tokens``. If an end token or stop string lies inside an accepted draft, the tokens after it
        count as accepted although the answer ends before them.

        With method ``prediction``, ``predicted_accepted`` counts predicted tokens that were emitted, and
        ``predicted_rejected`` those that were proposed and not emitted; the figures of a draft model are
        None.
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
    """One request in the engine.

    Attributes:
        id: the engine's number for it.
        tokens: prompt and new tokens. The last one is the root of the next round's tree and is not in any
            cache yet.
        prompt_tokens: number of leading ``tokens`` that are the prompt; after :meth:`slide`, all kept ones.
        params: the request's parameters.
        method: drafting method.
        limit: maximum number of new tokens.
        eos: token ids that end the answer.
        random: its random stream.
        prediction: predicted answer, for the method ``prediction``.
        logits_processor: processor of its logits, or None.
        slot: index of its rows in the caches while it runs, else None.
        counts: its verifications.
        scores: scores of the prompt tokens read so far, if ``prompt_logprobs`` is set.
        cached_tokens: number of prompt tokens whose keys and values came from another request.
        finish_reason: the reason why it ended; None while it runs.
        window: number of tokens at which the oldest are dropped; None to never drop any.
        given: the original prompt, once some of it was dropped.
        adapter: number of the adapter that changes the models; None for none.
        owner: whose request it is; what the engine reports of it does not depend on others' texts.
    """

    id: int
    tokens: list[int]
    prompt_tokens: int
    params: SamplingParams
    method: Method
    limit: int
    eos: Set[int]
    random: RandomStream
    prediction: PredictionProgress | None = None
    logits_processor: LogitsProcessor | None = None
    slot: int | None = None
    counts: SpeculationCounts = field(default_factory=SpeculationCounts)
    scores: list[TokenScore] = field(default_factory=list)
    cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    window: int | None = None
    given: list[int] | None = None
    adapter: int | None = None
    owner: str = ""
    _earlier: list[int] = field(default_factory=list)

    @property
    def prompt(self) -> list[int]:
        """The prompt's tokens as the caller gave them."""
        return self.tokens[: self.prompt_tokens] if self.given is None else self.given

    @property
    def new_tokens(self) -> list[int]:
        """The tokens generated so far."""
        return [*self._earlier, *self.tokens[self.prompt_tokens :]]

    @property
    def generated(self) -> int:
        """Number of tokens generated so far."""
        return len(self._earlier) + len(self.tokens) - self.prompt_tokens

    def speculation(self) -> Speculation:
        """Return the figures so far; see :meth:`SpeculationCounts.speculation`."""
        return self.counts.speculation(self.method, self.prediction)

    @property
    def reproducible(self) -> bool:
        """Whether a seed fixes the sampled answer, in any batch and on every run."""
        return self.params.seed is not None and self.params.temperature > 0.0

    @property
    def remaining(self) -> int:
        """Number of tokens that may still follow before the answer ends or the oldest tokens are dropped."""
        left = self.limit - self.generated
        return left if self.window is None else min(left, self.window - len(self.tokens))

    @property
    def full(self) -> bool:
        """Whether the oldest tokens must be dropped before another token can follow."""
        return self.window is not None and len(self.tokens) >= self.window and self.finish_reason is None

    def slide(self) -> None:
        """Drop the oldest half of the window. The rest becomes the prompt."""
        assert self.window is not None
        self.given, self._earlier = self.prompt, self.new_tokens
        self.tokens = self.tokens[-(self.window - self.window // 2) :]
        self.prompt_tokens = len(self.tokens)

    @property
    def cache_slot(self) -> int:
        """The index of the cache slot.

        Raises:
            RuntimeError: the sequence holds no slot.
        """
        if self.slot is None:
            raise RuntimeError(f"sequence {self.id} holds no cache slot")
        return self.slot

    def take(self, token: int) -> None:
        """Append a token; finish if it ends the answer or reaches the limit."""
        self.tokens.append(token)
        if self.logits_processor is not None:
            self.logits_processor.take(token)
        if token in self.eos or (self.logits_processor is not None and self.logits_processor.ended):
            self.finish_reason = "stop"
        elif self.generated >= self.limit:
            self.finish_reason = "length"
