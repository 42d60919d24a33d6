"""Prices of images and videos that the catalogue lacks, by model, quality and size.

Each row has the page that states it, and the date on which it stated it. What no page was found to state is
unpriced.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Final, NamedTuple

from specclient.prices.billing import PriceRates, Quote
from specclient.prices.unit_costs import UnitRate

__all__ = ["MEDIA_PRICES", "MediaPrice", "media_quote"]


class MediaPrice(NamedTuple):
    """The prices of a model.

    Attributes:
        vendor: the catalogue's id of the vendor.
        model: its name.
        units: dollars by kind of :class:`specclient.types.usage.UsageUnit`.
        source: the page.
        read: when the page stated it.
    """

    vendor: str
    model: str
    units: Mapping[str, Decimal]
    source: str
    read: date


_SORA = "https://developers.openai.com/api/docs/models/sora-2"
_IMAGES, _IMAGES_READ = "https://openai.com/pricing", date(2023, 12, 25)

MEDIA_PRICES: Final = (
    MediaPrice(
        "openai",
        "sora-2",
        {f"video_second {size}": Decimal("0.10") for size in ("720x1280", "1280x720")},
        _SORA,
        date(2026, 11, 27),
    ),
    MediaPrice(
        "openai",
        "sora-2-pro",
        {f"video_second {size}": Decimal("0.30") for size in ("720x1280", "1280x720")},
        _SORA,
        date(2026, 11, 27),
    ),
    MediaPrice(
        "openai",
        "dall-e-3",
        {
            "image standard 1024x1024": Decimal("0.04"),
            "image standard 1024x1792": Decimal("0.08"),
            "image standard 1792x1024": Decimal("0.08"),
            "image hd 1024x1024": Decimal("0.08"),
            "image hd 1024x1792": Decimal("0.12"),
            "image hd 1792x1024": Decimal("0.12"),
        },
        _IMAGES,
        _IMAGES_READ,
    ),
    MediaPrice(
        "openai",
        "dall-e-2",
        {
            "image standard 256x256": Decimal("0.016"),
            "image standard 512x512": Decimal("0.018"),
            "image standard 1024x1024": Decimal("0.02"),
        },
        _IMAGES,
        _IMAGES_READ,
    ),
)


def media_quote(vendor: str, model: str) -> Quote | None:
    """Return the price of a vendor's model; None if there is no row."""
    row = next((row for row in MEDIA_PRICES if (row.vendor, row.model) == (vendor, model)), None)
    if row is None:
        return None
    rates = PriceRates(units={kind: UnitRate(dollars) for kind, dollars in row.units.items()})
    return Quote(rates, f"{row.source}, as of {row.read}")
