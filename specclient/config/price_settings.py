"""The tables of the configuration about money: prices and currencies."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Final, Self

import pydantic
from pydantic import Field
from pydantic_core import PydanticCustomError

from specclient.config.tables import DOLLAR, Price, SettingsTable

__all__ = ["CurrencySettings", "PriceSettings"]

#: The first words of the kinds of :class:`specclient.types.usage.UsageUnit`.
UNIT_KINDS: Final = (
    "annotated_page", "audio_second", "character", "code_container", "code_execution", "file_search", "image",
    "page", "search_unit", "storage_gb_day", "trained_token", "video_second", "web_search",
)  # fmt: skip


class CurrencySettings(SettingsTable):
    """A ``[currencies.CODE]`` table: the value of a currency.

    Attributes:
        usd: US dollars for one.
        on: the date of this rate.
    """

    usd: Annotated[Decimal, Field(gt=0, allow_inf_nan=False)]
    on: date


class PriceSettings(SettingsTable):
    """A ``[prices."provider/model"]`` table; ``provider/*`` applies to its models without one.

    Attributes:
        currency: the currency of the prices: ``USD``, or one with a ``[currencies]`` table.
        input, output, cached_input, cache_write, cache_write_1h, reasoning, rejected_prediction: money
            per million tokens. Without their own price, cached and written tokens cost as ``input``, and
            reasoning and rejected prediction tokens as ``output``.
        per_call: money per call.
        per_gpu_second: money per second that an engine, or else a server, worked on a call.
        units: money per unit of what is not billed by tokens, by the kind of
            :class:`specclient.types.usage.UsageUnit`, or its first word: ``{page = 0.001}``. A table with
            nothing else leaves the prices of tokens to the catalogue.
        tiers: prices of service tiers, by the tier's name (``flex``, ``priority``, ``batch``). A call of a
            tier without its own price has this price, marked as an estimate. A table with nothing else leaves
            the standard tier to the catalogue.
    """

    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = DOLLAR
    input: Price | None = None
    output: Price | None = None
    cached_input: Price | None = None
    cache_write: Price | None = None
    cache_write_1h: Price | None = None
    reasoning: Price | None = None
    rejected_prediction: Price | None = None
    per_call: Price | None = None
    per_gpu_second: Price | None = None
    units: dict[str, Price] = Field(default_factory=dict)
    tiers: dict[str, PriceSettings] = Field(default_factory=dict)

    @pydantic.field_validator("units", mode="after")
    @classmethod
    def _known_units(cls, units: dict[str, Price]) -> dict[str, Price]:
        """Refuse a unit that no call has, whose price would never be used."""
        for kind in units:
            if kind.partition(" ")[0] not in UNIT_KINDS:
                raise PydanticCustomError(
                    "unit",
                    "{kind} is not a unit that is billed; allowed are {known}, also followed by what sets "
                    "the price, such as 'code_container 4g'",
                    {"kind": repr(kind), "known": ", ".join(UNIT_KINDS)},
                )
        return units

    @pydantic.model_validator(mode="after")
    def _whole(self) -> Self:
        """Refuse a table without a price for prompt or completion tokens."""
        given = self.model_fields_set - {"tiers", "currency"}
        if given != {"units"}:
            given = given - {"units"}
        missing = [name for name in ("input", "output") if name not in given]
        if missing == ["input", "output"] and given & {"per_call", "per_gpu_second"} == given and given:
            return self
        if given <= {"units"} and (self.tiers or self.units):
            return self
        if missing:
            raise PydanticCustomError(
                "needed",
                "a price has input and output (dollars per million tokens), per_call or per_gpu_second "
                "(dollars), or units (dollars by kind)",
                {"key": missing[0]},
            )
        return self
