"""Turn two answers and what is known of them into one result: who said what, for how much, and how alike."""

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

#: Words, and every other sign by itself; Chinese, Japanese and Korean ones, too. No model's tokenizer: the
#: draft's and the target's may differ.
_TOKEN = re.compile(r"[^\W\u2e80-\U0010ffff]+|\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One of the two calls. ``None`` means unknown, or not there, never zero.

    Attributes:
        model: as it was asked for.
        output: its text; None where the call failed.
        call: the record of the call; None where it failed.
        error: what it failed with.
    """

    model: str
    output: str | None = None
    call: Call | None = None
    error: OpenAIError | None = None

    @property
    def usage(self) -> Usage:
        """Its tokens."""
        return Usage() if self.call is None else self.call.usage

    @property
    def latency_s(self) -> float | None:
        """Seconds it took."""
        return None if self.call is None else self.call.latency_s

    @property
    def cost(self) -> Decimal | None:
        """Dollars it cost: nothing, where it was refused; None where that is unknown."""
        if self.call is not None:
            return self.call.cost.total
        refused = isinstance(self.error, APIStatusError | ConfigurationError | CircuitOpenError)
        return Decimal(0) if refused else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTargetResult:
    """What a draft and a target made of one prompt.

    Attributes:
        draft, target: see :class:`StageResult`.
        depth: the most segments that the draft was given.
        handed: how the target had the draft: as ``prediction``, in the ``conversation``, or not at all.
        reason: why so, in words.
        latency_s: seconds from the first call to the last word.
        alone_cost, alone_latency_s: estimates of what the target by itself would have cost and taken for an
            answer of the same length; None where nothing says. Of a target that had the draft in the
            conversation, it is the seconds it took now: it wrote every token by itself.
    """

    draft: StageResult
    target: StageResult
    depth: int
    handed: DraftHandover
    reason: str
    latency_s: float
    alone_cost: Decimal | None = None
    alone_latency_s: float | None = None

    @property
    def output(self) -> str | None:
        """The target's text: the answer. None where the target failed."""
        return self.target.output

    @property
    def error(self) -> OpenAIError | None:
        """What the target failed with; a draft that failed is in ``draft.error``."""
        return self.target.error

    @property
    def cost(self) -> Decimal | None:
        """Dollars of both calls; None where one of them is unknown."""
        draft, target = self.draft.cost, self.target.cost
        return None if draft is None or target is None else draft + target

    @property
    def speculation(self) -> Speculation | None:
        """How much of the draft stands in the answer, by :func:`acceptance`; None where there is no draft.

        Words and signs of texts, which are no tokens that a target has verified: those, where it tells them,
        are in ``target.call.speculation``.
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
        """The share of the draft that stands in the answer, 0 to 1; see :func:`acceptance`."""
        told = self.speculation
        return None if told is None else told.acceptance_rate


def acceptance(draft: str, output: str) -> float | None:
    """Return the share of a draft that is found, in order, in an output: LCS(draft, output) / len(draft).

    Both are split into words and single signs; LCS is the length of their longest common subsequence. It
    measures texts. It is not the acceptance rate of speculative decoding, in which a target verifies tokens.

    Returns:
        From 0 to 1; None for a draft without a word or sign.
    """
    drafted = split_words(draft)
    return lcs_length(drafted, split_words(output)) / len(drafted) if drafted else None


def split_words(text: str) -> list[str]:
    """Return the words and signs of a text."""
    return _TOKEN.findall(text)


def lcs_length(draft: Sequence[str], output: Sequence[str]) -> int:
    """Return how many items of a draft are found in order in an output, others left out between them.

    The length of the longest common subsequence, a whole row at a time: H. Hyyrö, "Bit-parallel LCS-length
    computation revisited" (2004).
    """
    places: dict[str, int] = {}
    for i, item in enumerate(draft):
        places[item] = places.get(item, 0) | 1 << i
    full = (1 << len(draft)) - 1
    row = full
    for item in output:
        hit = row & places.get(item, 0)
        row = ((row + hit) | (row - hit)) & full
    return len(draft) - row.bit_count()
