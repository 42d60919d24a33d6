"""Turn calls, added one after the other, into the figures of their group: exact sums, and percentiles."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial

from specclient.ledger import totals as kept_sums
from specclient.ledger.row import LedgerRow
from specclient.ledger.schema import LATENCY_CLASSES, SUM_NAMES

__all__ = ["ReportLine", "TotalsBuilder", "percentile"]

#: As in the roll-up: the longest time that is told from longer ones, which no call takes.
_LONGEST_US = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    """The sum of a group of calls. A figure that none of its calls knows is None.

    Attributes:
        group: the group's values, in the order of the report's ``by``; "" where a call has none.
        calls: rows of the ledger, each of them billed once. A call that a strategy played is told by its
            parts, one row each, and by nothing else.
        parts: those of them that are a part of another call.
        errors: calls that failed.
        tokens_in, tokens_out: over the calls that know them; ``tokens_cached`` and ``tokens_reasoning`` are
            parts of these.
        predicted_accepted, predicted_rejected: tokens of predictions that callers sent.
        drafted, accepted, acceptance_rate: of draft models, over the calls that know both
            counts.
        mean_accepted_length: 1 + accepted / steps, over the calls that know both.
        cost_nano: nano-dollars of the priced calls.
        unpriced: calls whose cost is unknown: no price is, or no answer ever came. What was refused, or
            never sent, cost nothing, and that is known. ``unanswered`` of them failed before anything was
            counted.
        estimated: a price or a token count behind ``cost_nano`` is an estimate.
        latency_p50_s, latency_p95_s, latency_p99_s: of the calls that succeeded.
        tokens_per_s: generated tokens over the seconds of the calls that know them.
    """

    group: tuple[str, ...]
    calls: int = 0
    parts: int = 0
    errors: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    predicted_accepted: int = 0
    predicted_rejected: int = 0
    drafted: int | None = None
    accepted: int | None = None
    acceptance_rate: float | None = None
    mean_accepted_length: float | None = None
    cost_nano: int = 0
    unpriced: int = 0
    unanswered: int = 0
    estimated: bool = False
    latency_p50_s: float | None = None
    latency_p95_s: float | None = None
    latency_p99_s: float | None = None
    tokens_per_s: float | None = None

    @property
    def cost(self) -> Decimal:
        """Dollars of the priced calls."""
        return Decimal(self.cost_nano).scaleb(-9)


@dataclass(slots=True)
class TotalsBuilder:
    """The figures of one group while its calls are added; as :class:`specclient.ledger.totals.CallTotals`,
    but for:

    Attributes:
        latencies: of the calls that succeeded, seconds.
        classes: their numbers by class, where they come from a roll-up.
    """

    calls: int = 0
    parts: int = 0
    errors: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    predicted_accepted: int = 0
    predicted_rejected: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    kept: int = 0
    passes: int = 0
    cost_nano: int = 0
    unpriced: int = 0
    unanswered: int = 0
    estimated: int = 0
    timed_tokens: int = 0
    timed_us: int = 0
    latencies: array[float] = field(default_factory=lambda: array("d"))
    classes: list[int] = field(default_factory=lambda: [0] * LATENCY_CLASSES)

    def add(self, row: LedgerRow) -> None:
        """Add one call."""
        self.calls += 1
        self.parts += row.parent is not None
        self.errors += row.status == "error"
        self.tokens_in += row.prompt_tokens or 0
        self.tokens_out += row.completion_tokens or 0
        self.tokens_cached += row.cached_tokens or 0
        self.tokens_reasoning += row.reasoning_tokens or 0
        self.predicted_accepted += row.predicted_accepted or 0
        self.predicted_rejected += row.predicted_rejected or 0
        if row.accepted is not None:
            if row.drafted is not None:
                self.drafts += 1
                self.drafted += row.drafted
                self.accepted += row.accepted
            if row.steps:
                self.kept += row.accepted
                self.passes += row.steps
        if row.cost_nano is not None:
            self.cost_nano += row.cost_nano
            self.estimated += row.cost_estimated or row.usage_estimated
        else:
            self.unpriced += 1
            counted = row.prompt_tokens is not None or row.completion_tokens is not None
            self.unanswered += row.status == "error" and not counted
        if row.status == "ok":
            self.latencies.append(row.latency_s)
        seconds = row.latency_s if row.engine_s is None else row.engine_s
        if row.completion_tokens and (took_us := _us(seconds)) > 0:
            self.timed_tokens += row.completion_tokens
            self.timed_us += took_us

    def join(self, other: TotalsBuilder | kept_sums.CallTotals) -> None:
        """Add the calls of another group."""
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if isinstance(other, TotalsBuilder):
            self.latencies.extend(other.latencies)
        classes = other.classes if isinstance(other, TotalsBuilder) else other.latencies
        self.classes = [one + more for one, more in zip(self.classes, classes, strict=True)]

    def line(self, group: tuple[str, ...]) -> ReportLine:
        """Return the figures."""
        share = self._share()
        return ReportLine(
            group=group,
            calls=self.calls,
            parts=self.parts,
            errors=self.errors,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            tokens_cached=self.tokens_cached,
            tokens_reasoning=self.tokens_reasoning,
            predicted_accepted=self.predicted_accepted,
            predicted_rejected=self.predicted_rejected,
            drafted=self.drafted if self.drafts else None,
            accepted=self.accepted if self.drafts else None,
            acceptance_rate=self.accepted / self.drafted if self.drafted else None,
            mean_accepted_length=1 + self.kept / self.passes if self.passes else None,
            cost_nano=self.cost_nano,
            unpriced=self.unpriced,
            unanswered=self.unanswered,
            estimated=bool(self.estimated),
            latency_p50_s=share(0.5),
            latency_p95_s=share(0.95),
            latency_p99_s=share(0.99),
            tokens_per_s=1e6 * self.timed_tokens / self.timed_us if self.timed_tokens else None,
        )

    def _share(self) -> Callable[[float], float | None]:
        """Return what tells the latency within which a share of the calls ended."""
        if any(self.classes):
            none = [0] * (len(SUM_NAMES) - LATENCY_CLASSES)
            return kept_sums.CallTotals.of((), [*none, *self.classes]).latency_s
        return partial(percentile, sorted(self.latencies))


_COUNTED = tuple(name for name in TotalsBuilder.__slots__ if name not in ("latencies", "classes"))


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value that this share of them is at most, between neighbours in proportion.

    Args:
        ordered: ascending; none gives None.
    """
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _us(seconds: float) -> int:
    """Return whole microseconds, whose sums are exact in any order, as the roll-up's."""
    return round(min(max(seconds, 0.0) * 1e6, _LONGEST_US))
