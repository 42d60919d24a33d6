"""Groups of calls that cost much more in the last day than in the four weeks before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from specclient.reports.daily_costs import WEEK, daily_costs, typical_cost
from specclient.reports.reader import LedgerReader

__all__ = ["Anomaly", "find_anomalies"]

_WEEKS = 4
#: Standard deviations, and the share of the usual cost, that a day must be above it.
_DEVIATIONS, _SHARE = 5, Decimal("0.5")


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A group whose last day was unusually expensive.

    Attributes:
        group: the group's values, in the order of the names that it is grouped by.
        cost: dollars of the last 24 hours.
        usual: the median dollars of this day of the week in the four weeks before; 0 for a new group.
        deviation: the standard deviation of days from their usual cost, in dollars.
    """

    group: tuple[str, ...]
    cost: Decimal
    usual: Decimal
    deviation: Decimal

    def to_json(self, by: Sequence[str]) -> dict[str, Any]:
        """Return the anomaly as JSON; dollars are texts, which are exact."""
        figures = {"cost": str(self.cost), "usual": str(self.usual), "deviation": f"{self.deviation:.9f}"}
        return {**dict(zip(by, self.group, strict=True)), **figures}


def find_anomalies(
    ledger: LedgerReader, by: Sequence[str], *, now: datetime, least: Decimal = Decimal(1)
) -> list[Anomaly]:
    """Return the groups with an unusually expensive last day, the largest excess first.

    A day is unusual if it is more than half, five standard deviations, and ``least`` dollars above the usual
    cost of this day of the week. Days before the first call do not count; with less than a week of calls,
    nothing is unusual.

    Args:
        by: the names to group by; see :data:`specclient.reports.report.GROUPS`.
        now: the last day ends at the beginning of this hour.
        least: dollars.

    Raises:
        ConfigurationError: an unknown group name.
        LedgerError: the ledger cannot be read.
    """
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    found, groups = [], daily_costs(ledger, end, 1 + _WEEKS * WEEK, by)
    known = max((place for costs in groups.values() for place, cost in enumerate(costs) if cost), default=0)
    if known < WEEK:
        return []
    for group, costs in groups.items():
        usual, deviation = typical_cost(costs[1 : known + 1])
        expected = usual[WEEK - 1]  # a week before the last day
        if costs[0] - expected > max(_DEVIATIONS * deviation, _SHARE * expected, least):
            found.append(Anomaly(group, costs[0], expected, deviation))
    return sorted(found, key=lambda each: each.usual - each.cost)
