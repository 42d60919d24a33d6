"""The cost of units other than tokens: seconds of audio, characters, pages, images, searches of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import NamedTuple

from specclient.types.usage import UsageUnit

__all__ = ["UnitRate", "unit_costs"]

_EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)
_NANO_STEP = Decimal("1e-9")


class UnitRate(NamedTuple):
    """Dollars for a number of units."""

    dollars: Decimal
    per: int = 1


def unit_costs(units: Iterable[UsageUnit], rates: Mapping[str, UnitRate]) -> tuple[dict[str, Decimal], str]:
    """Return the dollars of units, by the first word of their kind, and the units without a rate, in words.

    A sum without a finite decimal fraction, as of some seconds of an hour, is rounded to the nano-dollar.
    """
    by_kind: dict[str, Decimal] = {}
    missing = []
    for unit in units:
        rate = rates.get(unit.kind)
        if rate is None:
            missing.append(f"{unit.amount.normalize(_EXACT):f} × {unit.kind}")
            continue
        dollars = _EXACT.divide(_EXACT.multiply(rate.dollars, unit.amount), Decimal(rate.per))
        if len(dollars.as_tuple().digits) >= _EXACT.prec:
            dollars = dollars.quantize(_NANO_STEP, context=_EXACT)
        name = unit.kind.partition(" ")[0]
        by_kind[name] = _EXACT.add(by_kind.get(name, Decimal(0)), dollars)
    return by_kind, ", ".join(missing)
