"""Turn what the catalogue has said of a model before into its rates again, without loading the catalogue.

genai-prices takes a quarter of a second and some 12 MB. What it says of a model whose price has neither
dates, hours nor tiers, and of a name that it does not know, is noted in a small file beside the ledger and
holds for as long as the catalogue is the same.
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
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specclient.prices.billing import PriceRates
from specclient.runtime.folders import user_folder, write_atomically
from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

__all__ = ["ModelPrice", "catalogue_path", "edition", "find_price"]

OFF = "off"
PACKAGE = "genai-prices"

#: Names that are kept; beyond it the oldest go.
MAX_ENTRIES = 512
CACHE_FILE = "prices-seen.json"
_DECIMALS = tuple(field.name for field in fields(PriceRates) if field.name != "per_hour")


def catalogue_path(env: Mapping[str, str]) -> Path | None:
    """Return where a fetched catalogue is kept, None for nowhere."""
    named = env.get("SPECCLIENT_PRICES")
    if named:
        return None if named.strip().lower() == OFF else Path(named).expanduser()
    return user_folder("data") / "prices.json"


def edition(env: Mapping[str, str]) -> str:
    """Return what tells one catalogue from another, without loading either."""
    path = catalogue_path(env)
    with suppress(OSError):
        if path is not None:
            kept = path.stat()
            return f"{version(PACKAGE)} {path} {kept.st_mtime_ns} {kept.st_size}"
    return version(PACKAGE)


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """A model of the catalogue.

    Attributes:
        vendor: whose it is; ``model``: its id there; ``catalogue``: in words, which.
        steady: its rates, where they have neither dates, hours of the day nor tiers.
        dated: its prices otherwise.
    """

    vendor: str
    model: str
    catalogue: str
    steady: PriceRates | None = None
    dated: ModelInfo | None = None

    def rates(self, at: datetime, prompt: int) -> PriceRates | None:
        """Return its rates at a date, for a prompt of so many tokens; None where tokens have no price."""
        if self.dated is None:
            return self.steady
        with import_lock:
            from specclient.prices.catalogue import rates_at  # noqa: PLC0415 - it has been read then

            return rates_at(self.dated, at, prompt)

    def steps(self) -> tuple[int, ...]:
        """Return the lengths of prompts, in tokens, beyond which it has other rates, ascending."""
        if self.dated is None:
            return ()
        with import_lock:
            from specclient.prices.catalogue import tier_starts  # noqa: PLC0415 - as above

            return tier_starts(self.dated)


def find_price(vendor: str, name: str) -> ModelPrice | None:
    """Find a model, as noted or in the catalogue; None where it knows none of that name. May take a while."""
    notes = _notes(user_folder("data") / CACHE_FILE, edition(os.environ))
    key = f"{vendor} {name}"
    if key in notes.entries:
        return _read(notes.entries[key])
    with import_lock:  # all of it: the library imports more of itself as it looks
        return _look_up(vendor, name, notes, key)


def _look_up(vendor: str, name: str, notes: _PriceCache, key: str) -> ModelPrice | None:
    """Ask the catalogue, and note what it says."""
    from specclient.prices import catalogue  # noqa: PLC0415 - see above

    found = catalogue.find_model(vendor, name)
    if found is None:
        notes.add(key, None)
        return None
    if not found.steady:
        return ModelPrice(found.vendor, found.model.id, found.catalogue, dated=found.model)
    rates = catalogue.rates_at(found.model, datetime.min.replace(tzinfo=UTC), 0)
    made = ModelPrice(found.vendor, found.model.id, found.catalogue, steady=rates)
    notes.add(key, made)
    return made


class _PriceCache:
    """What one edition of the catalogue has been seen to say."""

    def __init__(self, path: Path, edition: str) -> None:
        self._path = path
        self._edition = edition
        self.entries: dict[str, Any] = {}
        with suppress(
            OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError
        ):  # none, or damaged: seen anew
            told = json.loads(path.read_bytes())
            if told["edition"] == edition:
                self.entries = {key: _checked(entry) for key, entry in told["seen"].items()}

    def add(self, key: str, seen: ModelPrice | None) -> None:
        self.entries[key] = _written(seen)
        if len(self.entries) > MAX_ENTRIES:
            del self.entries[next(iter(self.entries))]
        with suppress(OSError):  # a folder that cannot be written costs time, and no call
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self._path, json.dumps({"edition": self._edition, "seen": self.entries}))


@lru_cache(maxsize=8)
def _notes(path: Path, edition: str) -> _PriceCache:
    return _PriceCache(path, edition)


def _written(seen: ModelPrice | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    rates = seen.steady
    told = {
        name: str(value)
        for name in _DECIMALS
        if rates is not None and (value := getattr(rates, name)) is not None
    }
    return {
        "vendor": seen.vendor,
        "model": seen.model,
        "catalogue": seen.catalogue,
        "rates": None if rates is None else told,
    }


def _checked(entry: Any) -> Any:
    _read(entry)
    return entry


def _read(entry: Mapping[str, Any] | None) -> ModelPrice | None:
    """Return what an entry says; raises what parsing one that is none of ours does."""
    if entry is None:
        return None
    told = entry["rates"]
    rates = None
    if told is not None:
        made: dict[str, Any] = {name: Decimal(told[name]) for name in _DECIMALS if name in told}
        rates = PriceRates(**made)
    return ModelPrice(str(entry["vendor"]), str(entry["model"]), str(entry["catalogue"]), steady=rates)
