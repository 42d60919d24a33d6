"""The price catalogue: dated prices of models, from genai-prices or a newer copy of its data.

The copy is the file ``$SPECCLIENT_PRICES`` (``off`` for none), or ``prices.json`` in the user's data folder,
written by ``specclient cost update-prices``. It is ignored once another version of the package is installed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from specclient.config import ANY_VENDOR
from specclient.errors import ConfigurationError
from specclient.prices import vertex
from specclient.prices.catalogue_file import PACKAGE, catalogue_path
from specclient.prices.rates import EXACT, PriceRates
from specclient.prices.unit_costs import UnitRate
from specclient.runtime.folders import write_atomically
from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

__all__ = [
    "CatalogueModel",
    "SavedCatalogue",
    "catalogue_url",
    "find_model",
    "rates_at",
    "save_catalogue",
    "saved_catalogue",
    "tier_starts",
    "variant_rates",
]

logger = logging.getLogger("specclient")


#: Kinds of units, the number of units of their price, and the catalogue's keys of it, the first that it has.
_UNITS = (
    ("audio_second", 3600, ("input_audio_hours", "audio_hours")),
    ("character", 10**6, ("input_mchars",)),
    ("page", 1000, ("input_document_kpages",)),
    ("annotated_page", 1000, ("input_annotated_document_kpages",)),
    ("file_search", 1000, ("storage_searches_kcount",)),
)


@dataclass(frozen=True, slots=True, eq=False)
class CatalogueModel:
    """A model of the catalogue.

    Attributes:
        vendor: the vendor it was looked up for.
        model: its entry, with dated prices.
        catalogue: the catalogue's name, for people.
        own: whether the entry is the vendor's, and not that of another vendor whose models it offers, too.
    """

    vendor: str
    model: ModelInfo
    catalogue: str
    own: bool = True

    @property
    def has_fixed_price(self) -> bool:
        """Whether the price has neither dates, hours of the day nor tiers."""
        prices = self.model.prices
        return not isinstance(prices, list) and not any(
            hasattr(each, "tiers") for each in vars(prices).values()
        )


@dataclass(frozen=True, slots=True)
class SavedCatalogue:
    """A fetched copy of the catalogue.

    Attributes:
        path: its file.
        fetched: the time of fetching, with a time zone.
        package: the version of genai-prices that fetched it.
        models: the number of models in it.
    """

    path: Path
    fetched: datetime
    package: str
    models: int


def find_model(vendor: str, model: str) -> CatalogueModel | None:
    """Return a vendor's model, or a model by name alone for :data:`ANY_VENDOR`; None if it is not listed."""
    if vendor in vertex.IDS:
        vendor, model = vertex.CATALOGUE_ID, model.rpartition("/")[2]
    saved = _saved(os.environ)
    snapshot = _snapshot()
    name = PACKAGE if saved is None else f"{PACKAGE} (fetched {saved[0].fetched:%Y-%m-%d})"
    if vendor == ANY_VENDOR:
        with suppress(LookupError):  # "litellm" finds names with and without a vendor before a slash
            owner, found = snapshot.find_provider_model(model, None, "litellm", None)
            return CatalogueModel(owner.id, found, name)
        return None
    with import_lock:
        from genai_prices.data_snapshot import find_provider_by_id  # noqa: PLC0415 - takes 0.2 s

    if model.startswith("arn:"):  # AWS: its last part is the model's id, or an id unknown to any catalogue
        model = model.rpartition("/")[2]
    provider = find_provider_by_id(snapshot.providers, vendor)
    if provider is None:
        return None
    match = provider.find_model(model.lower(), all_providers=snapshot.providers)
    if match is None:
        return None
    own = any(each is match for each in provider.models)
    return CatalogueModel(vendor, match, name, own=own)


def rates_at(model: ModelInfo, at: datetime, prompt: int) -> PriceRates | None:
    """Return the rates at a date; None for a model whose price has none of their units.

    Args:
        prompt: tokens of the prompt; some prices rise with its length, for all of its tokens.
    """
    return _rates(model.get_prices(at), prompt)


def variant_rates(
    model: ModelInfo, at: datetime, prompt: int, context: Mapping[str, str]
) -> PriceRates | None:
    """Return the rates of a variant of a model's prices; None if there is none at the date.

    Args:
        context: selects the variant; see :func:`specclient.prices.service_tiers.price_context`.
        at, prompt: as for :func:`rates_at`.
    """
    variants = [
        each
        for each in model.price_variants or ()
        if (each.constraint is None or each.constraint.active(at)) and each.when.items() <= context.items()
    ]
    return _rates(model.get_prices(at, context), prompt) if variants else None


def _rates(prices: ModelPrice, prompt: int) -> PriceRates | None:
    listed: dict[str, Decimal | TieredPrices | None] = vars(prices)

    def rate(key: str) -> Decimal | None:
        value = listed.get(key)
        if value is None or isinstance(value, Decimal):
            return value
        reached = [tier.price for tier in value.tiers if prompt > tier.start]  # tiers ascend
        return reached[-1] if reached else value.base

    input_rate = rate("input_mtok")
    units = {
        kind: UnitRate(dollars, per)
        for kind, per, keys in _UNITS
        if (dollars := next((each for key in keys if (each := rate(key)) is not None), None)) is not None
    }
    if input_rate is None and units.keys() <= {"file_search"}:
        return None
    return PriceRates(
        input=input_rate,
        output=rate("output_mtok"),
        cached_input=rate("cache_read_mtok"),
        cache_write=rate("cache_write_mtok"),
        cache_write_1h=rate("cache_write_1h_mtok"),
        reasoning=rate("output_reasoning_mtok"),
        audio_input=rate("input_audio_mtok"),
        image_input=rate("input_image_mtok"),
        audio_output=rate("output_audio_mtok"),
        image_output=rate("output_image_mtok"),
        cached_audio_input=rate("cache_audio_read_mtok"),
        cached_image_input=rate("cache_image_read_mtok"),
        per_call=_thousandth(rate("requests_kcount")),
        per_search=_thousandth(rate("web_searches_kcount")),
        units=units,
    )


def tier_starts(model: ModelInfo) -> tuple[int, ...]:
    """Return the prompt lengths, in tokens, above which a model has or had other prices, ascending."""
    listed = model.prices if isinstance(model.prices, list) else [model]
    values = (value for each in listed for value in vars(each.prices).values())
    return tuple(sorted({tier.start for value in values for tier in getattr(value, "tiers", ())}))


def _thousandth(dollars: Decimal | None) -> Decimal | None:
    return None if dollars is None else EXACT.scaleb(dollars, -3)


def catalogue_url() -> str:
    """Return the URL at which genai-prices publishes its data."""
    from genai_prices.update_prices import DEFAULT_UPDATE_URL  # noqa: PLC0415 - needed for updates only

    return DEFAULT_UPDATE_URL


def save_catalogue(content: bytes, *, fetched: datetime, env: Mapping[str, str]) -> SavedCatalogue:
    """Check a fetched catalogue and replace the saved one with it. On an error the saved one stays.

    Raises:
        ConfigurationError: the content is not a catalogue, or the file cannot be written.
    """
    path = catalogue_path(env)
    if path is None:
        raise ConfigurationError("SPECCLIENT_PRICES is 'off', so there is no place for a fetched catalogue")
    try:
        raw = json.loads(content)
        providers = _providers(raw)
        priced = any(rates_at(model, fetched, 0) for each in providers for model in each.models)
    except Exception as error:  # noqa: BLE001 - the library may raise anything on foreign data
        raise ConfigurationError(f"the fetched data is not a price catalogue: {_line(error)}") from None
    if not priced:
        raise ConfigurationError("the fetched data is not a price catalogue: it has no model with a price")
    copy = SavedCatalogue(path, fetched, version(PACKAGE), sum(len(each.models) for each in providers))
    text = json.dumps({"fetched": fetched.isoformat(), "package": copy.package, "providers": raw})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {path}: {error.strerror or error}; name another file in SPECCLIENT_PRICES"
        ) from None
    return copy


def saved_catalogue(env: Mapping[str, str]) -> SavedCatalogue | None:
    """Return the fetched catalogue in use, None if the package's own is used."""
    saved = _saved(env)
    return None if saved is None else saved[0]


def _snapshot() -> DataSnapshot:
    """Return the fetched catalogue if there is a usable one, else the package's own."""
    saved = _saved(os.environ)
    if saved is not None:
        return saved[1]
    with import_lock:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - takes 0.2 s

    return get_snapshot()


def _saved(env: Mapping[str, str]) -> tuple[SavedCatalogue, DataSnapshot] | None:
    path = catalogue_path(env)
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, _modified: int, _size: int) -> tuple[SavedCatalogue, DataSnapshot] | None:
    """Return the catalogue of a file, None with a warning if it is unusable; cached until it changes."""
    try:
        content = json.loads(path.read_bytes())
        if content["package"] != version(PACKAGE):
            return None  # the version installed since has data of its own
        providers = _providers(content["providers"])
        fetched = datetime.fromisoformat(content["fetched"])
    except Exception as error:  # noqa: BLE001 - a damaged file must not break a call
        logger.warning(
            "the price catalogue %s cannot be read (%s), so the installed one is used; fetch it again with "
            "`specclient cost update-prices`, or remove it",
            path,
            _line(error),
        )
        return None
    from genai_prices.data_snapshot import DataSnapshot  # noqa: PLC0415 - as above

    count = sum(len(each.models) for each in providers)
    return SavedCatalogue(path, fetched, content["package"], count), DataSnapshot(
        providers, from_auto_update=True
    )


def _providers(raw: Any) -> list[Provider]:
    """Parse providers as genai-prices' own updater does; the library has no public function for it."""
    with import_lock:
        from genai_prices import types  # noqa: PLC0415 - as above

    if not isinstance(raw, list) or not raw:
        raise TypeError("it is not a list of providers")
    parse = cast("Callable[[Any], list[Provider]]", types._providers_from_raw)
    return parse(raw)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
