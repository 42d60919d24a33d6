"""How Vertex AI's prices follow from the catalogue's prices of Google, by location and by kind of traffic.

Sources: Google, "Agent Platform pricing" (https://cloud.google.com/vertex-ai/generative-ai/pricing),
"Priority PayGo", "Flex PayGo" and "Provisioned Throughput"; Anthropic, "Claude on Vertex AI", global and
regional endpoints. The catalogue lists the prices of the location ``global`` and of standard traffic. A
model is unpriced if its listed price does not apply to Vertex AI, or if no page states its price for the
location or the kind of traffic.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, NamedTuple

from specclient.prices.service_tiers import special_tier
from specclient.providers.vertex.place import PRICES, REGIONAL_PRICES
from specclient.types.request import Request

#: The ids of these prices, and the catalogue's id of the prices from which they follow.
IDS: Final = frozenset({PRICES, REGIONAL_PRICES})
CATALOGUE_ID: Final = "google"

#: The kind of traffic that is paid by a reservation, not by tokens (``usageMetadata.trafficType``).
RESERVED: Final = "PROVISIONED_THROUGHPUT"
_PRIORITY, _FLEX = "ON_DEMAND_PRIORITY", "ON_DEMAND_FLEX"
#: Service tiers, as requests name them, and the kinds of traffic that they become.
_TIERS: Final = {"priority": _PRIORITY, "flex": _FLEX}
_PRIORITY_FACTOR, _FLEX_FACTOR = Decimal("1.8"), Decimal("0.5")
_PRIORITY_HEADER = "x-vertex-ai-llm-shared-request-type"
_ONE, _PREMIUM = Decimal(1), Decimal("1.1")

#: Models whose price in Vertex AI differs from the listed price of Gemini's API.
_OTHER_PRICE = re.compile(r"gemini-2\.0-flash(?!-lite)|claude-3-5-haiku|.*-cyber")
#: Models with one price at all locations: Claude before 4.5, Gemini before 3, and text embeddings.
_EVERYWHERE = re.compile(
    r"claude-3|claude-(?:opus|sonnet)-4(?:[@-](?:20\d{6}|0)|-1|$)(?!\d)|gemini-[12]\.|gemini-embedding-001$"
)
#: Models that cost more outside ``global``: Claude since 4.5, and the Gemini models with regional prices.
_DEARER = re.compile(
    r"claude-|gemini-(?:3\.1-flash-(?:lite|image)|3\.[5-8]-flash|3\.5-flash-lite|4-argon|4-hydrogen)(?:-\d+)?$"
)
#: Models whose flex prices are no fixed share of the standard prices.
_IRREGULAR_FLEX = re.compile(r"gemini-2\.5-")


def dearest_traffic(request: Request) -> str | None:
    """Return the most expensive kind of traffic as which a request may be served; None for standard.

    A header, or the service tier, requests "Priority PayGo".
    """
    asked = [value for name, value in request.options.headers.items() if name.lower() == _PRIORITY_HEADER]
    asked += [
        {**request.params, **request.options.body}.get(name) for name in ("service_tier", "serviceTier")
    ]
    return _PRIORITY if any(str(value).lower() == "priority" for value in asked) else None


class PriceFactor(NamedTuple):
    """The factor of a model's listed prices, and a note that explains it; empty for a factor of one."""

    factor: Decimal
    note: str = ""


def factor_of(price_id: str, model: str, traffic: str | None) -> PriceFactor | None:
    """Return the factor of the catalogue's prices of a model; None if its price is not known.

    Args:
        price_id: one of :data:`IDS`.
        model: the model's name, perhaps with its publisher and version.
        traffic: ``usageMetadata.trafficType`` of the answer, or a service tier; None if it has none.
    """
    name = model.rpartition("/")[2].lower()
    if _OTHER_PRICE.match(name):
        return None
    factor, notes = _ONE, list[str]()
    if price_id == REGIONAL_PRICES and not _EVERYWHERE.match(name):
        if not _DEARER.match(name):
            return None
        factor, notes = _PREMIUM, [f"×{_PREMIUM} outside the location global"]
    tier = special_tier(traffic)
    traffic = None if tier is None else _TIERS.get(tier, traffic)
    if traffic == _PRIORITY:
        factor *= _PRIORITY_FACTOR
        notes.append(f"×{_PRIORITY_FACTOR} for priority traffic")
    elif traffic == _FLEX and not _IRREGULAR_FLEX.match(name):
        factor *= _FLEX_FACTOR
        notes.append(f"×{_FLEX_FACTOR} for flex traffic")
    elif traffic is not None:
        return None
    return PriceFactor(factor, ", ".join(notes))
