"""The rates of service tiers: listed in the catalogue, or a share of the standard price that a page states.

A row of :data:`BATCH_SHARES` states what a vendor's page says of all models that match it. A tier without a
listed price and without a row is unpriced.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Final, NamedTuple

from specclient.prices.cache import ModelPrice
from specclient.prices.rates import PriceRates
from specclient.prices.service_tiers import price_context
from specclient.runtime.forks import import_lock

__all__ = ["BATCH", "BATCH_SHARES", "BatchShare", "TierRates", "tier_rates"]

#: The service tier of a batch job's lines.
BATCH: Final = "batch"


class BatchShare(NamedTuple):
    """The price of a batch as a share of the standard price, for tokens of every kind.

    Attributes:
        vendor: the catalogue's id of the vendor.
        models: matches the beginning of the names of its models.
        share: of the standard price.
        source: the page that states it.
        read: when it was read.
    """

    vendor: str
    models: re.Pattern[str]
    share: Decimal
    source: str
    read: date


BATCH_SHARES: Final = (
    BatchShare(
        "anthropic",
        re.compile("claude-"),
        Decimal("0.5"),
        "https://platform.claude.com/docs/en/build-with-claude/batch-processing",
        date(2026, 11, 27),
    ),
    BatchShare(
        "azure",
        re.compile(""),
        Decimal("0.5"),
        "https://azure.microsoft.com/en-us/pricing/details/azure-openai/",
        date(2026, 10, 7),
    ),
    BatchShare(
        "moonshotai",
        re.compile(r"kimi-k2\.5"),
        Decimal("0.6"),
        "https://platform.kimi.ai/docs/pricing/batch",
        date(2026, 11, 27),
    ),
)


class TierRates(NamedTuple):
    """Rates, None if they are not known; and a note on them for the source of the price."""

    rates: PriceRates | None
    note: str = ""


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
    share = _batch_share(price_provider, name) if tier == BATCH else None
    standard = found.rates(at, prompt)
    if share is None or standard is None:
        return TierRates(None)
    return TierRates(
        standard.times(share.share), f"{note} at {share.share} of its price ({share.source}, {share.read})"
    )


def _batch_share(vendor: str, model: str) -> BatchShare | None:
    return next((row for row in BATCH_SHARES if row.vendor == vendor and row.models.match(model)), None)
