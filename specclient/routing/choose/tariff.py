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
        saved, written: the dollars that a prompt token costs less if it is cached, and more if it is written
            to the cache.
    """

    quote: Quote
    call: float = 0.0
    prompt: float = 0.0
    output: float = 0.0
    second: float = 0.0
    saved: float = 0.0
    written: float = 0.0

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
            written=0.0
            if rates.input is None or rates.cache_write is None
            else float(rates.cache_write - rates.input) / _MILLION,
        )

    def cache_dollars(self, prompt_tokens: float, cached: float, *, writes: bool) -> float:
        """Return the dollars that a prompt cache adds to a call; negative if it saves some.

        Args:
            cached: the tokens of the prompt that the cache holds.
            writes: whether the other ones are written to it.
        """
        added = self.written * max(prompt_tokens - cached, 0.0) if writes else 0.0
        return added - self.saved * cached

    def dollars(
        self,
        prompt_tokens: int,
        tokens: int,
        engine_s: float | None,
        latency_s: float | None,
        cached: int = 0,
        *,
        writes: bool = False,
    ) -> Decimal | None:
        """Return exact dollars, as :meth:`specclient.prices.prices.Prices.predict`; None where unknown.

        Args:
            cached, writes: as in :meth:`cache_dollars`.
        """
        seconds = latency_s if engine_s is None else engine_s
        rates = self.quote.rates
        total = total_of(prompt_tokens, tokens, rates, seconds, cached)
        if total is None or not writes or rates.input is None or rates.cache_write is None:
            return total
        return total + (rates.cache_write - rates.input) * max(prompt_tokens - cached, 0) / 1_000_000
