"""Results of the draft-target workflow: both answers, their cost, and how much of the draft was kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from specclient.errors import APIStatusError, CircuitOpenError, ConfigurationError, OpenAIError
from specclient.types.call import Call
from specclient.types.usage import Speculation, Usage

METHOD = "draft_target"

DraftHandover = Literal["prediction", "conversation", "nothing"]

#: A word, or any other single character; every Chinese, Japanese or Korean character is one. Not a model's
#: tokenizer, because draft and target may have different ones.
_WORD = re.compile(r"[^\W\u2e80-\U0010ffff]+|\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One of the two calls. ``None`` means unknown or absent, never zero.

    Attributes:
        model: as requested.
        output: its text; None where the call failed.
        call: the record of the call; None where it failed.
        error: the error of a failed call.
    """

    model: str
    output: str | None = None
    call: Call | None = None
    error: OpenAIError | None = None

    @property
    def usage(self) -> Usage:
        """The tokens it used."""
        return Usage() if self.call is None else self.call.usage

    @property
    def latency_s(self) -> float | None:
        """Its latency in seconds."""
        return None if self.call is None else self.call.latency_s

    @property
    def cost(self) -> Decimal | None:
        """Its cost in dollars: 0 where it was refused; None where unknown."""
        if self.call is not None:
            return self.call.cost.total
        refused = isinstance(self.error, APIStatusError | ConfigurationError | CircuitOpenError)
        return Decimal(0) if refused else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTargetResult:
    """The result for one prompt.

    Attributes:
        draft, target: see :class:`StageResult`.
        depth_tokens: the maximum length of the draft in tokens.
        depth: the same in segments of 32 tokens; None where it was given in tokens.
        handed: how the target received the draft: as a ``prediction``, in the ``conversation``, or not at all
            (``nothing``).
        reason: why it was handed over in this way.
        latency_s: seconds from the first call to the end of the second.
        alone_cost, alone_latency_s: estimated dollars and seconds of the target alone, for an answer of the
            same length; None where they cannot be estimated. With the draft in the conversation, the target
            generates every token itself, so its own latency is the estimate.
    """

    draft: StageResult
    target: StageResult
    depth_tokens: int
    depth: int | None
    handed: DraftHandover
    reason: str
    latency_s: float
    alone_cost: Decimal | None = None
    alone_latency_s: float | None = None

    @property
    def output(self) -> str | None:
        """The answer: the target's text. None where the target failed."""
        return self.target.output

    @property
    def error(self) -> OpenAIError | None:
        """The target's error; that of the draft is ``draft.error``."""
        return self.target.error

    @property
    def cost(self) -> Decimal | None:
        """The cost of both calls in dollars; None where one of them is unknown."""
        draft, target = self.draft.cost, self.target.cost
        return None if draft is None or target is None else draft + target

    @property
    def speculation(self) -> Speculation | None:
        """How much of the draft is in the answer, by :func:`acceptance`; None where there is no draft.

        It counts words of the texts. The tokens that a target has verified, where it reports them, are in
        ``target.call.speculation``.
        """
        if self.draft.output is None or self.target.output is None or self.handed == "nothing":
            return None
        drafted = split_words(self.draft.output)
        if not drafted:
            return None
        accepted = lcs_length(drafted, split_words(self.target.output))
        return Speculation(
            method=METHOD,
            drafted=len(drafted),
            accepted=accepted,
            acceptance_rate=accepted / len(drafted),
            source="text",
        )

    @property
    def acceptance(self) -> float | None:
        """The share of the draft that is in the answer, 0 to 1; see :func:`acceptance`."""
        speculation = self.speculation
        return None if speculation is None else speculation.acceptance_rate


def acceptance(draft: str, output: str) -> float | None:
    """Return the share of a draft that occurs, in order, in an output: LCS(draft, output) / len(draft).

    Both are split into words and single characters; LCS is the length of their longest common subsequence.
    This compares texts. It is not the acceptance rate of speculative decoding, in which a target verifies
    tokens.

    Returns:
        From 0 to 1; None for an empty draft.
    """
    drafted = split_words(draft)
    return lcs_length(drafted, split_words(output)) / len(drafted) if drafted else None


def split_words(text: str) -> list[str]:
    """Return the words and other characters of a text, without spaces."""
    return _WORD.findall(text)


def lcs_length(draft: Sequence[str], output: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    Computed with one bit per item of the draft: H. Hyyrö, "Bit-parallel LCS-length computation revisited"
    (2004).
    """
    positions: dict[str, int] = {}
    for i, item in enumerate(draft):
        positions[item] = positions.get(item, 0) | 1 << i
    full = (1 << len(draft)) - 1
    row = full
    for item in output:
        hit = row & positions.get(item, 0)
        row = ((row + hit) | (row - hit)) & full
    return len(draft) - row.bit_count()
