"""Prices of images, videos and reranking that the catalogue lacks, by model, quality and size.

Each row has the page that states it, and the date on which it stated it. What no page was found to state is
unpriced.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Final, NamedTuple

from specclient.prices.rates import PriceRates, Quote
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
        input: dollars per million tokens; None if they are not billed.
    """

    vendor: str
    model: str
    units: Mapping[str, Decimal]
    source: str
    read: date
    input: Decimal | None = None


_SORA = "https://developers.openai.com/api/docs/models/sora-2"
_IMAGES, _IMAGES_READ = "https://openai.com/pricing", date(2023, 12, 25)

#: The vendors' pages were read through the table of LiteLLM 1.110.2, which names them.
_LITELLM = "LiteLLM 1.110.2"
_COHERE, _VOYAGE = (
    f"https://cohere.com/pricing ({_LITELLM})",
    f"https://docs.voyageai.com/docs/pricing ({_LITELLM})",
)
_RERANK_READ = date(2026, 11, 27)


def _cohere(model: str, dollars: str) -> MediaPrice:
    """Return the price of a search of a reranking model: one query with up to 100 documents."""
    return MediaPrice("cohere", model, {"search_unit": Decimal(dollars)}, _COHERE, _RERANK_READ)


def _voyage(model: str, dollars: str) -> MediaPrice:
    return MediaPrice("voyageai", model, {}, _VOYAGE, _RERANK_READ, Decimal(dollars))


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
    _cohere("rerank-english-v3.0", "0.002"),
    _cohere("rerank-multilingual-v3.0", "0.002"),
    _cohere("rerank-v3.5", "0.002"),
    _cohere("rerank-v4.0-fast", "0.002"),
    _cohere("rerank-v4.0-pro", "0.0025"),
    _voyage("rerank-2", "0.05"),
    _voyage("rerank-2-lite", "0.02"),
    _voyage("rerank-2.5", "0.05"),
    _voyage("rerank-2.5-lite", "0.02"),
)


def media_quote(vendor: str, model: str) -> Quote | None:
    """Return the price of a vendor's model; None if there is no row."""
    row = next((row for row in MEDIA_PRICES if (row.vendor, row.model) == (vendor, model)), None)
    if row is None:
        return None
    output = None if row.input is None else Decimal(0)
    rates = PriceRates(
        input=row.input, output=output, units={kind: UnitRate(dollars) for kind, dollars in row.units.items()}
    )
    return Quote(rates, f"{row.source}, as of {row.read}")
