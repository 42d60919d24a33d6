"""Turn the tokens, or the engine seconds, of a call into exact dollars, and say where the price comes from.

A price is looked for in this order: what the vendor itself says it charged; the user's ``[prices]`` tables,
``"provider/model"`` before ``"provider/*"``; for the local engine, its time at ``device_cost_per_hour`` and
its electricity; the ``genai-prices`` catalogue at the date of the call, by the model that served it before
the one that was asked for; else the call is unpriced, which is not the same as free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from specclient.config import ANY_VENDOR, Settings
from specclient.prices.billing import BillingContext, PriceRates, Quote, bill
from specclient.prices.cache import ModelPrice, find_price
from specclient.types.usage import Cost, Usage

__all__ = ["Prices"]

LOCAL = "local"

#: Models whose place in the catalogue a client keeps in mind.
_MOST = 4096

logger = logging.getLogger("specclient")

#: Whose word counts for what a call cost, and the field of the usage that is that word: OpenRouter, "Usage
#: accounting"; xAI, "Cost tracking". A field of the same name from anyone else need not mean the same.
_TELLS: Mapping[str, str] = {"openrouter": "cost", "x-ai": "cost_in_usd_ticks"}


class Prices:
    """The prices a client's settings and the catalogue give.

    Args:
        settings: ``prices`` and ``local`` are read.
        now: the clock, for predictions.
    """

    def __init__(
        self, settings: Settings, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._now = now
        tables = settings.prices
        self._exact = {route: table for route, table in tables.items() if not route.endswith("*")}
        patterns = ((route, table) for route, table in tables.items() if route.endswith("*"))
        self._patterns = sorted(patterns, key=lambda each: -len(each[0]))  # the closest first
        self._engine = PriceRates.of_engine(settings.local)
        self._assumed = settings.local.device_cost_per_hour is None
        self._listed: dict[tuple[str, str], ModelPrice | None] = {}

    def ready(self, provider: str, model: str, price_provider: str | None) -> bool:
        """Tell whether a price of this model needs no file and no catalogue to be read; see :meth:`warm`."""
        if price_provider is None or provider == LOCAL or (price_provider, model) in self._listed:
            return True
        return self._table([f"{provider}/{model}"]) is not None  # which stands over the catalogue

    def warm(self, model: str, price_provider: str) -> None:
        """Look a model up, which its first price would otherwise wait for."""
        self._look(price_provider, model)

    def _look(self, vendor: str, name: str) -> ModelPrice | None:
        key = vendor, name
        if key not in self._listed:
            if len(self._listed) >= _MOST:
                self._listed.clear()
            self._listed[key] = find_price(vendor, name)
        return self._listed[key]

    def price(
        self,
        usage: Usage,
        provider: str,
        model: str,
        *,
        price_provider: str | None = None,
        at: datetime,
        engine_s: float | None = None,
        served: str | None = None,
        latency_s: float | None = None,
        rejected_billed: bool | None = None,
    ) -> Cost:
        """Price one finished call.

        Args:
            usage: tokens; those read from and written to a cache are inside ``prompt``.
            provider: the endpoint's name, ``local`` for the engine in this process.
            model: as it was asked for there.
            price_provider: the vendor whose prices hold at this endpoint; None where there are none,
                :data:`specclient.config.ANY_VENDOR` where it is not known whose endpoint it is.
            at: when the call was made; a price that has changed since is taken as it was.
            engine_s: seconds of engine time, for local calls.
            served: the model as the answer names it: often a dated snapshot of the one asked for.
            latency_s, rejected_billed: as in :class:`specclient.prices.billing.BillingContext`.

        Returns:
            ``total`` is None where the price or a count it needs is unknown, and ``source`` says which.
            The first call of each model without a price is logged as a warning. Never raises.
        """
        for charge in usage.charges:
            if price_provider is not None and _TELLS.get(price_provider) == charge.field:
                source = f"told by the provider: usage.{charge.field}"
                return Cost(total=charge.dollars, by_kind={"reported": charge.dollars}, source=source)
        quote = self.quote(
            provider, model, price_provider=price_provider, served=served, at=at, prompt=usage.prompt or 0
        )
        if quote is None:
            route = f"{provider}/{model}"
            source = f'no price for {route}; set [prices."{route}"] in specclient.toml'
            _warn_once(source)
            return Cost(source=source, estimated=usage.estimated)
        return bill(usage, quote, BillingContext(engine_s, latency_s, rejected_billed))

    def predict(
        self,
        prompt_tokens: int,
        completion_tokens: int,
        provider: str,
        model: str,
        *,
        price_provider: str | None = None,
        engine_s: float | None = None,
        latency_s: float | None = None,
    ) -> Decimal | None:
        """Return the dollars a call of this size would cost now, None where unknown; warns of nothing.

        Args:
            engine_s, latency_s: predicted seconds of engine time, and of the call; the rest as in
                :meth:`price`.
        """
        quote = self.quote(provider, model, price_provider=price_provider, prompt=prompt_tokens)
        if quote is None:
            return None
        usage = Usage(prompt=prompt_tokens, completion=completion_tokens)
        return bill(usage, quote, BillingContext(engine_s, latency_s)).total

    def quote(
        self,
        provider: str,
        model: str,
        *,
        price_provider: str | None = None,
        served: str | None = None,
        at: datetime | None = None,
        prompt: int = 0,
    ) -> Quote | None:
        """Return what would be charged, and from where that is known; None where there is no price.

        Args:
            at: a date, now by default.
            prompt: tokens of the prompt, for prices that rise with its length; the rest as in :meth:`price`.
        """
        asked = [name for name in (served, model) if name]
        table = self._table([f"{provider}/{name}" for name in asked])
        if table is not None:
            return table
        if provider == LOCAL:
            return self._of_engine()
        if price_provider is None:
            return None
        at = at or self._now()
        for name in asked:
            found = self._look(price_provider, name)
            rates = None if found is None else found.rates(at, prompt)
            if found is not None and rates is not None:
                source = f"{found.catalogue}: {found.vendor}/{found.model} on {at.date()}"
                if price_provider != ANY_VENDOR:
                    return Quote(rates, source)
                note = "priced by model name; the endpoint is not known"
                return Quote(rates, f"{source}; {note}", estimated=True)
        return None

    def steps(self, provider: str, model: str, price_provider: str | None) -> tuple[int, ...] | None:
        """Return when a model's price changes: the lengths of prompts, in tokens, beyond which it is another.

        None where it is the same for every prompt and at any time; what is not may change with the date, too.
        """
        if price_provider is None or provider == LOCAL or self._table([f"{provider}/{model}"]) is not None:
            return None
        found = self._look(price_provider, model)
        return None if found is None or found.dated is None else found.steps()

    def _table(self, routes: Sequence[str]) -> Quote | None:
        """Return the user's own price for the first of these routes that has one; exact ones come first."""
        named = next((route for route in routes if route in self._exact), None)
        if named is not None:
            return Quote(
                PriceRates.of_settings(self._exact[named]), f'[prices."{named}"] in the configuration'
            )
        for route in routes:
            for pattern, table in self._patterns:
                if route.startswith(pattern[:-1]):
                    return Quote(PriceRates.of_settings(table), f'[prices."{pattern}"] in the configuration')
        return None

    def _of_engine(self) -> Quote:
        source = f"engine time at ${self._engine.per_hour['engine']} an hour"
        if "electricity" in self._engine.per_hour:
            source += " and its electricity"
        if self._assumed:
            source += " (assumed; set device_cost_per_hour under [local] in specclient.toml)"
        return Quote(self._engine, source, estimated=self._assumed)


@lru_cache(maxsize=1024)
def _warn_once(message: str) -> None:
    logger.warning("%s (the call is recorded as unpriced)", message)
