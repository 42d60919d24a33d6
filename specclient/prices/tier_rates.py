"""The rates of service tiers: listed in the catalogue, or a share of the standard price that a page states.

A row of :data:`TIER_SHARES` states what a vendor's page says of all models that match it. A tier without a
listed price and without a row is unpriced.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Final, NamedTuple

from specclient.prices.cache import ModelPrice
from specclient.prices.rates import PriceRates
from specclient.prices.service_tiers import price_context
from specclient.runtime.forks import import_lock

__all__ = ["BATCH", "TIER_SHARES", "TierRates", "TierShare", "tier_rates"]

#: The service tier of a batch job's lines.
BATCH: Final = "batch"
_CACHED_RATES: Final = ("cached_input", "cached_audio_input", "cached_image_input")


class TierShare(NamedTuple):
    """The price of a service tier as a share of the standard price.

    Attributes:
        vendor: the catalogue's id of the vendor.
        models: matches the beginning of the names of its models.
        tier: in lower case.
        share: of the standard price, for tokens of every kind.
        source: the page that states it.
        read: when it was read.
        assumed: what a cost assumes whose prompt is read from a cache; cached tokens then have the standard
            price. Empty if they have the share, too.
    """

    vendor: str
    models: re.Pattern[str]
    tier: str
    share: Decimal
    source: str
    read: date
    assumed: str = ""


_HALF, _READ = Decimal("0.5"), date(2026, 11, 27)
_GEMINI = re.compile(r"gemini-")
_GEMINI_TIERS = "https://ai.google.dev/gemini-api/docs/optimization"
_CACHED = "cached tokens have the standard price, as the page does not tell whether the discount is theirs"

TIER_SHARES: Final = (
    TierShare(
        "anthropic",
        re.compile("claude-"),
        BATCH,
        _HALF,
        "https://platform.claude.com/docs/en/build-with-claude/batch-processing",
        _READ,
    ),
    TierShare(
        "azure",
        re.compile(""),
        BATCH,
        _HALF,
        "https://azure.microsoft.com/en-us/pricing/details/azure-openai/",
        date(2026, 10, 7),
    ),
    TierShare(
        "moonshotai",
        re.compile(r"kimi-k2\.5"),
        BATCH,
        Decimal("0.6"),
        "https://platform.kimi.ai/docs/pricing/batch",
        _READ,
    ),
    TierShare("google", _GEMINI, BATCH, _HALF, _GEMINI_TIERS, _READ, _CACHED),
    TierShare("google", _GEMINI, "flex", _HALF, _GEMINI_TIERS, _READ, _CACHED),
    # The page of the tiers says 75 to 100 % more; that of prices 80 % for all models.
    TierShare(
        "google",
        _GEMINI,
        "priority",
        Decimal("1.8"),
        "https://ai.google.dev/gemini-api/docs/pricing (LiteLLM 1.110.2)",
        _READ,
    ),
)


class TierRates(NamedTuple):
    """Rates, None if they are not known; a note on them for the source of the price, and what they assume."""

    rates: PriceRates | None
    note: str = ""
    assumed: str = ""


def tier_rates(
    found: ModelPrice, price_provider: str, name: str, tier: str, *, at: datetime, prompt: int
) -> TierRates:
    """Return the rates of a service tier.

    Args:
        found: the price of the standard tier.
        price_provider: the vendor whose prices apply.
        name: the model's name at its vendor.
        tier: other than the standard one.
        at, prompt: the date, and tokens of the prompt.
    """
    note = f", service tier {tier}"
    with import_lock:
        from specclient.prices.catalogue import find_model, variant_rates  # noqa: PLC0415 - loads the catalogue

        listed, rates = find_model(found.vendor, name), None
        if listed is None:
            return TierRates(None)
        if listed.own:  # another vendor's list has that vendor's tiers
            rates = variant_rates(listed.model, at, prompt, price_context(found.vendor, tier))
    if rates is not None:
        return TierRates(rates, note)
    row = _share_of(price_provider, name, tier)
    standard = found.rates(at, prompt)
    if row is None or standard is None:
        return TierRates(None)
    note += f" at {row.share} of its price ({row.source}, {row.read})"
    shared = standard.times(row.share)
    if not row.assumed or standard.cached_input is None:
        return TierRates(shared, note)
    kept = {name: getattr(standard, name) for name in _CACHED_RATES}
    return TierRates(replace(shared, **kept), note, row.assumed)


def _share_of(vendor: str, model: str, tier: str) -> TierShare | None:
    rows = (row for row in TIER_SHARES if (row.vendor, row.tier) == (vendor, tier))
    return next((row for row in rows if row.models.match(model)), None)
