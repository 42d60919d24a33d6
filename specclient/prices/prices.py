"""The price of a call in exact dollars, and the source of the price.

Sources, the first that has a price wins: the charge in the vendor's own response; the user's ``[prices]``
tables, ``"provider/model"`` before ``"provider/*"``; for the local engine, its time at
``device_cost_per_hour`` and its electricity; the ``genai-prices`` catalogue at the date of the call, for the
model that the response names, then for the requested one. Otherwise the call is unpriced, which is not the
same as free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from specclient.config import ANY_VENDOR, Settings
from specclient.prices import vertex
from specclient.prices.billing import BillingContext, bill
from specclient.prices.cache import ModelPrice, find_price
from specclient.prices.media_prices import media_quote
from specclient.prices.price_tables import PriceTables
from specclient.prices.rates import PriceRates, Quote
from specclient.prices.region_prices import in_region, named_region
from specclient.prices.service_tiers import priced_tier, special_tier, tier_name
from specclient.prices.tier_rates import TierRates, tier_rates
from specclient.prices.unit_prices import UnitPrices
from specclient.prices.unpriced import unpriced_reason
from specclient.runtime.forks import import_lock
from specclient.types.usage import Cost, Usage

__all__ = ["Prices"]

LOCAL = "local"

#: The id of Amazon Bedrock's prices. The catalogue lists no flex and priority prices, which differ
#: (https://aws.amazon.com/bedrock/pricing/).
_AWS = "aws"

#: Largest number of catalogue look-ups that a client remembers.
_MAX_LOOKUPS = 4096

#: Vendors whose responses state the charge, and the field of the usage with it: OpenRouter, "Usage
#: accounting"; xAI, "Cost tracking". A field of that name from another vendor may mean something else.
_CHARGE_FIELDS: Mapping[str, str] = {"openrouter": "cost", "x-ai": "cost_in_usd_ticks"}


class Prices:
    """Prices from a client's settings and the catalogue.

    Args:
        settings: the source of ``prices`` and ``local``.
        now: the clock, used for predictions.

    Attributes:
        units: the prices of what is not billed by tokens.
    """

    def __init__(
        self, settings: Settings, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._now = now
        self._tables = PriceTables(settings.prices, settings.currencies)
        self._engine = PriceRates.of_engine(settings.local)
        self._assumed = settings.local.device_cost_per_hour is None
        self.units = UnitPrices(self._tables)
        self._lookups: dict[tuple[str, str], ModelPrice | None] = {}
        self._windows: dict[tuple[str, str], int | None] = {}
        #: Quotes that depend on nothing but the day, with the day.
        self._quotes: dict[tuple[str | None, ...], tuple[int, Quote]] = {}

    def is_loaded(self, provider: str, model: str, price_provider: str | None) -> bool:
        """Return whether a model's price needs no file or catalogue to be read; see :meth:`load`."""
        if price_provider is None or provider == LOCAL or (price_provider, model) in self._lookups:
            return True
        return self._tables.quote([f"{provider}/{model}"]) is not None  # it precedes the catalogue

    def load(self, model: str, price_provider: str) -> None:
        """Look up a model in the catalogue, so that its first price does not wait for it."""
        self._catalogue_price(price_provider, model)

    def _catalogue_price(self, vendor: str, name: str) -> ModelPrice | None:
        key = vendor, name
        if key not in self._lookups:
            if len(self._lookups) >= _MAX_LOOKUPS:
                self._lookups.clear()
            self._lookups[key] = find_price(vendor, name)
        return self._lookups[key]

    def loaded_context(self, price_provider: str | None, model: str) -> int | None:
        """Return a model's context as :meth:`context_window` does, but None before its price was looked up.

        It never waits for the catalogue to be read.
        """
        if price_provider is None or (price_provider, model) not in self._lookups:
            return None
        return self.context_window(price_provider, model)

    def context_window(self, price_provider: str | None, model: str) -> int | None:
        """Return a model's context in tokens, from the catalogue; None where unknown.

        The first look-up may load the catalogue.

        Args:
            price_provider: as for :meth:`price`.
            model: as requested from the endpoint.
        """
        if price_provider is None:
            return None
        key = price_provider, model
        if key not in self._windows:
            with import_lock:
                from specclient.prices.catalogue import find_model  # noqa: PLC0415 - loads the catalogue

            found = find_model(price_provider, model)
            if len(self._windows) >= _MAX_LOOKUPS:
                self._windows.clear()
            self._windows[key] = None if found is None else found.model.context_window
        return self._windows[key]

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
        requested_tier: str | None = None,
    ) -> Cost:
        """Price one finished call.

        Args:
            usage: tokens; those read from and written to a cache are inside ``prompt``.
            provider: the endpoint's name, ``local`` for the engine in this process.
            model: as requested from that endpoint.
            price_provider: the vendor whose prices apply at the endpoint; None if there is none,
                :data:`specclient.config.ANY_VENDOR` if the vendor is unknown.
            at: the time of the call; prices are those of that date.
            engine_s: seconds of engine time, for local calls.
            served: the model that the response names, often a dated snapshot of the requested one.
            latency_s, rejected_billed: as in :class:`specclient.prices.billing.BillingContext`.
            requested_tier: the service tier that the request asks for, other than the standard one. The cost
                is an estimate if the answer does not name the tier that served it.

        Returns:
            The cost. ``total`` is None if the price, or a token count that it needs, is unknown; ``source``
            says which. The first call of each model without a price is logged as a warning. Never raises.
        """
        tier = tier_name(usage.traffic, requested_tier)
        for charge in usage.charges:
            if price_provider is not None and _CHARGE_FIELDS.get(price_provider) == charge.field:
                source = f"reported by the provider: usage.{charge.field}"
                by_kind = {"reported": charge.dollars}
                return Cost(total=charge.dollars, by_kind=by_kind, source=source, tier=tier)
        traffic = usage.traffic or requested_tier
        quote = self.quote(
            provider,
            model,
            price_provider=price_provider,
            served=served,
            at=at,
            prompt=usage.prompt or 0,
            traffic=traffic,
        )
        region = None if quote is None else named_region(usage.region)
        routes = [f"{provider}/{name}" for name in (served, model) if name]
        if quote is not None and region is not None and not self._has_table(routes, traffic):
            quote = in_region(quote, price_provider, served or model, region)
        if quote is None or (quote.for_units_alone and _is_by_tokens(usage)):
            source = unpriced_reason(f"{provider}/{model}", price_provider, traffic, region)
            return Cost(source=source, estimated=usage.estimated, tier=tier)
        if usage.traffic is None and requested_tier is not None:
            note = f"the answer names no service tier, so the requested {requested_tier!r} is assumed"
            quote = replace(quote, source=f"{quote.source}; {note}", estimated=True)
        if usage.units:
            usage = self.units.new_in(usage, provider, price_provider, at)
        cost = bill(usage, quote, BillingContext(engine_s, latency_s, rejected_billed))
        return cost if tier is None else replace(cost, tier=tier)

    def _has_table(self, routes: Sequence[str], traffic: str | None) -> bool:
        """Return whether the configuration prices the tokens of a model in a service tier."""
        return self._tables.quote(routes, special_tier(traffic)) is not None

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
        tier: str | None = None,
    ) -> Decimal | None:
        """Return the dollars a call of this size would cost now, None if unknown. Logs nothing.

        Args:
            tier: the service tier, None for the standard one.
            engine_s, latency_s: predicted seconds of engine time and of the call. For other arguments, see
                :meth:`price`.
        """
        quote = self.quote(provider, model, price_provider=price_provider, prompt=prompt_tokens, traffic=tier)
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
        traffic: str | None = None,
    ) -> Quote | None:
        """Return the rates of a model and their source, None if there is no price.

        Args:
            at: a date, now by default.
            prompt: tokens of the prompt, for prices that rise with its length.
            traffic: as in :class:`specclient.types.usage.Usage`. For other arguments, see :meth:`price`.
        """
        at = at or self._now()
        key, day = (provider, model, price_provider, served, traffic), at.toordinal()
        known = self._quotes.get(key)
        if known is not None and known[0] == day:
            return known[1]
        names = [name for name in (served, model) if name]
        quote = self._new_quote(provider, names, price_provider, at=at, prompt=prompt, traffic=traffic)
        listed = [self._lookups.get((price_provider or "", name)) for name in names]
        varies = special_tier(traffic) or any(each is not None and each.listed is not None for each in listed)
        if quote is not None and not varies:
            if len(self._quotes) >= _MAX_LOOKUPS:  # names come from requests
                self._quotes.clear()
            self._quotes[key] = day, quote
        return quote

    def _new_quote(
        self,
        provider: str,
        names: Sequence[str],
        price_provider: str | None,
        *,
        at: datetime,
        prompt: int,
        traffic: str | None,
    ) -> Quote | None:
        """Return the rates of a model with those of its units; see :meth:`quote`."""
        found = self._token_quote(provider, names, price_provider, at=at, prompt=prompt, traffic=traffic)
        if provider == LOCAL:
            return found
        return self.units.added_to(found, provider, names, price_provider)

    def _token_quote(
        self,
        provider: str,
        names: Sequence[str],
        price_provider: str | None,
        *,
        at: datetime,
        prompt: int,
        traffic: str | None,
    ) -> Quote | None:
        """Return the rates of the first of a model's names that has a price; see :meth:`quote`."""
        table = self._tables.quote([f"{provider}/{name}" for name in names], special_tier(traffic))
        if table is not None:
            return table
        if provider == LOCAL:
            return self._of_engine()
        if price_provider is None:
            return None
        for name in names:
            found = self._catalogue_price(price_provider, name)
            if found is None:
                media = media_quote(price_provider, name) if special_tier(traffic) is None else None
                if media is not None:
                    return media
                continue
            tier = None if price_provider in (*vertex.IDS, _AWS) else priced_tier(found.vendor, traffic)
            found_rates = (
                TierRates(found.rates(at, prompt))
                if tier is None
                else tier_rates(found, price_provider, name, tier, at=at, prompt=prompt)
            )
            rates = found_rates.rates
            if rates is not None:
                source = f"{found.catalogue}: {found.vendor}/{found.model} on {at.date()}{found_rates.note}"
                if price_provider in vertex.IDS:
                    return _on_vertex(Quote(rates, source), price_provider, name, traffic)
                if price_provider == _AWS and special_tier(traffic) is not None:
                    return None
                if found_rates.assumed:
                    return Quote(rates, f"{source}; assumed: {found_rates.assumed}", estimated=True)
                if price_provider != ANY_VENDOR:
                    return Quote(rates, source)
                note = "priced by model name; the endpoint is not known"
                return Quote(rates, f"{source}; {note}", estimated=True)
        return None

    def prompt_tiers(self, provider: str, model: str, price_provider: str | None) -> tuple[int, ...] | None:
        """Return the prompt lengths, in tokens, above which a model's price differs, ascending.

        None if the price is the same for every prompt at any time. An empty tuple means that it may change
        with the date only.
        """
        if (
            price_provider is None
            or provider == LOCAL
            or self._tables.quote([f"{provider}/{model}"]) is not None
        ):
            return None
        found = self._catalogue_price(price_provider, model)
        return None if found is None or found.listed is None else found.prompt_tiers()

    def _of_engine(self) -> Quote:
        source = f"engine time at ${self._engine.per_hour['engine']} an hour"
        if "electricity" in self._engine.per_hour:
            source += " and its electricity"
        if self._assumed:
            source += " (assumed; set device_cost_per_hour under [local] in specclient.toml)"
        return Quote(self._engine, source, estimated=self._assumed)


def _is_by_tokens(usage: Usage) -> bool:
    return bool(usage.prompt or usage.completion) and not (usage.units or usage.searches)


def _on_vertex(listed: Quote, price_id: str, model: str, traffic: str | None) -> Quote | None:
    """Return the price of a model in Vertex AI, from its listed price; None if it is not known."""
    found = vertex.factor_of(price_id, model, traffic)
    if found is None:
        return None
    source = f"{listed.source}; {found.note}" if found.note else listed.source
    return Quote(listed.rates.times(found.factor), source)
