"""Service tiers: which of a model's prices a call has.

The tier that served a call decides, as its answer reports it (OpenAI, "Flex processing" and "Priority
processing", ``service_tier`` of the response; Anthropic, "Service tiers" and "Fast mode"). The catalogue
lists the prices of tiers as variants of a model's prices. A tier without a listed price is unpriced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specclient.types.request import Request

__all__ = [
    "LONGEST_TIER",
    "STANDARD",
    "dearer_tier",
    "is_reserved",
    "price_context",
    "priced_tier",
    "requested_tier",
    "special_tier",
    "tier_name",
]

#: Largest number of characters of a tier that is kept of a request or an answer.
LONGEST_TIER: Final = 64
#: The names of the standard tier, or of a choice that is left to the vendor, in lower case.
_STANDARD: Final = frozenset(
    {"", "auto", "default", "standard", "standard_only", "on_demand", "on-demand", "traffic_type_unspecified"}
)
#: The name of the standard tier in records.
STANDARD: Final = "standard"
#: The beginning of Vertex AI's names of tiers (``usageMetadata.trafficType``).
_ON_DEMAND: Final = "on_demand_"
#: Tiers that are paid by a reservation, not by tokens (OpenAI, "Scale Tier"; Anthropic, "Service tiers").
_RESERVED: Final = frozenset({("openai", "scale"), ("azure", "scale"), ("anthropic", "priority")})
#: Tiers with the price of the standard one (Groq, "Flex Processing", as of 2026-11).
_SAME_PRICE: Final = frozenset({("groq", "flex")})
#: Tiers that cost more than the standard one.
_DEARER: Final = frozenset({"priority", "fast"})


def special_tier(tier: str | None) -> str | None:
    """Return a tier in lower case; None for the standard tier, and for no tier."""
    name = (tier or "").lower()
    return None if name in _STANDARD else name


def tier_name(served: str | None, requested: str | None) -> str | None:
    """Return the name of a call's tier for its record, None if neither the answer nor the request has one.

    Args:
        served: as the answer names it; it precedes the requested one.
        requested: a tier other than the standard one.
    """
    if served is None:
        return requested
    return (special_tier(served) or STANDARD).removeprefix(_ON_DEMAND)


def priced_tier(vendor: str, tier: str | None) -> str | None:
    """Return :func:`special_tier`, but None also for a tier of a vendor that has the standard price."""
    name = special_tier(tier)
    return None if (vendor, name) in _SAME_PRICE else name


def is_reserved(vendor: str | None, tier: str | None) -> bool:
    """Return whether calls of a vendor's tier are paid by a reservation."""
    return (vendor, special_tier(tier)) in _RESERVED


def price_context(vendor: str, tier: str) -> Mapping[str, str]:
    """Return the key by which the catalogue selects the prices of a tier.

    Args:
        vendor: the catalogue's id of the vendor.
        tier: a tier other than the standard one, in lower case.
    """
    if tier == "batch":
        return {"processing": "batch"}
    return {"speed" if vendor == "anthropic" else "service_tier": tier}


def requested_tier(request: Request) -> str | None:
    """Return the service tier that a request asks for, in lower case; None for the standard one.

    It has at most :data:`LONGEST_TIER` characters, because the record of the call keeps it.
    """
    body = request.options.body
    for name in ("service_tier", "serviceTier"):
        asked = body.get(name, request.params.get(name))
        if isinstance(asked, str) and (tier := special_tier(asked[:LONGEST_TIER])) is not None:
            return tier
    return "fast" if body.get("speed", request.params.get("speed")) == "fast" else None


def dearer_tier(request: Request) -> str | None:
    """Return the requested tier if it costs more than the standard one; None otherwise.

    A vendor may serve the call by the standard tier instead, for less.
    """
    asked = requested_tier(request)
    return asked if asked in _DEARER else None
