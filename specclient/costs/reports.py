"""Turn the ledger's rows into sums: calls, tokens, acceptance, dollars and seconds, grouped as asked. Pure.

Money is summed in whole nano-dollars, so the groups of any report add up to its total exactly.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from statistics import median, quantiles
from typing import Any

from specclient.costs.rows import Row
from specclient.errors import ConfigurationError

__all__ = ["GROUPS", "Line", "Report", "parse_since", "report"]

#: Names to group by, beside ``tag:NAME``.
GROUPS: dict[str, Callable[[Row], str]] = {
    "provider": lambda row: row.provider,
    "model": lambda row: row.model,
    "day": lambda row: f"{row.started_at.astimezone(UTC):%Y-%m-%d}",
    "operation": lambda row: row.operation,
    "status": lambda row: row.status,
    "method": lambda row: row.method or "",
}

_TAG = "tag:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The sum of a group of calls. A figure that none of its calls knows is None.

    Attributes:
        group: the group's values, in the order of the report's ``by``; "" where a call has none.
        errors: calls that failed.
        tokens_in, tokens_out: over the calls that know them.
        drafted, accepted, acceptance_rate: over the calls that know both counts.
        mean_accepted_length: 1 + accepted / steps, over the calls that know both.
        cost_nano: nano-dollars of the priced calls.
        unpriced: calls whose cost is unknown; those that failed before anything was counted are not among
            them.
        estimated: a price or a token count behind ``cost_nano`` is an estimate.
        latency_p50_s, latency_p95_s: of the calls that succeeded.
        tokens_per_s: generated tokens over the seconds of the calls that know them.
    """

    group: tuple[str, ...]
    calls: int = 0
    errors: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    drafted: int | None = None
    accepted: int | None = None
    acceptance_rate: float | None = None
    mean_accepted_length: float | None = None
    cost_nano: int = 0
    unpriced: int = 0
    estimated: bool = False
    latency_p50_s: float | None = None
    latency_p95_s: float | None = None
    tokens_per_s: float | None = None

    @property
    def cost(self) -> Decimal:
        """Dollars of the priced calls."""
        return Decimal(self.cost_nano).scaleb(-9)


@dataclass(frozen=True, slots=True)
class Report:
    """Lines by group, dearest first, and their total.

    Attributes:
        by: what was grouped by.
    """

    by: tuple[str, ...]
    lines: tuple[Line, ...]
    total: Line

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the lines as plain values; ``cost`` is exact dollars as text."""
        return [self._dict(line) for line in self.lines]

    def to_csv(self) -> str:
        """Return the lines as CSV with a header; unknown figures are empty."""
        out = io.StringIO()
        names = [*self.by, *(key for key in self._dict(self.total) if key not in self.by)]
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.to_dicts())
        return out.getvalue()

    def _dict(self, line: Line) -> dict[str, Any]:
        figures = asdict(line)
        del figures["group"]
        return {**dict(zip(self.by, line.group, strict=False)), **figures, "cost": f"{line.cost:f}"}


def report(rows: Iterable[Row], by: Sequence[str] = ("provider", "model")) -> Report:
    """Sum rows by group.

    Args:
        rows: calls, as ``Ledger.rows`` gives them.
        by: group names, of :data:`GROUPS` or ``tag:NAME``; none gives one line.

    Raises:
        ConfigurationError: an unknown group name, with those there are.
    """
    keys = [_key(name) for name in by]
    groups: dict[tuple[str, ...], list[Row]] = {}
    everything = list(rows)
    for row in everything:
        groups.setdefault(tuple(key(row) for key in keys), []).append(row)
    lines = sorted(
        (_line(group, members) for group, members in groups.items()),
        key=lambda line: (-line.cost_nano, line.group),
    )
    return Report(by=tuple(by), lines=tuple(lines), total=_line((), everything))


def parse_since(text: str, now: datetime) -> datetime:
    """Return the instant that ``7d``, ``24h``, ``30m``, ``2026-01-31`` or an ISO 8601 time means.

    Args:
        now: what a span is counted back from; a day or time without a zone is in its time zone.

    Raises:
        ConfigurationError: anything else.
    """
    if span := re.fullmatch(r"(\d{1,6})\s*([mhdw])", text.strip().lower()):
        unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[span[2]]
        try:
            return now - timedelta(**{unit: int(span[1])})
        except OverflowError:
            pass
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no time; write a span such as '7d', '24h' or '30m', a day such as '2026-01-31', "
            "or an ISO 8601 time"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=now.tzinfo)


def _key(name: str) -> Callable[[Row], str]:
    if name.startswith(_TAG) and len(name) > len(_TAG):
        tag = name.removeprefix(_TAG)
        return lambda row: row.tags.get(tag, "")
    if name not in GROUPS:
        raise ConfigurationError(f"cannot group by {name!r}; use {', '.join(GROUPS)} or tag:NAME")
    return GROUPS[name]


def _line(group: tuple[str, ...], rows: Sequence[Row]) -> Line:
    drafts = [
        (row.accepted, row.drafted) for row in rows if row.accepted is not None and row.drafted is not None
    ]
    accepted, drafted = sum(a for a, _ in drafts), sum(d for _, d in drafts)
    passes = [(row.accepted, row.steps) for row in rows if row.accepted is not None and row.steps]
    latencies = [row.latency_s for row in rows if row.status == "ok"]
    served = [
        (row.completion_tokens, row.latency_s if row.engine_s is None else row.engine_s) for row in rows
    ]
    timed = [(tokens, seconds) for tokens, seconds in served if tokens and seconds > 0]
    return Line(
        group=group,
        calls=len(rows),
        errors=sum(row.status == "error" for row in rows),
        tokens_in=sum(row.prompt_tokens or 0 for row in rows),
        tokens_out=sum(row.completion_tokens or 0 for row in rows),
        drafted=drafted if drafts else None,
        accepted=accepted if drafts else None,
        acceptance_rate=accepted / drafted if drafted else None,
        mean_accepted_length=1 + sum(a for a, _ in passes) / sum(s for _, s in passes) if passes else None,
        cost_nano=sum(row.cost_nano or 0 for row in rows),
        unpriced=sum(_unpriced(row) for row in rows),
        estimated=any(
            row.cost_nano is not None and (row.cost_estimated or row.usage_estimated) for row in rows
        ),
        latency_p50_s=median(latencies) if latencies else None,
        latency_p95_s=_p95(latencies),
        tokens_per_s=sum(n for n, _ in timed) / sum(s for _, s in timed) if timed else None,
    )


def _unpriced(row: Row) -> bool:
    """Tell whether a call may have cost something unknown; a failed one without tokens is not billed."""
    nothing_counted = row.prompt_tokens is None and row.completion_tokens is None
    return row.cost_nano is None and not (row.status == "error" and nothing_counted)


def _p95(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=20, method="inclusive")[-1]
