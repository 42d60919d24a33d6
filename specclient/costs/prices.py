"""Turn the tokens, or the engine seconds, of a call into exact dollars, and say where the price comes from.

A price is looked for in this order: the user's ``[prices."provider/model"]`` table; for the local
engine, its time at ``device_cost_per_hour``; the ``genai-prices`` catalogue at the date of the call;
else the call is unpriced, which is not the same as free.

Money is ``Decimal`` throughout. A price per million tokens times a count is exact and is not rounded;
engine time is a measurement and is rounded to the nano-dollar.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from specclient.config import DEFAULT_DEVICE_COST_PER_HOUR, PriceSettings, Settings
from specclient.forks import uncut
from specclient.types.usage import Cost, Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

__all__ = ["Prices"]

LOCAL = "local"

logger = logging.getLogger("specclient")

#: Wide enough for every product of a price and a count, whatever context the caller's thread has set.
_EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)
_ZERO = Decimal(0)
_NANO_STEP = Decimal("1e-9")
_SECONDS_PER_HOUR = Decimal(3600)


@dataclass(frozen=True, slots=True)
class Rates:
    """What tokens cost, in dollars per million; a part without a rate of its own is billed with its whole."""

    input: Decimal
    output: Decimal | None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None
    per_thousand_requests: Decimal | None = None


class Prices:
    """The prices a client's settings and the catalogue give.

    Args:
        settings: ``prices`` and ``local.device_cost_per_hour`` are read.
        now: the clock, for predictions.
    """

    def __init__(
        self, settings: Settings, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._now = now
        self._overrides = settings.prices
        self._device_rate = settings.local.device_cost_per_hour
        self._match: Callable[[str, str], ModelInfo | None] = lru_cache(maxsize=1024)(_find)

    def warm(self) -> None:
        """Load the catalogue, which the first price would otherwise wait for."""
        import genai_prices.data_snapshot  # noqa: PLC0415

        genai_prices.data_snapshot.get_snapshot()

    def price(
        self,
        usage: Usage,
        provider: str,
        model: str,
        *,
        price_provider: str | None = None,
        at: datetime,
        engine_s: float | None = None,
    ) -> Cost:
        """Price one finished call.

        Args:
            usage: tokens; those read from and written to a cache are inside ``prompt``.
            provider: the endpoint's name, ``local`` for the engine in this process.
            model: as the price list names it.
            price_provider: the vendor whose prices hold at this endpoint, where that is not its name.
            at: when the call was made; a price that has changed since is taken as it was.
            engine_s: seconds of engine time, for local calls.

        Returns:
            ``total`` is None where the price or a count it needs is unknown, and ``source`` says which.
            The first call of each model without a price is logged as a warning.
        """
        cost = self._price(usage, provider, model, price_provider=price_provider, at=at, engine_s=engine_s)
        if cost is None:
            source = f'no price for {provider}/{model}; set [prices."{provider}/{model}"] in specclient.toml'
            _warn_once(source)
            return Cost(source=source, estimated=usage.estimated)
        return cost

    def predict(
        self,
        prompt_tokens: int,
        completion_tokens: int,
        provider: str,
        model: str,
        *,
        price_provider: str | None = None,
        engine_s: float | None = None,
    ) -> Decimal | None:
        """Return the dollars a call of this size would cost now, None where unknown; warns of nothing.

        Args:
            engine_s: predicted seconds of engine time, for local calls; the rest as in :meth:`price`.
        """
        usage = Usage(prompt=prompt_tokens, completion=completion_tokens)
        cost = self._price(
            usage, provider, model, price_provider=price_provider, at=self._now(), engine_s=engine_s
        )
        return None if cost is None else cost.total

    def _price(
        self,
        usage: Usage,
        provider: str,
        model: str,
        *,
        price_provider: str | None,
        at: datetime,
        engine_s: float | None,
    ) -> Cost | None:
        route = f"{provider}/{model}"
        if override := self._overrides.get(route):
            return _of_tokens(usage, _of_settings(override), f'[prices."{route}"] in the configuration')
        if provider == LOCAL:
            return self._of_engine_time(engine_s)
        if price_provider is None:
            return None
        matched = self._match(price_provider, model)
        rates = None if matched is None else _of_catalogue(matched.get_prices(at), usage.prompt)
        if matched is None or rates is None:
            return None
        return _of_tokens(usage, rates, f"genai-prices: {price_provider}/{matched.id} on {at:%Y-%m-%d}")

    def _of_engine_time(self, engine_s: float | None) -> Cost:
        assumed = self._device_rate is None
        rate = DEFAULT_DEVICE_COST_PER_HOUR if self._device_rate is None else self._device_rate
        source = f"engine time at ${rate} an hour"
        if assumed:
            source += " (assumed; set device_cost_per_hour under [local] in specclient.toml)"
        if engine_s is None:
            return Cost(source=f"engine time unknown; {source}", estimated=assumed)
        seconds = Decimal(repr(engine_s))
        dollars = _EXACT.divide(_EXACT.multiply(rate, seconds), _SECONDS_PER_HOUR)
        dollars = dollars.quantize(_NANO_STEP, context=_EXACT)
        return Cost(total=dollars, by_kind={"engine": dollars}, source=source, estimated=assumed)


def _of_tokens(usage: Usage, rates: Rates, source: str) -> Cost:
    """Bill every token once: the parts of the prompt that have a rate of their own, then the rest of it."""
    unknown = [name for name in ("prompt", "completion") if getattr(usage, name) is None]
    if unknown:
        return Cost(source=f"{' and '.join(unknown)} tokens unknown; {source}", estimated=usage.estimated)
    usage, note = _consistent(usage)
    prompt, completion = usage.prompt or 0, usage.completion or 0
    if rates.output is None and completion:
        return Cost(source=f"no price for generated tokens; {source}", estimated=usage.estimated)
    by_kind: dict[str, Decimal] = {}
    for kind, rate, count in (
        ("cached_input", rates.cached_input, usage.cached or 0),
        ("cache_write", rates.cache_write, usage.cache_write or 0),
    ):
        if rate is not None and count:
            by_kind[kind] = _bill(rate, count)
            prompt -= count
    by_kind["input"] = _bill(rates.input, prompt)
    reasoning = (usage.reasoning or 0) if rates.reasoning is not None else 0
    by_kind["output"] = _EXACT.add(
        _bill(rates.output or _ZERO, completion - reasoning), _bill(rates.reasoning or _ZERO, reasoning)
    )
    if rates.per_thousand_requests is not None:
        by_kind["request"] = rates.per_thousand_requests.scaleb(-3, context=_EXACT)
    total = _ZERO
    for dollars in by_kind.values():
        total = _EXACT.add(total, dollars)
    return Cost(total=total, by_kind=by_kind, source=source + note, estimated=usage.estimated)


def _consistent(usage: Usage) -> tuple[Usage, str]:
    """Cut parts that exceed their whole, as a server might report them, and mark the result an estimate."""
    prompt, completion = usage.prompt or 0, usage.completion or 0
    cached = min(usage.cached or 0, prompt)
    written = min(usage.cache_write or 0, prompt - cached)
    reasoning = min(usage.reasoning or 0, completion)
    if (cached, written, reasoning) == (usage.cached or 0, usage.cache_write or 0, usage.reasoning or 0):
        return usage, ""
    cut = replace(usage, cached=cached, cache_write=written, reasoning=reasoning, estimated=True)
    return cut, "; the reported parts exceeded their whole and were cut"


def _bill(rate: Decimal, count: int) -> Decimal:
    return _EXACT.multiply(rate, Decimal(count)).scaleb(-6, context=_EXACT)


def _of_settings(price: PriceSettings) -> Rates:
    return Rates(input=price.input, output=price.output, cached_input=price.cached_input)


def _of_catalogue(price: ModelPrice, prompt: int | None) -> Rates | None:
    """Read the rates for text tokens; None where the model is priced by something else (pages, hours)."""
    listed: dict[str, Decimal | TieredPrices | None] = vars(price)

    def rate(key: str) -> Decimal | None:
        value = listed.get(key)
        if value is None or isinstance(value, Decimal):
            return value
        reached = [tier.price for tier in value.tiers if (prompt or 0) > tier.start]  # tiers ascend
        return reached[-1] if reached else value.base

    whole = rate("input_mtok")
    if whole is None:
        return None
    return Rates(
        input=whole,
        output=rate("output_mtok"),
        cached_input=rate("cache_read_mtok"),
        cache_write=rate("cache_write_mtok"),
        reasoning=rate("output_reasoning_mtok"),
        per_thousand_requests=rate("requests_kcount"),
    )


def _find(vendor: str, model: str) -> ModelInfo | None:
    """Find a model in the catalogue."""
    with uncut:
        from genai_prices.data_snapshot import find_provider_by_id, get_snapshot  # noqa: PLC0415 - 0.2 s

    snapshot = get_snapshot()
    provider = find_provider_by_id(snapshot.providers, vendor)
    return None if provider is None else provider.find_model(model.lower(), all_providers=snapshot.providers)


@lru_cache(maxsize=1024)
def _warn_once(message: str) -> None:
    logger.warning("%s (the call is recorded as unpriced)", message)
