"""The settings: arguments, the environment, ``specclient.toml`` and defaults, in this order of precedence.

The file is ``$SPECCLIENT_CONFIG``, else ``./specclient.toml``, else ``specclient.toml`` in the user's
configuration folder. Nothing is read at import; :func:`load` reads the file when a client is made.
"""

from __future__ import annotations

from specclient.config.fleet_tables import DEFAULT_POOL, FLEET_AUTO, FleetPoolSettings, FleetSettings
from specclient.config.loading import ENVIRONMENT, load, search_path
from specclient.config.price_settings import CurrencySettings, PriceSettings
from specclient.config.settings import FILE_NAME, Settings
from specclient.config.tables import (
    ANY_VENDOR,
    DEFAULT_DEVICE_COST_PER_HOUR,
    DOLLAR,
    BudgetSettings,
    CircuitSettings,
    LimitSettings,
    LocalModelSettings,
    LocalSettings,
    PairSettings,
    PolicySettings,
    ProviderSettings,
    ResponseLimitSettings,
    ServerSettings,
)

__all__ = [
    "ANY_VENDOR",
    "DEFAULT_DEVICE_COST_PER_HOUR",
    "DEFAULT_POOL",
    "DOLLAR",
    "ENVIRONMENT",
    "FILE_NAME",
    "FLEET_AUTO",
    "BudgetSettings",
    "CircuitSettings",
    "CurrencySettings",
    "FleetPoolSettings",
    "FleetSettings",
    "LimitSettings",
    "LocalModelSettings",
    "LocalSettings",
    "PairSettings",
    "PolicySettings",
    "PriceSettings",
    "ProviderSettings",
    "ResponseLimitSettings",
    "ServerSettings",
    "Settings",
    "load",
    "search_path",
]
