"""Groups of calls that cost much more in the last day than in the four weeks before.

:func:`find_anomalies` compares groups by any names; :func:`find_alarms` models, keys of a server, and tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from specclient.ledger.figures import GroupKey
from specclient.reports.daily_costs import DAY, WEEK, daily_costs, typical_cost
from specclient.reports.reader import LedgerReader

__all__ = ["KEY_TAG", "MOST_VALUES", "AlarmSource", "Anomaly", "find_alarms", "find_anomalies"]

#: The tag with the name of a server's key.
KEY_TAG = "key"
#: Values of a tag beyond which it is left out.
MOST_VALUES = 1000
_WEEKS = 4
_DAYS = 1 + _WEEKS * WEEK
#: Standard deviations, and the share of the usual cost, that a day must be above it.
_DEVIATIONS, _SHARE = 5, Decimal("0.5")


class AlarmSource(LedgerReader, Protocol):
    """The methods of a ledger that alarms read."""

    def tag_costs(
        self, since: datetime, until: datetime
    ) -> Iterator[tuple[datetime, Mapping[str, str], int]]:
        """Yield hours, the tags of calls that started in them, and their nano-dollars."""
        ...


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
    end = _end_of(now)
    return _unusual(daily_costs(ledger, end, _DAYS, by), least)


def find_alarms(
    ledger: AlarmSource, *, now: datetime, least: Decimal = Decimal(1)
) -> dict[str, list[Anomaly]]:
    """Return what :func:`find_anomalies` finds for models, keys and tags, by ``model``, ``key`` and ``tag``.

    A key is the value of the tag that a server gives to calls; other tags are compared as ``NAME=VALUE``.
    Names of tags with more than :data:`MOST_VALUES` values, such as ids of requests, are left out.

    Args:
        now, least: see :func:`find_anomalies`.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    end = _end_of(now)
    begin = end - _DAYS * DAY
    named: dict[str, dict[str, list[int]]] = {}
    for at, tags, nano in ledger.tag_costs(begin, end):
        place = (end - at - timedelta(microseconds=1)) // DAY
        for name, value in tags.items():
            values = named.setdefault(name, {})
            if value in values or len(values) <= MOST_VALUES:
                values.setdefault(value, [0] * _DAYS)[place] += nano
    keys, tagged = dict[GroupKey, list[Decimal]](), dict[GroupKey, list[Decimal]]()
    for name, values in named.items():
        if len(values) > MOST_VALUES:
            continue
        for value, sums in values.items():
            into, group = (keys, (value,)) if name == KEY_TAG else (tagged, (f"{name}={value}",))
            into[group] = [Decimal(nano).scaleb(-9) for nano in sums]
    by_model = daily_costs(ledger, end, _DAYS, ("model",))
    known = _known_days(by_model)
    return {
        "model": _unusual(by_model, least),
        "key": _unusual(keys, least, known),
        "tag": _unusual(tagged, least, known),
    }


def _end_of(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _known_days(groups: Mapping[GroupKey, Sequence[Decimal]]) -> int:
    """Return the number of days before the last one since the first call."""
    return max((place for costs in groups.values() for place, cost in enumerate(costs) if cost), default=0)


def _unusual(
    groups: Mapping[GroupKey, Sequence[Decimal]], least: Decimal, known: int | None = None
) -> list[Anomaly]:
    """Return the unusual groups, the largest excess first.

    Args:
        groups: dollars of days, the newest first.
        known: days since the first call of the ledger; None for that of these groups.
    """
    known = _known_days(groups) if known is None else known
    if known < WEEK:
        return []
    found = []
    for group, costs in groups.items():
        usual, deviation = typical_cost(costs[1 : known + 1])
        expected = usual[WEEK - 1]  # a week before the last day
        if costs[0] - expected > max(_DEVIATIONS * deviation, _SHARE * expected, least):
            found.append(Anomaly(group, costs[0], expected, deviation))
    return sorted(found, key=lambda each: each.usual - each.cost)
