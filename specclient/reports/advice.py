"""Advice from a ledger: changes that would have saved money, each with its sum and what it assumes.

The sums are computed call by call with the rates of the call's own date. A call whose recorded cost does not
follow from its recorded tokens (media, tools, a charge that the vendor reported) is left out where a change
needs a new price. Savings of several changes of the same calls do not add up.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from specclient.ledger.row import LedgerRow
from specclient.prices.billing import BillingContext, bill
from specclient.prices.prices import LOCAL, Prices
from specclient.prices.rates import Quote
from specclient.types.usage import NANO, Usage

__all__ = ["Advice", "CallPrices", "advise"]

#: Calls of one route in an hour, neither streamed nor in a session, from which on they count as a job.
JOB_CALLS = 100
#: Tiers that serve a job later, and for how long its answers may take.
_LATER = {"batch": "within 24 hours", "flex": "more slowly, with a retry when capacity is short"}
#: Time in which providers keep an unused prompt in their caches (OpenAI and Anthropic, "Prompt caching").
CACHE_LIFETIME = timedelta(minutes=5)
#: Tokens of the shortest prompt that they keep.
LEAST_CACHED = 1024
#: Calls of a local model from which on its cost per token counts as known.
LEAST_MEASURED = 20
_TIER = re.compile(r"service tier ([\w-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change.

    Attributes:
        route: the calls that it concerns, as ``provider/model``.
        change: what to do.
        assumption: what the sum assumes.
        calls: number of calls.
        cost_nano: their cost in nano-dollars.
        saved_nano: what they would have cost less.
    """

    route: str
    change: str
    assumption: str
    calls: int
    cost_nano: int
    saved_nano: int

    @property
    def cost(self) -> Decimal:
        """The cost of the calls in dollars."""
        return Decimal(self.cost_nano).scaleb(-9)

    @property
    def saved(self) -> Decimal:
        """Dollars that they would have cost less."""
        return Decimal(self.saved_nano).scaleb(-9)

    def to_json(self) -> dict[str, Any]:
        """Return the advice as JSON; dollars are texts."""
        return {
            "route": self.route,
            "change": self.change,
            "assumption": self.assumption,
            "calls": self.calls,
            "cost": str(self.cost),
            "saved": str(self.saved),
        }


class CallPrices:
    """The cost that a recorded call would have had under other circumstances.

    Args:
        prices: of the client.
        price_provider_of: returns the vendor whose prices apply at an endpoint, by the endpoint's name.
    """

    def __init__(self, prices: Prices, price_provider_of: Callable[[str], str | None]) -> None:
        self._prices, self._price_provider_of = prices, price_provider_of

    def quote(
        self, row: LedgerRow, *, route: str | None = None, tier: str | None = None, prompt: int = 0
    ) -> Quote | None:
        """Return the rates at the date of a call; None where unknown.

        Args:
            row: the call.
            route: None for its own.
            tier: None for the standard one.
            prompt: tokens of the prompt.
        """
        provider, _, model = (route or row.route).partition("/")
        return self._prices.quote(
            provider,
            model,
            price_provider=self._price_provider_of(provider),
            served=row.served_model if route is None else None,
            at=row.started_at,
            prompt=prompt,
            traffic=tier,
        )

    def cost_nano(
        self, row: LedgerRow, usage: Usage, *, route: str | None = None, tier: str | None = None
    ) -> int | None:
        """Return nano-dollars of a call with other tokens, on another route, or in another tier."""
        quote = self.quote(row, route=route, tier=tier, prompt=usage.prompt or 0)
        if quote is None:
            return None
        total = bill(usage, quote, BillingContext(row.engine_s, row.latency_s)).total
        return None if total is None else round(total * NANO)


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    cost: int = 0
    after: int = 0
    tokens: int = 0

    def add(self, row: LedgerRow, after: int) -> None:
        self.calls += 1
        self.cost += row.cost_nano or 0
        self.after += after
        self.tokens += (row.prompt_tokens or 0) + (row.completion_tokens or 0)

    def merge(self, other: _Sum) -> None:
        self.calls, self.cost, self.after = (
            self.calls + other.calls,
            self.cost + other.cost,
            self.after + other.after,
        )


def advise(
    rows: Iterable[LedgerRow],
    prices: CallPrices,
    alternatives: Callable[[str], Sequence[str]],
    *,
    most: int = 10,
) -> tuple[Advice, ...]:
    """Return the changes that would have saved most, the largest saving first.

    Args:
        rows: calls, oldest first.
        prices: prices them under other circumstances.
        alternatives: returns the routes whose quality is at least that of a route.
        most: the number of changes.
    """
    adviser = _Adviser(prices, alternatives)
    for row in rows:
        if row.cost_nano is not None:
            adviser.add(row)
    found = [each for each in adviser.advice() if each.saved_nano > 0]
    return tuple(sorted(found, key=lambda each: (-each.saved_nano, each.route, each.change))[:most])


@dataclass(slots=True)
class _Adviser:
    """Sums of all changes over the rows seen so far."""

    prices: CallPrices
    alternatives: Callable[[str], Sequence[str]]
    failed: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    tiers: dict[tuple[str, str], _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    rejected: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    predicted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    jobs: dict[tuple[str, str, datetime], _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    models: dict[tuple[str, str], _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    routes: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    measured: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    cached: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    written: set[str] = field(default_factory=set)
    last: dict[tuple[str, str], tuple[LedgerRow, bool]] = field(default_factory=dict)

    def add(self, row: LedgerRow) -> None:
        """Add a priced call."""
        assert row.cost_nano is not None
        if row.status != "ok":
            if row.cost_nano:
                self.failed[row.route].add(row, 0)
            return
        self._add_rejected(row)
        if row.provider == LOCAL:
            self.measured[row.route].add(row, row.cost_nano)
            return
        usage = _usage(row)
        if (tier := _TIER.search(row.price_source)) is not None:
            after = self.prices.cost_nano(row, usage)
            if after is not None:
                self.tiers[row.route, tier[1]].add(row, after)
            return
        if self.prices.cost_nano(row, usage) != row.cost_nano:
            return  # its cost does not follow from these tokens
        self.routes[row.route].add(row, row.cost_nano)
        self._add_job(row, usage)
        self._add_session(row)
        for other in self.alternatives(row.route):
            if not other.startswith(f"{LOCAL}/"):
                after = self.prices.cost_nano(row, _of_other_model(usage), route=other)
                if after is not None:
                    self.models[row.route, other].add(row, after)

    def _add_rejected(self, row: LedgerRow) -> None:
        nano = row.cost_by_kind.get("rejected_prediction", 0)
        if nano:
            self.rejected[row.route].add(row, (row.cost_nano or 0) - nano)
            counts = self.predicted[row.route]
            counts[0] += row.predicted_rejected or 0
            counts[1] += (row.predicted_rejected or 0) + (row.predicted_accepted or 0)

    def _add_job(self, row: LedgerRow, usage: Usage) -> None:
        if row.streamed or row.session is not None:
            return
        hour = row.started_at.replace(minute=0, second=0, microsecond=0)
        for tier in _LATER:
            after = self.prices.cost_nano(row, usage, tier=tier)
            if after is not None:
                self.jobs[row.route, tier, hour].add(row, after)

    def _add_session(self, row: LedgerRow) -> None:
        """Add a call of a session, as if it had read the previous call's prompt from the cache."""
        if row.session is None or row.prompt_tokens is None:
            return
        key = row.route, row.session
        earlier = self.last.get(key)
        self.last[key] = row, False
        if earlier is None or row.started_at - earlier[0].started_at > CACHE_LIFETIME:
            return
        before, counted = earlier
        repeated = min(before.prompt_tokens or 0, row.prompt_tokens)
        quote = self.prices.quote(row, prompt=row.prompt_tokens)
        if repeated < LEAST_CACHED or quote is None or quote.rates.cached_input is None:
            return
        writes = quote.rates.cache_write is not None
        if writes:
            self.written.add(row.route)
        sums = self.cached[row.route]
        if not counted:  # the first call of the session writes its whole prompt
            self._add_cached(sums, before, 0, writes=writes)
        self._add_cached(sums, row, repeated, writes=writes)
        self.last[key] = row, True

    def _add_cached(self, sums: _Sum, row: LedgerRow, repeated: int, *, writes: bool) -> None:
        usage = _usage(row)
        cached = max(usage.cached or 0, repeated)
        own = max(usage.cache_write or 0, (usage.prompt or 0) - cached) if writes else usage.cache_write
        changed = replace(usage, cached=cached, cache_write=own)
        after = self.prices.cost_nano(row, changed)
        sums.add(row, row.cost_nano or 0 if after is None else after)

    def advice(self) -> Iterator[Advice]:
        """Yield all changes, also those that would have saved nothing."""
        for route, sums in self.failed.items():
            yield _advice(route, sums, "find out why calls fail or are cancelled, which are billed, too", "")
        for (route, tier), sums in self.tiers.items():
            yield _advice(route, sums, f"omit service_tier={tier!r}", "if the standard tier is fast enough")
        for route, sums in self.rejected.items():
            rejected, all_tokens = self.predicted[route]
            if 2 * rejected > all_tokens:
                change = (
                    f"send no prediction: {rejected / all_tokens:.0%} of the predicted tokens were rejected"
                )
                yield _advice(route, sums, change, "the same answers, without the time that predictions save")
        for (route, tier), sums in self._later().items():
            change = (
                "send them as a batch file" if tier == "batch" else f"send them with service_tier={tier!r}"
            )
            yield _advice(
                route, sums, change, f"in hours with {JOB_CALLS} calls and more; answers come {_LATER[tier]}"
            )
        for route, sums in self.cached.items():
            change = (
                "keep the beginning of a session's prompts unchanged, so that the provider's cache has it"
            )
            if route in self.written:
                change = "mark the unchanged beginning of a session's prompts with cache_control"
            yield _advice(
                route,
                sums,
                change,
                "if each prompt of a session begins with the one before it, for 5 minutes",
            )
        yield from self._other_models()

    def _later(self) -> Mapping[tuple[str, str], _Sum]:
        found: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
        for (route, tier, _), sums in self.jobs.items():
            if sums.calls >= JOB_CALLS:
                found[route, tier].merge(sums)
        return found

    def _other_models(self) -> Iterator[Advice]:
        """Yield the cheapest other model of each route."""
        for route, own in self.routes.items():
            costs = {
                other: self.models[route, other].after
                for other in self.alternatives(route)
                if (route, other) in self.models and self.models[route, other].calls == own.calls
            }
            for other in self.alternatives(route):
                known = self.measured.get(other)
                if known is not None and known.calls >= LEAST_MEASURED and known.tokens:
                    costs[other] = round(known.cost * own.tokens / known.tokens)
            if costs:
                best = min(costs, key=lambda other: (costs[other], other))
                sums = _Sum(own.calls, own.cost, costs[best])
                how = "at its measured cost per token, " if best in self.measured else ""
                yield _advice(
                    route, sums, f"use {best}", f"{how}with as many tokens; its quality tier is no lower"
                )


def _advice(route: str, sums: _Sum, change: str, assumption: str) -> Advice:
    return Advice(
        route=route,
        change=change,
        assumption=assumption,
        calls=sums.calls,
        cost_nano=sums.cost,
        saved_nano=sums.cost - sums.after,
    )


def _usage(row: LedgerRow) -> Usage:
    """Return the tokens of a call, as far as the ledger has them."""
    return Usage(
        prompt=row.prompt_tokens,
        completion=row.completion_tokens,
        cached=row.cached_tokens,
        cache_write=row.cache_write_tokens,
        reasoning=row.reasoning_tokens,
        rejected_prediction=row.predicted_rejected if "rejected_prediction" in row.cost_by_kind else None,
    )


def _of_other_model(usage: Usage) -> Usage:
    """Return the tokens without those that only the model's own cache and predictions explain."""
    return replace(usage, cached=None, cache_write=None, rejected_prediction=None)
