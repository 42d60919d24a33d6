"""The cost of units other than tokens: seconds of audio, characters, pages, images, searches, containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import NamedTuple

from specclient.types.usage import UsageUnit

__all__ = ["UnitBill", "UnitRate", "unit_costs"]

_EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)
_NANO_STEP = Decimal("1e-9")


class UnitRate(NamedTuple):
    """Dollars for a number of units.

    Attributes:
        dollars: for ``per`` units.
        source: the page and the date of this price; empty if it is that of the quote.
        assumed: what the price assumes about the units; a cost with it is an estimate. Empty if nothing.
    """

    dollars: Decimal
    per: int = 1
    source: str = ""
    assumed: str = ""


class UnitBill(NamedTuple):
    """The cost of units.

    Attributes:
        by_kind: dollars by the first word of the kind.
        missing: the units without a rate, in words.
        notes: the sources and assumptions of the rates, in words.
        estimated: whether a rate assumes something, or is missing.
    """

    by_kind: Mapping[str, Decimal]
    missing: str = ""
    notes: str = ""
    estimated: bool = False


def unit_costs(units: Iterable[UsageUnit], rates: Mapping[str, UnitRate]) -> UnitBill:
    """Return the cost of units.

    A unit without a rate of its kind has the rate of the kind's first word. A sum without a finite decimal
    fraction, as of some seconds of an hour, is rounded to the nano-dollar.
    """
    by_kind: dict[str, Decimal] = {}
    missing, used = [], []
    for unit in units:
        name = unit.kind.partition(" ")[0]
        rate = rates.get(unit.kind) or rates.get(name)
        if rate is None:
            missing.append(f"{unit.amount.normalize(_EXACT):f} × {unit.kind}")
            continue
        dollars = _EXACT.divide(_EXACT.multiply(rate.dollars, unit.amount), Decimal(rate.per))
        if len(dollars.as_tuple().digits) >= _EXACT.prec:
            dollars = dollars.quantize(_NANO_STEP, context=_EXACT)
        by_kind[name] = _EXACT.add(by_kind.get(name, Decimal(0)), dollars)
        used.append((name, rate))
    notes = [f"{name} by {rate.source}" for name, rate in used if rate.source]
    notes += [f"assumed: {rate.assumed}" for _, rate in used if rate.assumed]
    estimated = bool(missing) or any(rate.assumed for _, rate in used)
    return UnitBill(by_kind, ", ".join(missing), "; ".join(dict.fromkeys(notes)), estimated)
