"""Prices of regions: a factor of the standard price, where a vendor's page states one.

The region is that which the answer names, or that of the endpoint's address. Vertex AI has its own rules, in
:mod:`specclient.prices.vertex`; the catalogue lists Amazon Bedrock's regional models by themselves.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Final, NamedTuple

from specclient.prices.rates import Quote

__all__ = ["REGION_PRICES", "RegionPrice", "in_region", "named_region"]


class RegionPrice(NamedTuple):
    """The price of a vendor's regions.

    Attributes:
        vendor: the catalogue's id of the vendor.
        models: matches the beginning of the names of models.
        region: matches the regions.
        factor: of the standard price, for tokens of every kind.
        source: the page that states it.
        read: the newest date that the page stated when it was read.
        assumed: what the price assumes; empty if nothing.
    """

    vendor: str
    models: re.Pattern[str]
    region: re.Pattern[str]
    factor: Decimal
    source: str
    read: date
    assumed: str = ""


_CLAUDE = "https://platform.claude.com/docs/en/manage-claude/data-residency"
_OPENAI, _OPENAI_READ = "https://developers.openai.com/api/docs/pricing", date(2026, 7, 30)
#: OpenAI's models of before 2026-03-05, which cost the same everywhere.
_OLDER = re.compile(
    r"gpt-(?:[34]|5(?:\.[0-3])?(?![.\d]))|o\d|text-|dall-e|tts|whisper|davinci|babbage|omni-|sora-2"
)

REGION_PRICES: Final = (
    RegionPrice(
        "anthropic", re.compile("claude-"), re.compile("us$"), Decimal("1.1"), _CLAUDE, date(2026, 11, 27)
    ),
    RegionPrice("openai", _OLDER, re.compile("[a-z]{2}$"), Decimal(1), _OPENAI, _OPENAI_READ),
    RegionPrice(
        "openai",
        re.compile(""),
        re.compile("[a-z]{2}$"),
        Decimal("1.1"),
        _OPENAI,
        _OPENAI_READ,
        "the model is eligible for data residency",
    ),
)

#: The names of no region.
_GLOBAL: Final = frozenset({"", "global", "not_available"})


def in_region(quote: Quote, vendor: str | None, model: str, region: str) -> Quote | None:
    """Return the price of a model in a region, from its standard price; None if no page states it.

    The standard price stays for vendors without rows, such as those whose regions are models of their own.

    Args:
        vendor: the one whose prices apply.
        region: in lower case, and not that of no region.
    """
    rows = [row for row in REGION_PRICES if row.vendor == vendor]
    if not rows:
        return quote
    row = next((row for row in rows if row.models.match(model) and row.region.match(region)), None)
    if row is None:
        return None
    if row.factor == 1:
        return quote
    notes = [f"{row.factor} × in the region {region!r} ({row.source}, {row.read})", row.assumed]
    source = "; ".join([quote.source, notes[0], *(f"assumed: {note}" for note in notes[1:] if note)])
    return Quote(quote.rates.times(row.factor), source, quote.estimated or bool(row.assumed))


def named_region(region: str | None) -> str | None:
    """Return a region in lower case; None for the name of no region."""
    name = (region or "").lower()
    return None if name in _GLOBAL else name
