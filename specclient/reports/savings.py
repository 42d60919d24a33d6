"""Turn the rows of speculated calls into what speculation saved: measured against the target alone.

What the target would have cost and taken alone was not measured, so each such figure rests on an assumption,
which stands beside it. Where nothing supports a figure it is None, and the assumption says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any, Literal

from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow

__all__ = ["Saving", "savings"]

SavingsBy = Literal["pair", "strategy"]

#: Calls without speculation that a route must have answered before its speed alone counts as known.
MIN_BASELINE_CALLS = 3

#: Strategies that are played in calls of their own; ``direct`` sends the request as it is.
_PLAYED = frozenset({"prediction", "prefill", "remote"})
#: Kinds of cost that rise with the engine's seconds.
_TIMED = frozenset({"engine", "electricity"})

_SAME_ANSWER = "same tokens at the price charged, without the rejected prediction"
_SAME_PRICE = "billed by the token: a server's own speculation changes no price"
_NO_HISTORY = (
    "each verification pass as long as a plain step, drafting free: the most that it can have saved; "
    "run the target with method=plain to measure"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What speculation did to the calls of one group.

    Attributes:
        group: the pair as ``target+draft``, the target's route where no draft's is known, or the strategy.
        calls: speculated calls; one that was played in parts counts once.
        acceptance_rate, mean_accepted_length: over the calls that know them.
        cost_calls: those of the calls whose cost can be compared; ``cost_nano`` is what they cost, and
            ``alone_nano`` what the target alone would have, under ``cost_assumption``.
        latency_calls, latency_s, alone_s, latency_assumption: the same of their seconds.
        estimated: a price or a token count behind ``cost_nano`` is an estimate.
    """

    group: str
    calls: int
    acceptance_rate: float | None = None
    mean_accepted_length: float | None = None
    cost_calls: int = 0
    cost_nano: int | None = None
    alone_nano: int | None = None
    cost_assumption: str = ""
    latency_calls: int = 0
    latency_s: float | None = None
    alone_s: float | None = None
    latency_assumption: str = ""
    estimated: bool = False

    @property
    def saved(self) -> Decimal | None:
        """Dollars saved; below zero where speculation cost more than it saved."""
        if self.cost_nano is None or self.alone_nano is None:
            return None
        return Decimal(self.alone_nano - self.cost_nano).scaleb(-9)

    @property
    def saved_s(self) -> float | None:
        """Seconds saved over all of ``latency_calls``."""
        return None if self.latency_s is None or self.alone_s is None else self.alone_s - self.latency_s

    @property
    def speedup(self) -> float | None:
        """How many times as long the target alone would have taken."""
        return self.alone_s / self.latency_s if self.alone_s is not None and self.latency_s else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as values that JSON can hold; dollars exact, as text."""
        figures: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        saved = self.saved
        return {
            **figures,
            "saved": None if saved is None else f"{saved:f}",
            "saved_s": self.saved_s,
            "speedup": self.speedup,
        }


def savings(rows: Iterable[LedgerRow], by: SavingsBy = "pair") -> tuple[Saving, ...]:
    """Compare speculated calls with their targets alone, the dearest group first.

    Hosted: a call with a prediction costs what it did, less the rejected tokens; its seconds are compared
    with the median seconds per token of the same route's own calls without speculation, of which at least
    :data:`MIN_BASELINE_CALLS` must be among the rows. In the engine: the same, by any route of the same
    target, or else,
    from its own passes, the most that it can have saved.

    Args:
        rows: speculated calls and others; those others are the targets' history.
        by: what to group by.

    Raises:
        ConfigurationError: another name than ``pair`` or ``strategy``.
    """
    if by not in ("pair", "strategy"):
        raise ConfigurationError(f"cannot group savings by {by!r}; use 'pair' or 'strategy'")
    history: dict[str, list[float]] = {}
    played: dict[str, list[LedgerRow]] = {}
    for row in rows:
        if row.parent is not None and row.strategy in _PLAYED:
            played.setdefault(row.parent, []).append(row)
        elif _speculated(row):
            played[row.id] = [row]
        elif row.status == "ok" and row.completion_tokens and _serving_s(row) > 0:
            for name in {row.route, row.pair or row.route}:  # an engine's target has more routes than one
                history.setdefault(name, []).append(_serving_s(row) / row.completion_tokens)
    speeds = {
        route: (median(each), len(each)) for route, each in history.items() if len(each) >= MIN_BASELINE_CALLS
    }
    groups: dict[str, _SavingsBuilder] = {}
    for parts in played.values():
        call = _SpeculatedCall.of(parts)
        name = call.pair if by == "pair" else call.kind
        groups.setdefault(name, _SavingsBuilder()).add(call, speeds)
    found = [group.saving(name) for name, group in groups.items()]
    return tuple(sorted(found, key=lambda each: (-(each.cost_nano or 0), each.group)))


def _speculated(row: LedgerRow) -> bool:
    """Tell whether drafts of any kind were verified for this call, as far as its answer tells."""
    told = row.speculation or {}
    return bool(
        row.drafted
        or row.predicted_accepted
        or row.predicted_rejected
        or told.get("acceptance_rate")
        or (told.get("mean_accepted_length") or 1) > 1
    )


def _serving_s(row: LedgerRow) -> float:
    return row.latency_s if row.engine_s is None else row.engine_s


@dataclass(frozen=True, slots=True)
class _SpeculatedCall:
    """One speculated call: the row of the target that answered it, and those of what else it took."""

    rows: Sequence[LedgerRow]
    answer: LedgerRow
    pair: str
    kind: str

    @classmethod
    def of(cls, parts: Sequence[LedgerRow]) -> _SpeculatedCall:
        rows = sorted(parts, key=lambda row: (row.started_at, row.id))
        pair = next((row.pair for row in rows if row.pair), None)
        served = [row for row in rows if row.purpose != "draft"] or rows
        target = pair.partition("+")[0] if pair else served[-1].route
        answer = next((row for row in reversed(rows) if row.route == target), rows[-1])
        draft = next((row.route for row in rows if row.route != answer.route), None)
        if pair is None:
            pair = answer.route if draft is None else f"{answer.route}+{draft}"
        kind = answer.strategy if answer.strategy in _PLAYED else answer.method
        return cls(rows, answer, pair, kind or "the server's own")

    @property
    def cost_nano(self) -> int | None:
        nanos = [row.cost_nano for row in self.rows]
        return None if any(nano is None for nano in nanos) else sum(nano or 0 for nano in nanos)

    @property
    def latency_s(self) -> float:
        """Seconds from the first start to the last end; the engine's own where it alone served the call."""
        if len(self.rows) == 1:
            return _serving_s(self.answer)
        begun = self.rows[0].started_at
        return max((row.started_at - begun).total_seconds() + row.latency_s for row in self.rows)

    @property
    def unknown_answer(self) -> str | None:
        """What keeps the target's own answer from being known by its row; None where it is."""
        row = self.answer
        if any(each.status != "ok" for each in self.rows):
            return "not compared: did not end well"
        strategy = row.strategy if row.parent is not None else None
        if strategy in ("prefill", "remote"):
            return f"the parts of {strategy} do not tell how long the answer was"
        if len([each for each in self.rows if each.route == row.route]) > 1 and len(self.rows) > 1:
            return "the target was asked more than once"
        return None if row.completion_tokens else "its tokens are unknown"

    @property
    def tokens(self) -> int:
        """Tokens of the answer; those rejected are billed within ``completion_tokens`` by some vendors."""
        billed = self.answer.predicted_rejected or 0 if _billed_rejected(self.answer) else 0
        return max((self.answer.completion_tokens or 0) - billed, 0)


def _billed_rejected(row: LedgerRow) -> bool:
    return "rejected_prediction" in row.cost_by_kind


@dataclass(slots=True)
class _SavingsBuilder:
    calls: int = 0
    cost_calls: int = 0
    cost_nano: int = 0
    alone_nano: int = 0
    latency_calls: int = 0
    latency_s: float = 0.0
    alone_s: float = 0.0
    estimated: bool = False
    drafted: int = 0
    accepted: int = 0
    kept: int = 0
    passes: int = 0
    on_cost: dict[str, int] = field(default_factory=dict)
    on_latency: dict[str, int] = field(default_factory=dict)
    without_cost: dict[str, int] = field(default_factory=dict)
    without_latency: dict[str, int] = field(default_factory=dict)

    def add(self, call: _SpeculatedCall, speeds: dict[str, tuple[float, int]]) -> None:
        self.calls += 1
        self.estimated |= any(row.cost_estimated or row.usage_estimated for row in call.rows)
        for row in call.rows:
            if row.drafted is not None and row.accepted is not None:
                self.drafted, self.accepted = self.drafted + row.drafted, self.accepted + row.accepted
            if row.accepted is not None and row.steps:
                self.kept, self.passes = self.kept + row.accepted, self.passes + row.steps
        alone_s, why = _alone_s(call, speeds)
        if alone_s is None:
            _count(self.without_latency, why)
        else:
            _count(self.on_latency, why)
            self.latency_calls += 1
            self.latency_s += call.latency_s
            self.alone_s += alone_s
        ratio = alone_s / call.latency_s if alone_s is not None and call.latency_s else None
        alone_nano, why = _alone_nano(call, ratio)
        if alone_nano is None or call.cost_nano is None:
            _count(self.without_cost, why)
        else:
            _count(self.on_cost, why)
            self.cost_calls += 1
            self.cost_nano += call.cost_nano
            self.alone_nano += alone_nano

    def saving(self, name: str) -> Saving:
        costs, times = self.cost_calls > 0, self.latency_calls > 0
        return Saving(
            group=name,
            calls=self.calls,
            acceptance_rate=self.accepted / self.drafted if self.drafted else None,
            mean_accepted_length=1 + self.kept / self.passes if self.passes else None,
            cost_calls=self.cost_calls,
            cost_nano=self.cost_nano if costs else None,
            alone_nano=self.alone_nano if costs else None,
            cost_assumption=_words(self.on_cost, self.without_cost),
            latency_calls=self.latency_calls,
            latency_s=self.latency_s if times else None,
            alone_s=self.alone_s if times else None,
            latency_assumption=_words(self.on_latency, self.without_latency),
            estimated=self.estimated,
        )


def _alone_s(call: _SpeculatedCall, speeds: dict[str, tuple[float, int]]) -> tuple[float | None, str]:
    """Return the seconds that the target alone would have taken, and by what assumption, or why not."""
    if (unknown := call.unknown_answer) is not None:
        return None, unknown
    row = call.answer
    target = (row.pair or row.route).partition("+")[0]
    name = row.route if row.route in speeds else target
    if (known := speeds.get(name)) is not None:
        seconds, calls = known
        return (
            call.tokens * seconds,
            f"{1 / seconds:.3g} tokens/s, the median of {calls} calls of {name} without speculation",
        )
    mean = (row.speculation or {}).get("mean_accepted_length")
    if mean is None and row.steps and row.accepted is not None:
        mean = 1 + row.accepted / row.steps
    if row.engine_s is not None and mean is not None and len(call.rows) == 1:
        return row.engine_s * mean, _NO_HISTORY
    return None, f"fewer than {MIN_BASELINE_CALLS} calls of {row.route} without speculation to compare with"


def _alone_nano(call: _SpeculatedCall, ratio: float | None) -> tuple[int | None, str]:
    """Return the nano-dollars that the target alone would have cost, and by what assumption, or why not."""
    row, kinds = call.answer, call.answer.cost_by_kind
    if call.cost_nano is None or row.cost_nano is None:
        return None, "its cost is unknown"
    if (unknown := call.unknown_answer) is not None:
        return None, unknown
    if "reported" in kinds and row.predicted_rejected:
        return None, "the provider tells one sum, which holds the rejected tokens"
    timed = sum(nano for kind, nano in kinds.items() if kind in _TIMED)
    alone = row.cost_nano - kinds.get("rejected_prediction", 0)
    if timed:
        if ratio is None:
            return None, "billed by the second, and the target's own speed is unknown"
        return alone - timed + round(timed * ratio), "billed by the second: in proportion to the seconds"
    return alone, _SAME_ANSWER if row.predicted_rejected or len(call.rows) > 1 else _SAME_PRICE


def _count(reasons: dict[str, int], why: str) -> None:
    reasons[why] = reasons.get(why, 0) + 1


def _words(grounds: dict[str, int], lacking: dict[str, int]) -> str:
    """Return the grounds of a figure, then for how many calls there are none, and why."""
    missing = [f"{count} without: {why}" if grounds else why for why, count in lacking.items()]
    return "; ".join([*grounds, *missing])
