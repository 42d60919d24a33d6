"""Costs of spans of 24 hours by group, and how days of the week usually differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from statistics import median

from specclient.ledger.figures import GroupKey
from specclient.ledger.totals import ROLLUP_GROUPS
from specclient.reports.groups import group_readers
from specclient.reports.reader import LedgerReader

__all__ = ["DAY", "WEEK", "daily_costs", "typical_cost"]

DAY, WEEK = timedelta(days=1), 7


def daily_costs(
    ledger: LedgerReader, until: datetime, days: int, by: Sequence[str] = ()
) -> dict[GroupKey, list[Decimal]]:
    """Return the dollars of each group in spans of 24 hours, the newest first.

    Calls of unknown cost count as 0.

    Args:
        until: the end of the newest span; a whole hour.
        days: the number of spans.
        by: the names to group by; see :data:`specclient.reports.report.GROUPS`.

    Raises:
        ConfigurationError: an unknown group name.
        LedgerError: the ledger cannot be read.
    """
    found: dict[GroupKey, list[int]] = defaultdict(lambda: [0] * days)
    for at, group, nano in _costs(ledger, until - days * DAY, until, by):
        found[group][(until - at - timedelta(microseconds=1)) // DAY] += nano
    return {group: [Decimal(nano).scaleb(-9) for nano in sums] for group, sums in found.items()}


def _costs(
    ledger: LedgerReader, since: datetime, until: datetime, by: Sequence[str]
) -> Iterator[tuple[datetime, GroupKey, int]]:
    """Yield a time, a group and nano-dollars: of each hour, or of each call where hours lack the group."""
    readers = group_readers(by)
    if all(name in ROLLUP_GROUPS for name in by):
        for totals in ledger.rollup(since, until, by=("hour", *by)):
            hour, *group = totals.group
            yield datetime.fromisoformat(hour).replace(tzinfo=UTC), tuple(group), totals.cost_nano
        return
    for row in ledger.iterate(since, until):
        yield row.started_at, tuple(read(row) for read in readers), row.cost_nano or 0


def typical_cost(costs: Sequence[Decimal]) -> tuple[Mapping[int, Decimal], Decimal]:
    """Return the usual cost of each day of the week, and how much days deviate from it.

    Medians are used, so that a single expensive day changes neither.

    Args:
        costs: of consecutive days, the newest first; two weeks or more for the days of the week to differ.

    Returns:
        The median by the distance in days modulo 7 (0 is the weekday of the newest), and the standard
        deviation of the rest, estimated as 1.4826 × its median absolute value.
    """
    step = WEEK if len(costs) >= 2 * WEEK else 1
    usual = {place: median(costs[place % step :: step]) for place in range(WEEK)}
    rest = median(abs(cost - usual[place % WEEK]) for place, cost in enumerate(costs))
    return usual, Decimal("1.4826") * rest
