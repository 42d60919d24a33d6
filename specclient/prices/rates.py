"""The rates of a model, and the quote that a call is billed by."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

from specclient.config import DEFAULT_DEVICE_COST_PER_HOUR, LocalSettings, PriceSettings
from specclient.prices.unit_costs import UnitRate

__all__ = ["EXACT", "PriceRates", "Quote"]

#: Precise enough for any product of a price and a count, independent of the decimal context of the thread.
EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)
_SECONDS_PER_HOUR = Decimal(3600)


@dataclass(frozen=True, slots=True)
class PriceRates:
    """Rates of a model. Tokens of a kind without a rate are billed at the rate of all input or output tokens.

    Attributes:
        input, output, cached_input, cache_write, cache_write_1h, audio_input, image_input,
            cached_audio_input, cached_image_input, reasoning, rejected_prediction, audio_output,
            image_output: dollars per million tokens; ``input`` is None if tokens are not billed.
        per_call, per_search: dollars per call and per web search.
        per_hour: dollars per hour of engine time, by kind.
        units: dollars of other units than tokens, by the kind of :class:`~specclient.types.usage.UsageUnit`.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None
    rejected_prediction: Decimal | None = None
    audio_input: Decimal | None = None
    image_input: Decimal | None = None
    audio_output: Decimal | None = None
    image_output: Decimal | None = None
    cached_audio_input: Decimal | None = None
    cached_image_input: Decimal | None = None
    per_call: Decimal | None = None
    per_search: Decimal | None = None
    per_hour: Mapping[str, Decimal] = field(default_factory=dict)
    units: Mapping[str, UnitRate] = field(default_factory=dict)

    @property
    def by_units_alone(self) -> bool:
        """Whether nothing but units is billed, so that a call costs nothing known without them."""
        return bool(self.units) and self.input is None and self.per_call is None and not self.per_hour

    def times(self, factor: Decimal) -> PriceRates:
        """Return the rates with those of tokens multiplied by a factor."""
        return (
            self
            if factor == 1
            else self._multiplied(factor, kept=("per_call", "per_search", "per_hour", "units"))
        )

    def converted(self, dollars: Decimal) -> PriceRates:
        """Return rates of another currency in dollars.

        Args:
            dollars: for one of the currency.
        """
        per_hour = {kind: EXACT.multiply(rate, dollars) for kind, rate in self.per_hour.items()}
        units = {
            kind: rate._replace(dollars=EXACT.multiply(rate.dollars, dollars))
            for kind, rate in self.units.items()
        }
        changed = self._multiplied(dollars, kept=("per_hour", "units"))
        return replace(changed, per_hour=per_hour, units=units)

    def with_units(self, units: Mapping[str, UnitRate]) -> PriceRates:
        """Return the rates with those of further units, which precede its own."""
        return replace(self, units={**self.units, **units}) if units else self

    def _multiplied(self, factor: Decimal, *, kept: Collection[str]) -> PriceRates:
        """Return the rates multiplied by a factor, but for those with a name in ``kept``."""
        rates = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in kept}
        changed: dict[str, Any] = {
            name: EXACT.multiply(rate, factor) for name, rate in rates.items() if rate is not None
        }
        return replace(self, **changed)

    @classmethod
    def of_settings(cls, price: PriceSettings) -> PriceRates:
        """Return the rates of a ``[prices]`` table."""
        named = price.model_dump(exclude={"per_gpu_second", "tiers", "currency", "units"})
        units = {kind: UnitRate(money) for kind, money in price.units.items()}
        if price.per_gpu_second is None:
            return cls(**named, units=units)
        return cls(
            **named, units=units, per_hour={"engine": EXACT.multiply(price.per_gpu_second, _SECONDS_PER_HOUR)}
        )

    @classmethod
    def of_engine(cls, local: LocalSettings) -> PriceRates:
        """Return the rates of the engine in this process."""
        rate = local.device_cost_per_hour
        per_hour = {"engine": DEFAULT_DEVICE_COST_PER_HOUR if rate is None else rate}
        if local.watts is not None and local.electricity_cost_per_kwh is not None:
            per_hour["electricity"] = EXACT.multiply(
                local.watts.scaleb(-3, context=EXACT), local.electricity_cost_per_kwh
            )
        return cls(per_hour=per_hour)


@dataclass(frozen=True, slots=True)
class Quote:
    """The rates for a call and their source.

    Attributes:
        rates: at the date and for the prompt length of the call.
        source: the source of the price, in words.
        estimated: whether the price is assumed, or found by the model's name alone.
        for_units_alone: whether the configuration prices units of a model whose tokens have no known price.
    """

    rates: PriceRates
    source: str
    estimated: bool = False
    for_units_alone: bool = False
