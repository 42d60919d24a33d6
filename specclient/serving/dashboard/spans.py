"""The time spans that the dashboard offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

__all__ = ["DAY", "DAYS", "MINUTE", "SPANS", "FigureSpan", "day_text"]

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
#: Number of days in the chart of daily costs, including today.
DAYS = 30


@dataclass(frozen=True, slots=True)
class FigureSpan:
    """A time span that ends now and begins at the start of a step.

    Attributes:
        title: its name in a sentence.
        step: length of a step of its chart.
        count: number of steps; the last one is still running.
        group: the report group of a step; None if reports have no such group.
    """

    title: str
    step: timedelta
    count: int
    group: str | None

    def begins(self, now: datetime) -> datetime:
        """Return the start of the span.

        Args:
            now: the end of the span, UTC.
        """
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        current = midnight + (now - midnight) // self.step * self.step
        return current - (self.count - 1) * self.step

    def steps(self, now: datetime) -> list[datetime]:
        """Return the starts of the steps.

        Args:
            now: the end of the span, UTC.
        """
        first = self.begins(now)
        return [first + number * self.step for number in range(self.count)]


def day_text(date: datetime) -> str:
    """Return the day of a date without its year, such as ``3 Mar``."""
    return f"{date.day} {date:%b}"


#: The spans by the name that the page sends.
SPANS: Mapping[str, FigureSpan] = MappingProxyType(
    {
        "1h": FigureSpan("last hour", MINUTE, 60, None),
        "24h": FigureSpan("last 24 hours", HOUR, 24, "hour"),
        "7d": FigureSpan("last 7 days", HOUR, 168, "hour"),
        "30d": FigureSpan("last 30 days", DAY, DAYS, "day"),
    }
)
