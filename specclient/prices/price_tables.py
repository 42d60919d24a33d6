"""The user's own prices: the ``[prices]`` tables, those of their service tiers, and their currencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specclient.config import DOLLAR, CurrencySettings, PriceSettings
from specclient.prices.rates import PriceRates, Quote
from specclient.prices.unit_costs import UnitRate

__all__ = ["PriceTables"]


class PriceTables:
    """The tables of a configuration.

    Args:
        tables: by route, or by the beginning of routes and ``*``.
        currencies: the rates of the currencies in them.
    """

    def __init__(
        self, tables: Mapping[str, PriceSettings], currencies: Mapping[str, CurrencySettings]
    ) -> None:
        self._exact = {route: table for route, table in tables.items() if not route.endswith("*")}
        patterns = ((route, table) for route, table in tables.items() if route.endswith("*"))
        self._patterns = sorted(patterns, key=lambda each: -len(each[0]))  # the longest first
        self._currencies = currencies

    def quote(self, routes: Sequence[str], tier: str | None = None) -> Quote | None:
        """Return the price of the first route that has one; exact routes precede patterns.

        Args:
            routes: names of a model, such as the served and the requested one.
            tier: a service tier other than the standard one.
        """
        found = self._matching(routes)
        quotes = (_of_table(name, table, tier, self._currencies) for name, table in found)
        return next((quote for quote in quotes if quote is not None), None)

    def units(self, routes: Sequence[str]) -> dict[str, UnitRate]:
        """Return the prices of units of the routes, each of the first table that has one."""
        found: dict[str, UnitRate] = {}
        for name, table in self._matching(routes):
            if not table.units:
                continue
            quote = _in_dollars(
                table, f'[prices."{name}".units] in the configuration', table.currency, self._currencies
            )
            for kind, rate in quote.rates.units.items():
                found.setdefault(kind, rate._replace(source=quote.source))
        return found

    def _matching(self, routes: Sequence[str]) -> list[tuple[str, PriceSettings]]:
        named = [(route, self._exact[route]) for route in routes if route in self._exact]
        return named + [each for route in routes for each in self._patterns if route.startswith(each[0][:-1])]


def _of_table(
    name: str, table: PriceSettings, tier: str | None, currencies: Mapping[str, CurrencySettings]
) -> Quote | None:
    """Return the price of a ``[prices]`` table, or that of its service tier; None if it has neither."""
    where = f'[prices."{name}"'
    own = None if tier is None else table.tiers.get(tier)
    if own is not None:
        code = own.currency if "currency" in own.model_fields_set else table.currency
        return _in_dollars(own, f"{where}.tiers.{tier}] in the configuration", code, currencies)
    if not table.model_fields_set - {"tiers", "currency", "units"}:
        return None
    quote = _in_dollars(table, f"{where}] in the configuration", table.currency, currencies)
    if tier is None or quote.rates.input is None:  # paid by the call or by time
        return quote
    note = f"it has no price for the service tier {tier!r}"
    return replace(quote, source=f"{quote.source}; {note}", estimated=True)


def _in_dollars(
    table: PriceSettings, source: str, code: str, currencies: Mapping[str, CurrencySettings]
) -> Quote:
    """Return the price of a table in US dollars; the source also states prices in another currency."""
    rates = PriceRates.of_settings(table)
    if code == DOLLAR:
        return Quote(rates, source)
    rate = currencies[code]
    given = f"{rates.input} and {rates.output} " if rates.input is not None else ""
    return Quote(
        rates.converted(rate.usd), f"{source}: {given}{code} at ${rate.usd} for one on {rate.on.isoformat()}"
    )
