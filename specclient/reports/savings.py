"""Savings of speculation: the cost and time of speculated calls, compared with the target alone.

The cost and time of the target alone were not measured, so each estimate comes with its assumption. If
nothing supports an estimate it is None, and the assumption says what is missing.
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

#: Number of calls without speculation after which a route's own speed counts as known.
MIN_BASELINE_CALLS = 3

#: Strategies that make several calls for one; ``direct`` sends the request unchanged.
_MULTI_CALL_STRATEGIES = frozenset({"prediction", "prefill", "remote"})
#: Kinds of cost that are proportional to the engine's seconds.
_TIMED = frozenset({"engine", "electricity"})

_SAME_ANSWER = "same tokens at the price charged, without the rejected prediction"
_SAME_PRICE = "billed by the token; a server's own speculation does not change the price"
_NO_HISTORY = (
    "if a verification pass takes as long as a plain step and drafting no time: an upper bound of the "
    "savings; run the target with method=plain to measure"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The savings of speculation in the calls of one group.

    Attributes:
        group: the pair as ``target+draft``, the target's route if no draft's is known, or the strategy.
        calls: speculated calls; one that was made in several parts counts once.
        acceptance_rate, mean_accepted_length: over the calls that know them.
        cost_calls: the calls whose cost can be compared; ``cost_nano`` is their cost, and ``alone_nano`` the
            cost of the target alone, under ``cost_assumption``.
        latency_calls, latency_s, alone_s, latency_assumption: the same for their seconds.
        estimated: whether a price or token count behind ``cost_nano`` is an estimate.
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
        """Dollars saved; negative if speculation cost more than it saved."""
        if self.cost_nano is None or self.alone_nano is None:
            return None
        return Decimal(self.alone_nano - self.cost_nano).scaleb(-9)

    @property
    def saved_s(self) -> float | None:
        """Seconds saved in total by the ``latency_calls``."""
        return None if self.latency_s is None or self.alone_s is None else self.alone_s - self.latency_s

    @property
    def speedup(self) -> float | None:
        """The time of the target alone, divided by the time with speculation."""
        return self.alone_s / self.latency_s if self.alone_s is not None and self.latency_s else None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for JSON; dollars are exact, as text."""
        figures: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        saved = self.saved
        return {
            **figures,
            "saved": None if saved is None else f"{saved:f}",
            "saved_s": self.saved_s,
            "speedup": self.speedup,
        }


def savings(rows: Iterable[LedgerRow], by: SavingsBy = "pair") -> tuple[Saving, ...]:
    """Compare speculated calls with the target alone; the most expensive group comes first.

    Hosted models: without its prediction, a call would have cost the same less the rejected tokens. Its time
    is compared with the median seconds per token of the same route's calls without speculation, of which the
    rows must have at least :data:`MIN_BASELINE_CALLS`. Models of the engine: the same, with any route of the
    same target; otherwise the largest possible saving is computed from the call's own passes.

    Args:
        rows: speculated calls, and other calls, from which the speed of the targets alone follows.
        by: the grouping.

    Raises:
        ConfigurationError: ``by`` is neither ``pair`` nor ``strategy``.
    """
    if by not in ("pair", "strategy"):
        raise ConfigurationError(f"cannot group savings by {by!r}; use 'pair' or 'strategy'")
    history: dict[str, list[float]] = {}
    parts_of_calls: dict[str, list[LedgerRow]] = {}
    for row in rows:
        if row.parent is not None and row.strategy in _MULTI_CALL_STRATEGIES:
            parts_of_calls.setdefault(row.parent, []).append(row)
        elif _speculated(row):
            parts_of_calls[row.id] = [row]
        elif row.status == "ok" and row.completion_tokens and _serving_s(row) > 0:
            for name in {row.route, row.pair or row.route}:  # a target of the engine may have several routes
                history.setdefault(name, []).append(_serving_s(row) / row.completion_tokens)
    speeds = {
        route: (median(each), len(each)) for route, each in history.items() if len(each) >= MIN_BASELINE_CALLS
    }
    groups: dict[str, _SavingsBuilder] = {}
    for parts in parts_of_calls.values():
        call = _SpeculatedCall.of(parts)
        name = call.pair if by == "pair" else call.kind
        groups.setdefault(name, _SavingsBuilder()).add(call, speeds)
    results = [group.saving(name) for name, group in groups.items()]
    return tuple(sorted(results, key=lambda each: (-(each.cost_nano or 0), each.group)))


def _speculated(row: LedgerRow) -> bool:
    """Return whether the response of this call reports verified drafts of any kind."""
    speculation = row.speculation or {}
    return bool(
        row.drafted
        or row.predicted_accepted
        or row.predicted_rejected
        or speculation.get("acceptance_rate")
        or (speculation.get("mean_accepted_length") or 1) > 1
    )


def _serving_s(row: LedgerRow) -> float:
    return row.latency_s if row.engine_s is None else row.engine_s


@dataclass(frozen=True, slots=True)
class _SpeculatedCall:
    """One speculated call: the row of the target's answer, and all rows of the call."""

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
        kind = answer.strategy if answer.strategy in _MULTI_CALL_STRATEGIES else answer.method
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
        """Why the target's answer is not known from its row; None if it is known."""
        row = self.answer
        if any(each.status != "ok" for each in self.rows):
            return "not compared: it failed or was cancelled"
        strategy = row.strategy if row.parent is not None else None
        if strategy in ("prefill", "remote"):
            return f"the parts of {strategy} do not say how long the answer was"
        if len([each for each in self.rows if each.route == row.route]) > 1 and len(self.rows) > 1:
            return "the target was called more than once"
        return None if row.completion_tokens else "its tokens are unknown"

    @property
    def tokens(self) -> int:
        """Tokens of the answer. Some vendors include rejected tokens in ``completion_tokens``."""
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
            cost_assumption=_assumption_text(self.on_cost, self.without_cost),
            latency_calls=self.latency_calls,
            latency_s=self.latency_s if times else None,
            alone_s=self.alone_s if times else None,
            latency_assumption=_assumption_text(self.on_latency, self.without_latency),
            estimated=self.estimated,
        )


def _alone_s(call: _SpeculatedCall, speeds: dict[str, tuple[float, int]]) -> tuple[float | None, str]:
    """Return the seconds of the target alone with the assumption, or None with the reason."""
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
    """Return the nano-dollars of the target alone with the assumption, or None with the reason."""
    row, kinds = call.answer, call.answer.cost_by_kind
    if call.cost_nano is None or row.cost_nano is None:
        return None, "its cost is unknown"
    if (unknown := call.unknown_answer) is not None:
        return None, unknown
    if "reported" in kinds and row.predicted_rejected:
        return None, "the provider reports one sum, which includes the rejected tokens"
    timed = sum(nano for kind, nano in kinds.items() if kind in _TIMED)
    alone = row.cost_nano - kinds.get("rejected_prediction", 0)
    if timed:
        if ratio is None:
            return None, "billed by the second, and the target's own speed is unknown"
        return alone - timed + round(timed * ratio), "billed by the second: in proportion to the seconds"
    return alone, _SAME_ANSWER if row.predicted_rejected or len(call.rows) > 1 else _SAME_PRICE


def _count(reasons: dict[str, int], why: str) -> None:
    reasons[why] = reasons.get(why, 0) + 1


def _assumption_text(grounds: dict[str, int], lacking: dict[str, int]) -> str:
    """Return the assumptions of an estimate, then how many calls have none, and why."""
    missing = [f"{count} without: {why}" if grounds else why for why, count in lacking.items()]
    return "; ".join([*grounds, *missing])
