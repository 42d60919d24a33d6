"""The prices of units: those of the configuration, then those that a vendor has for all or some models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from specclient.prices import vertex
from specclient.prices.billing import BillingContext, bill
from specclient.prices.container_sessions import ContainerSessions
from specclient.prices.price_tables import PriceTables
from specclient.prices.rates import PriceRates, Quote
from specclient.prices.tool_prices import tool_rates
from specclient.prices.unit_costs import UnitRate
from specclient.types.usage import Cost, Usage

__all__ = ["UnitPrices"]

_GOOGLE = "none of the searches is free (1,500 a day are, or 5,000 a month from Gemini 3 on)"
#: What the price of a web search assumes, by vendor (https://ai.google.dev/gemini-api/docs/pricing).
_FREE_SEARCHES: Final[Mapping[str, str]] = dict.fromkeys(("google", *vertex.IDS), _GOOGLE)


class UnitPrices:
    """The prices of the units that one client uses.

    Args:
        tables: of the configuration.
    """

    def __init__(self, tables: PriceTables) -> None:
        self._tables = tables
        self._containers = ContainerSessions()

    def added_to(
        self, quote: Quote | None, provider: str, names: Sequence[str], price_provider: str | None
    ) -> Quote | None:
        """Return a quote of tokens with the rates of units; None if there are neither.

        Args:
            quote: None if tokens have no price.
            names: of the model, such as the served and the requested one.
            price_provider: as in :meth:`specclient.prices.prices.Prices.price`.
        """
        own = self._tables.units([f"{provider}/{name}" for name in names])
        if quote is None:
            return Quote(PriceRates(units=own), "", for_units_alone=True) if own else None
        rates = quote.rates
        free = _FREE_SEARCHES.get(price_provider or "")
        if free is not None and rates.per_search is not None:
            searches = UnitRate(rates.per_search, assumed=free)
            rates = replace(rates, per_search=None).with_units({"web_search": searches})
        if rates.input is not None and names:
            rates = replace(
                rates, units={**tool_rates(price_provider, names[0], of_calls=True), **rates.units}
            )
        return replace(quote, rates=rates.with_units(own))

    def new_in(self, usage: Usage, provider: str, price_provider: str | None, at: datetime) -> Usage:
        """Return a usage without the containers that an earlier call is billed for."""
        return self._containers.new_in(usage, provider, price_provider, at)

    def price(
        self, usage: Usage, provider: str, name: str, *, price_provider: str | None, at: datetime
    ) -> Cost:
        """Price units that no call to a model used: a container, a training, stored gigabytes.

        Args:
            usage: with units alone.
            name: the model, or what is billed instead of one; it names the ``[prices]`` table.
            price_provider, at: as in :meth:`specclient.prices.prices.Prices.price`.

        Returns:
            The cost; ``total`` is None if a unit has no price or the amount is unknown, as ``source`` says.
        """
        used = self.new_in(usage, provider, price_provider, at)
        if usage.units and not used.units:
            return Cost(Decimal(0), {}, "billed with an earlier call of the same session", estimated=True)
        rates = {**tool_rates(price_provider, name), **self._tables.units([f"{provider}/{name}"])}
        cost = bill(used, Quote(PriceRates(units=rates), ""), BillingContext())
        if cost.total is not None and used.units:
            return cost
        if not used.units:
            return Cost(source=f"the amount of {name} is not known", estimated=usage.estimated)
        kinds = ", ".join(sorted({unit.kind.partition(" ")[0] for unit in used.units}))
        setting = f'set [prices."{provider}/{name}".units] in specclient.toml'
        return Cost(source=f"no price for {kinds}; {setting}", estimated=usage.estimated)
