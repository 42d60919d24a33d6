"""Prices of what vendors bill beside tokens: containers, searches, storage, training.

Each row has the page that states it, and the date on which it stated it. What no page was found to state is
unpriced; a ``units`` table under ``[prices."PROVIDER/*"]`` prices it, and overrides these rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from specclient.prices.unit_costs import UnitRate

__all__ = ["FREE_STORAGE_GB", "TOOL_PRICES", "ToolPrice", "session_minutes", "tool_rates"]


class ToolPrice(NamedTuple):
    """Prices of a vendor.

    Attributes:
        vendor: the catalogue's id of the vendor.
        models: matches the names of the models that they apply to.
        units: dollars by kind of :class:`specclient.types.usage.UsageUnit`.
        per: the number of units of a price.
        source: the page.
        read: the newest date that the page stated when it was read.
        assumed: what a cost at this price assumes; empty if nothing.
    """

    vendor: str
    models: re.Pattern[str]
    units: Mapping[str, Decimal]
    per: int
    source: str
    read: date
    assumed: str = ""


_ALL = re.compile("")
_OPENAI, _OPENAI_READ = "https://developers.openai.com/api/docs/pricing", date(2026, 7, 30)
#: The page when GPT-5.1 was its newest model; later ones say that fine-tuning ends, and list fewer prices.
_TRAINING_READ = date(2025, 11, 13)


def _training(model: str, dollars: str) -> ToolPrice:
    """Return the price of a million trained tokens of a model."""
    units = {"trained_token": Decimal(dollars)}
    return ToolPrice("openai", re.compile(f"{re.escape(model)}$"), units, 10**6, _OPENAI, _TRAINING_READ)


TOOL_PRICES: Final = (
    ToolPrice(
        "openai",
        _ALL,
        {
            "code_container 1g": Decimal("0.03"),
            "code_container 4g": Decimal("0.12"),
            "code_container 16g": Decimal("0.48"),
            "code_container 64g": Decimal("1.92"),
        },
        1,
        _OPENAI,
        _OPENAI_READ,
        "20 minutes a container, as answers do not state the billed ones, of which there are at least 5",
    ),
    ToolPrice(
        "azure",
        _ALL,
        {"code_container": Decimal("0.033")},
        1,
        "https://azure.microsoft.com/pricing/details/cognitive-services/openai-service/ (LiteLLM 1.110.2)",
        date(2026, 11, 27),
        "one session a container and hour",
    ),
    ToolPrice("openai", _ALL, {"file_search": Decimal("2.50")}, 1000, _OPENAI, _OPENAI_READ),
    ToolPrice(
        "openai",
        _ALL,
        {"web_search": Decimal(10)},
        1000,
        _OPENAI,
        _OPENAI_READ,
        "the tool web_search, not its preview, which costs more with some models",
    ),
    ToolPrice("openai", _ALL, {"storage_gb_day": Decimal("0.10")}, 1, _OPENAI, _OPENAI_READ),
    *(
        _training(model, dollars)
        for model, dollars in (
            ("gpt-4.1-2025-04-14", "25"),
            ("gpt-4.1-mini-2025-04-14", "5"),
            ("gpt-4.1-nano-2025-04-14", "1.5"),
            ("gpt-4o-2024-08-06", "25"),
            ("gpt-4o-mini-2024-07-18", "3"),
            ("davinci-002", "6"),
            ("babbage-002", "0.4"),
        )
    ),
    ToolPrice(
        "openai",
        re.compile(r"gpt-3\.5-turbo(-\d{4})?$"),
        {"trained_token": Decimal(8)},
        10**6,
        _OPENAI,
        _TRAINING_READ,
    ),
)

#: Gigabytes (2^30 bytes) of an account's vector stores that a vendor stores free of charge, by its id.
FREE_STORAGE_GB: Final[Mapping[str, int]] = {"openai": 1}
#: Minutes of a container that its price covers, by vendor; OpenAI's otherwise.
_SESSIONS: Final[Mapping[str, int]] = {"azure": 60}


def session_minutes(vendor: str | None) -> int:
    """Return the minutes of a container that one price of it covers."""
    return _SESSIONS.get(vendor or "", 20)


#: Kinds that are billed without a call to a model.
_WITHOUT_CALLS: Final = frozenset({"trained_token", "storage_gb_day"})


@lru_cache(maxsize=1024)
def tool_rates(vendor: str | None, model: str, *, of_calls: bool = False) -> Mapping[str, UnitRate]:
    """Return the rates of a vendor for a model, by kind; the earlier row wins.

    Args:
        of_calls: only those of what a call to the model may use.
    """
    found: dict[str, UnitRate] = {}
    for row in TOOL_PRICES:
        if row.vendor == vendor and row.models.match(model):
            source = f"{row.source}, as of {row.read}"
            for kind, dollars in row.units.items():
                if of_calls and kind in _WITHOUT_CALLS:
                    continue
                found.setdefault(kind, UnitRate(dollars, row.per, source, row.assumed))
    return MappingProxyType(found)
