"""Cache of prices looked up in the catalogue, so that later processes need not load the catalogue.

Loading genai-prices takes a quarter of a second and about 12 MB. A small file next to the ledger stores the
prices that have neither dates, hours nor tiers, and the names that the catalogue does not know. It is valid
as long as the catalogue is the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specclient.prices.catalogue_file import edition
from specclient.prices.rates import PriceRates
from specclient.prices.unit_costs import UnitRate
from specclient.runtime.folders import user_folder, write_atomically
from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

__all__ = ["CACHE_FILE", "MAX_ENTRIES", "ModelPrice", "find_price"]

#: Largest number of entries; beyond it the oldest are removed.
MAX_ENTRIES = 512
CACHE_FILE = "prices-seen.json"
_DECIMALS = tuple(field.name for field in fields(PriceRates) if field.name not in ("per_hour", "units"))


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The price of a model in the catalogue.

    Attributes:
        vendor: the model's vendor.
        model: its id at the vendor.
        catalogue: the catalogue's name, for people.
        fixed_rates: its rates, if they depend neither on dates, hours of the day nor tiers.
        listed: otherwise the catalogue's entry, from which the rates are read for each call.
    """

    vendor: str
    model: str
    catalogue: str
    fixed_rates: PriceRates | None = None
    listed: ModelInfo | None = None

    def rates(self, at: datetime, prompt: int) -> PriceRates | None:
        """Return the rates at a date, None if tokens have no price.

        Args:
            prompt: tokens of the prompt.
        """
        if self.listed is None:
            return self.fixed_rates
        with import_lock:
            from specclient.prices.catalogue import rates_at  # noqa: PLC0415 - loaded already, by `find_price`

            return rates_at(self.listed, at, prompt)

    def prompt_tiers(self) -> tuple[int, ...]:
        """Return the prompt lengths, in tokens, above which the rates differ, ascending."""
        if self.listed is None:
            return ()
        with import_lock:
            from specclient.prices.catalogue import tier_starts  # noqa: PLC0415 - as above

            return tier_starts(self.listed)


def find_price(vendor: str, name: str) -> ModelPrice | None:
    """Return the price of a model, from the cache or the catalogue; None if the catalogue does not know it.

    Loading the catalogue takes about 0.25 s.
    """
    cache = _cache(user_folder("data") / CACHE_FILE, edition(os.environ))
    key = f"{vendor} {name}"
    if key in cache.entries:
        return _read(cache.entries[key])
    with import_lock:  # during the whole look-up, as the library imports further modules on use
        return _look_up(vendor, name, cache, key)


def _look_up(vendor: str, name: str, cache: _PriceCache, key: str) -> ModelPrice | None:
    """Read a price from the catalogue and add it to the cache if it is fixed."""
    from specclient.prices import catalogue  # noqa: PLC0415 - loads genai-prices

    found = catalogue.find_model(vendor, name)
    if found is None:
        cache.add(key, None)
        return None
    if not found.has_fixed_price:
        return ModelPrice(found.vendor, found.model.id, found.catalogue, listed=found.model)
    rates = catalogue.rates_at(found.model, datetime.min.replace(tzinfo=UTC), 0)
    price = ModelPrice(found.vendor, found.model.id, found.catalogue, fixed_rates=rates)
    cache.add(key, price)
    return price


class _PriceCache:
    """The file of cached prices. A damaged file, or one of another edition, is ignored."""

    def __init__(self, path: Path, edition: str) -> None:
        self._path = path
        self._edition = edition
        self.entries: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            content = json.loads(path.read_bytes())
            if content["edition"] == edition:
                self.entries = {key: _checked(entry) for key, entry in content["seen"].items()}

    def add(self, key: str, price: ModelPrice | None) -> None:
        """Add an entry, None for an unknown name, and write the file."""
        self.entries[key] = _encoded(price)
        if len(self.entries) > MAX_ENTRIES:
            del self.entries[next(iter(self.entries))]
        with suppress(OSError):  # without the file, later processes load the catalogue
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self._path, json.dumps({"edition": self._edition, "seen": self.entries}))


@lru_cache(maxsize=8)
def _cache(path: Path, edition: str) -> _PriceCache:
    return _PriceCache(path, edition)


def _encoded(price: ModelPrice | None) -> dict[str, Any] | None:
    if price is None:
        return None
    rates = price.fixed_rates
    decimals = {
        name: str(value)
        for name in _DECIMALS
        if rates is not None and (value := getattr(rates, name)) is not None
    }
    return {
        "vendor": price.vendor,
        "model": price.model,
        "catalogue": price.catalogue,
        "rates": None if rates is None else decimals,
        "units": {}
        if rates is None
        else {kind: [str(unit.dollars), unit.per] for kind, unit in rates.units.items()},
    }


def _checked(entry: Any) -> Any:
    _read(entry)
    return entry


def _read(entry: Mapping[str, Any] | None) -> ModelPrice | None:
    """Return the price of an entry; a malformed one raises an error that loading suppresses."""
    if entry is None:
        return None
    stored = entry["rates"]
    rates = None
    if stored is not None:
        decimals: dict[str, Any] = {name: Decimal(stored[name]) for name in _DECIMALS if name in stored}
        units = {
            kind: UnitRate(Decimal(dollars), int(per)) for kind, (dollars, per) in entry["units"].items()
        }
        rates = PriceRates(**decimals, units=units)
    return ModelPrice(str(entry["vendor"]), str(entry["model"]), str(entry["catalogue"]), fixed_rates=rates)
