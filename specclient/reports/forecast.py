"""A forecast of a month's cost, from its days so far and the four weeks before today."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from statistics import fmean
from typing import Any

from specclient.reports.daily_costs import DAY, WEEK, daily_costs
from specclient.reports.reader import LedgerReader

__all__ = ["Forecast", "forecast_month"]

_DAYS = 4 * WEEK
#: Quantile of the normal distribution for an interval that nine months in ten stay within.
_Z = 1.645


@dataclass(frozen=True, slots=True)
class Forecast:
    """The cost of a month, in dollars.

    Attributes:
        month: such as ``2026-11``.
        spent: from the month's first day until now.
        low, likely, high: of the whole month; the first and the last are the ends of a 90 % interval.
        days: complete days that the forecast is based on.
        left: days that are left, with a fraction.
    """

    month: str
    spent: Decimal
    low: Decimal
    likely: Decimal
    high: Decimal
    days: int
    left: float

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as JSON; dollars are texts."""
        money = {name: str(getattr(self, name)) for name in ("spent", "low", "likely", "high")}
        return {"month": self.month, **money, "days": self.days, "days_left": round(self.left, 3)}


def forecast_month(ledger: LedgerReader, *, now: datetime) -> Forecast:
    """Return the forecast of the month of ``now``, in UTC.

    Each day that is left is expected to cost as much as the mean of the same day of the week in the last
    four weeks, or of all days if there are fewer than two weeks. The interval follows from the variance of
    the days and of these means; it does not know of a trend.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    now = now.astimezone(UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = today.replace(day=1)
    end = (first + timedelta(days=32)).replace(day=1)
    spent = sum((totals.cost_nano for totals in ledger.rollup(first, now)), 0)
    past = [float(cost) for cost in daily_costs(ledger, today, _DAYS).get((), ())]
    while past and not past[-1]:  # before the first call
        past.pop()
    so_far = Decimal(spent).scaleb(-9)
    left = (end - now) / DAY
    more, error = _rest(past, left) if past else (0.0, 0.0)
    ends = (max(more - _Z * error, 0.0), more, more + _Z * error)
    low, likely, high = (so_far + Decimal(repr(each)).quantize(Decimal("1e-9")) for each in ends)
    return Forecast(first.strftime("%Y-%m"), so_far, low, likely, high, len(past), left)


def _rest(past: Sequence[float], left: float) -> tuple[float, float]:
    """Return the expected dollars of the days that are left, and the standard error.

    Args:
        past: dollars of complete days, yesterday first.
        left: days, of which today's rest is the fraction.
    """
    step = WEEK if len(past) >= 2 * WEEK else 1
    alike = [past[place::step] for place in range(step)]
    means = [fmean(days) for days in alike]
    rest = [cost - means[place % step] for place, cost in enumerate(past)]
    variance = math.fsum(each * each for each in rest) / max(len(past) - step, 1)
    weights = [0.0] * step  # days that are left, by day of the week
    whole = int(left)
    for ahead in range(whole + 1):  # today is 0 days ahead, and a week after past[6]
        weights[(step - 1 - ahead) % step] += left - whole if ahead == 0 else 1.0
    expected = math.fsum(weight * mean for weight, mean in zip(weights, means, strict=True))
    uncertain = left + math.fsum(weight**2 / len(days) for weight, days in zip(weights, alike, strict=True))
    return expected, math.sqrt(variance * uncertain)
