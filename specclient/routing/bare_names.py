"""Model names without a provider: the provider that serves such a name.

A name that the default provider is known to serve goes there. Otherwise it goes to the only other provider
that lists it: an engine, or a provider whose table has it among its ``models``. A name that no provider lists
goes to the default provider, whose models need no list.
"""

from __future__ import annotations

from collections.abc import Mapping

from specclient.config import ANY_VENDOR, Settings
from specclient.errors import NotFoundError
from specclient.providers.endpoint import Endpoint
from specclient.runtime.forks import import_lock

__all__ = ["BareNames"]

_LOCAL = "local"
#: The models of the engine that needs no table; see ``specclient_local.model.config.BUNDLED``.
BUNDLED_MODELS = ("demo", "demo-target")


class BareNames:
    """The providers that list a model, by its name without a provider.

    Args:
        settings: the source of ``[local.models]`` and of the providers' ``models``.
        default: the default provider.
    """

    def __init__(self, settings: Settings, default: str) -> None:
        self._settings, self._default = settings, default
        self._places: dict[str, list[str]] = {}
        for name in dict.fromkeys([*BUNDLED_MODELS, *settings.local.models]):
            self._places.setdefault(name, []).append(_LOCAL)
        for provider, table in settings.providers.items():
            for model in dict.fromkeys(table.models):
                self._places.setdefault(model, []).append(provider)

    def place_of(self, model: str, endpoint: Endpoint | None) -> str:
        """Return the provider that serves a name.

        Args:
            model: a name without a provider.
            endpoint: the endpoint of the default provider; None if an engine is the default.

        Raises:
            NotFoundError: several places list the name, and the default provider is not known to serve it.
        """
        places = self._places.get(model)
        if not places or self._default in places or self._is_known(model, endpoint):
            return self._default
        if len(places) > 1:
            routes = ", ".join(f"{place}/{model}" for place in places)
            raise NotFoundError(f"model {model!r} is served by several providers; name one of {routes}")
        return places[0]

    def _is_known(self, model: str, endpoint: Endpoint | None) -> bool:
        """Return whether a table or the price catalogue has the model at the default provider."""
        route, settings = f"{self._default}/{model}", self._settings
        tables: tuple[Mapping[str, object], ...] = (settings.prices, settings.limits, settings.quality)
        if any(route in table for table in tables):
            return True
        vendor = None if endpoint is None else endpoint.price_provider
        if vendor is None or vendor == ANY_VENDOR:
            return False
        with import_lock:
            from specclient.prices.cache import find_price  # noqa: PLC0415 - only for names that are listed

        return find_price(vendor, model) is not None
