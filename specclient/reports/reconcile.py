"""Comparison of a vendor's bill with the ledger, by day, model and key, with likely causes of differences."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

from specclient.errors import ConfigurationError
from specclient.ledger.figures import CallTotals
from specclient.ledger.row import LedgerRow
from specclient.reports.reader import LedgerReader
from specclient.reports.vendor_bill import VendorBill

__all__ = ["BillLine", "KeyNames", "Reconciliation", "reconcile"]

#: A date at the end of a model's name, which one side may have and the other not.
_SNAPSHOT = re.compile(r"[-@](?:\d{8}|\d{4}-\d{2}-\d{2})$")
_BY = ("day", "served", "model")
_ZERO = Decimal(0)
#: Shares of the standard price that service tiers commonly have, and how far off a ratio may be.
_TIER_SHARES, _SHARE_ERROR = (Decimal("0.5"), Decimal("1.75"), Decimal(2)), Decimal("0.02")


@dataclass(frozen=True, slots=True)
class BillLine:
    """One day's amounts of one model, and one key if keys are compared.

    Attributes:
        day: in UTC.
        model: without the date of a snapshot; empty for a bill that does not name models.
        billed: dollars that the vendor billed; None if the bill has no such line.
        booked: dollars in the ledger; None if it has no call.
        calls, unpriced: the ledger's calls, and those of them without a price.
        estimated: whether a part of ``booked`` is an estimate.
        cause: the likely cause of the difference; empty without one.
        key: of a comparison by key, the value of the calls' tag; empty for lines and calls without a key.
    """

    day: date
    model: str
    billed: Decimal | None
    booked: Decimal | None
    calls: int = 0
    unpriced: int = 0
    estimated: bool = False
    cause: str = ""
    key: str = ""

    @property
    def difference(self) -> Decimal:
        """Billed less booked dollars."""
        return (self.billed or _ZERO) - (self.booked or _ZERO)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The comparison.

    Attributes:
        provider: whose calls were compared.
        tolerance: the largest difference, in dollars, that does not count as one.
        lines: by day and model, and by key if keys are compared.
    """

    provider: str
    tolerance: Decimal
    lines: tuple[BillLine, ...]

    @property
    def differing(self) -> tuple[BillLine, ...]:
        """The lines whose difference is above the tolerance, the largest first."""
        found = (line for line in self.lines if abs(line.difference) > self.tolerance)
        return tuple(sorted(found, key=lambda line: -abs(line.difference)))

    @property
    def billed(self) -> Decimal:
        """All billed dollars."""
        return sum((line.billed or _ZERO for line in self.lines), _ZERO)

    @property
    def booked(self) -> Decimal:
        """All dollars in the ledger."""
        return sum((line.booked or _ZERO for line in self.lines), _ZERO)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON; dollars are texts, which are exact."""
        return {
            "provider": self.provider,
            "billed": str(self.billed),
            "booked": str(self.booked),
            "difference": str(self.billed - self.booked),
            "tolerance": str(self.tolerance),
            "lines": [
                {
                    "day": line.day.isoformat(),
                    "model": line.model,
                    "key": line.key or None,
                    "billed": None if line.billed is None else str(line.billed),
                    "booked": None if line.booked is None else str(line.booked),
                    "difference": str(line.difference),
                    "calls": line.calls,
                    "unpriced": line.unpriced,
                    "estimated": line.estimated,
                    "cause": line.cause or None,
                }
                for line in self.lines
            ],
        }


@dataclass(slots=True)
class _Booked:
    nano: int = 0
    calls: int = 0
    unpriced: int = 0
    estimated: bool = False

    def add(self, totals: CallTotals) -> None:
        self.nano += totals.cost_nano
        self.calls += totals.calls
        self.unpriced += totals.unpriced
        self.estimated = self.estimated or bool(totals.estimated)

    def add_row(self, row: LedgerRow) -> None:
        self.nano += row.cost_nano or 0
        self.calls += 1
        self.unpriced += row.cost_nano is None
        self.estimated = self.estimated or row.cost_estimated


class KeyNames(NamedTuple):
    """How keys are compared.

    Attributes:
        tag: the calls' tag with their key.
        names: the tag's value for the vendor's name of a key; other keys have the same value.
    """

    tag: str
    names: Mapping[str, str] = MappingProxyType({})


#: Day, model and key of a line.
_LineKey = tuple[date, str, str]


def reconcile(
    ledger: LedgerReader,
    bill: VendorBill,
    provider: str,
    *,
    tolerance: Decimal,
    keys: KeyNames | None = None,
) -> Reconciliation:
    """Compare a bill with the ledger's calls of the days that the bill covers.

    Args:
        provider: the calls of this provider are compared.
        tolerance: dollars of one line.
        keys: compares by key, too; every call of the days is then read. None for a comparison without keys.

    Raises:
        ConfigurationError: keys are to be compared, and the bill names none.
        LedgerError: the ledger cannot be read.
    """
    if keys is not None and bill.amounts and not any(amount.key for amount in bill.amounts):
        raise ConfigurationError(
            "the bill names no keys, projects or workspaces, so keys cannot be compared; export it by key, "
            "or omit --by-key"
        )
    billed: dict[_LineKey, Decimal] = defaultdict(Decimal)
    for amount in bill.amounts:
        key = "" if keys is None else keys.names.get(amount.key, amount.key)
        billed[amount.day, _bare(amount.model), key] += amount.dollars
    named = any(model for _, model, _ in billed)
    booked = (
        _booked(ledger, bill.days, provider, named=named)
        if keys is None
        else _booked_by_key(ledger, bill.days, provider, keys.tag, named=named)
    )
    lines = [
        _line(key, billed.get(key), booked.get(key), tolerance)
        for key in sorted(billed.keys() | booked.keys())
    ]
    return Reconciliation(provider, tolerance, tuple(lines))


def _booked(
    ledger: LedgerReader, days: Sequence[date], provider: str, *, named: bool
) -> dict[_LineKey, _Booked]:
    """Return the ledger's sums by day and model, of the given days."""
    found: dict[_LineKey, _Booked] = {}
    covered = set(days)
    for totals in ledger.rollup(*_span(days), by=("provider", *_BY)) if days else ():
        whose, day, served, model = totals.group
        if whose == provider and date.fromisoformat(day) in covered:
            key = date.fromisoformat(day), _bare(served or model.rpartition("/")[2]) if named else "", ""
            found.setdefault(key, _Booked()).add(totals)
    return found


def _booked_by_key(
    ledger: LedgerReader, days: Sequence[date], provider: str, tag: str, *, named: bool
) -> dict[_LineKey, _Booked]:
    """Return the ledger's sums by day, model and the value of a tag, of the given days."""
    found: dict[_LineKey, _Booked] = {}
    covered = set(days)
    for row in ledger.iterate(*_span(days)) if days else ():
        day = row.started_at.astimezone(UTC).date()
        if row.provider == provider and day in covered:
            model = _bare(row.served_model or row.model.rpartition("/")[2]) if named else ""
            found.setdefault((day, model, row.tags.get(tag, "")), _Booked()).add_row(row)
    return found


def _span(days: Sequence[date]) -> tuple[datetime, datetime]:
    end = datetime.combine(days[-1], time(), UTC) + timedelta(days=1)
    return datetime.combine(days[0], time(), UTC), end


def _bare(model: str) -> str:
    return _SNAPSHOT.sub("", model.lower())


def _line(key: _LineKey, billed: Decimal | None, booked: _Booked | None, tolerance: Decimal) -> BillLine:
    day, model, name = key
    if booked is None:
        line = BillLine(day, model, billed, None, key=name)
    else:
        dollars = Decimal(booked.nano).scaleb(-9)
        line = BillLine(
            day, model, billed, dollars, booked.calls, booked.unpriced, booked.estimated, key=name
        )
    return replace(line, cause=_cause(line, tolerance)) if abs(line.difference) > tolerance else line


def _cause(line: BillLine, tolerance: Decimal) -> str:
    """Return the likely cause of a difference."""
    if line.booked is None:
        return "no call in this ledger: made elsewhere, under another name, or not a call (storage, a credit)"
    if line.unpriced:
        some = "1 call is" if line.unpriced == 1 else f"{line.unpriced:,} calls are"
        return f"{some} unpriced in the ledger"
    if line.billed is None:
        return "not billed: the vendor's figures may be incomplete, or it names the model otherwise"
    if line.booked and any(
        abs(line.billed / line.booked - share) <= _SHARE_ERROR * share for share in _TIER_SHARES
    ):
        return (
            f"billed at {line.billed / line.booked:.2f} of the booked price: another service tier, or a batch"
        )
    if line.estimated:
        return "the ledger's tokens or price are estimated"
    if abs(line.difference) <= line.calls * Decimal("0.0001") and abs(line.difference) <= 10 * tolerance:
        return "less than $0.0001 a call: the vendor may round"
    if line.difference > 0:
        return "calls that are not in this ledger, or a higher price"
    return "calls that the vendor has not billed, or a lower price"
