"""Tariffs: the price of a call in the form in which routes are compared."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from specclient.prices.billing import total_of
from specclient.prices.rates import Quote

__all__ = ["Tariff"]

_MILLION = 1e6
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Tariff:
    """The price of a call, as a sum over its tokens and seconds.

    Attributes:
        quote: the price, from which exact dollars are computed.
        call, prompt, output, second: dollars per call, per prompt token, per answer token, and per second of
            work on the call; as floats, which is exact enough to compare routes by.
        saved: the dollars that a prompt token costs less if it is cached.
    """

    quote: Quote
    call: float = 0.0
    prompt: float = 0.0
    output: float = 0.0
    second: float = 0.0
    saved: float = 0.0

    @classmethod
    def of(cls, quote: Quote | None) -> Tariff | None:
        """Return a price as a sum, None if the quote does not price a call's tokens."""
        if quote is None:
            return None
        rates = quote.rates
        if (rates.input is not None and rates.output is None) or rates.by_units_alone:
            return None
        return cls(
            quote,
            call=float(rates.per_call or 0),
            prompt=float(rates.input or 0) / _MILLION,
            output=0.0 if rates.input is None else float(rates.output or 0) / _MILLION,
            second=sum(float(rate) for rate in rates.per_hour.values()) / _HOUR,
            saved=0.0
            if rates.input is None or rates.cached_input is None
            else float(rates.input - rates.cached_input) / _MILLION,
        )

    def dollars(
        self,
        prompt_tokens: int,
        tokens: int,
        engine_s: float | None,
        latency_s: float | None,
        cached: int = 0,
    ) -> Decimal | None:
        """Return exact dollars, as :meth:`specclient.prices.prices.Prices.predict`; None where unknown."""
        seconds = latency_s if engine_s is None else engine_s
        return total_of(prompt_tokens, tokens, self.quote.rates, seconds, cached)
