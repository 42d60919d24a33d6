"""The settings as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field
from pydantic_core import PydanticCustomError

from specclient.config.cache_table import CacheSettings
from specclient.config.fleet_tables import FleetSettings, check_fleet_name
from specclient.config.judge_table import JUDGE_BUDGET, JudgeSettings
from specclient.config.price_settings import CurrencySettings, PriceSettings
from specclient.config.tables import (
    DOLLAR,
    BudgetSettings,
    CircuitSettings,
    LimitSettings,
    LocalSettings,
    PairSettings,
    PolicySettings,
    ProviderSettings,
    ResponseLimitSettings,
    ServerSettings,
    SettingsTable,
    StoredSettings,
)
from specclient.errors import ConfigurationError
from specclient.types.budget import Budget
from specclient.types.policy import Policy

FILE_NAME = "specclient.toml"


class Settings(SettingsTable):
    """Everything that can be set.

    Attributes:
        default_provider: the provider of model names without a provider.
        default_model: the model of commands that name none.
        candidates: the routes from which ``auto`` chooses.
        drop_params: whether parameters that an endpoint does not support are dropped instead of refused.
        ledger: a database URL or file path, ``off``, or None for a file in the user's data folder.
        ledger_durability: ``batch``: rows are written within half a second, and calls do not wait for it;
            ``sync``: a call returns when its row is on the disk.
        stored: limits on stored responses and conversations of local models, in the ledger's database.
        cache: the response cache.
        connections: the maximum of open connections of a client; further requests wait.
        limits: rate limits of deployments, by ``provider/model``, in addition to their response headers.
        pacing: whether calls wait for the limits that earlier responses reported.
        response_limits: limits on the size of responses.
        circuit: when the circuit of a failing deployment opens; False for never.
        quality: the quality of models, from 0 to 1, by route or prefix; overrides the built-in tiers.
        judge: the model that scores a sample of routed answers; None for none.
        currencies: the rates of currencies in which prices are given, by code.
        aliases: other names of models, ``provider/model`` or ``auto`` by name or pattern.
        budgets: limits on the cost or tokens of calls, by name.
        fleets: replicas of inference servers on a cluster, by name; each is a provider of this name, too.
        server: the settings of ``specclient serve``.
        source: the file that was read, or None.
    """

    default_provider: str = "openai"
    default_model: str = "local/demo"
    candidates: tuple[str, ...] = (
        "local/demo",
        "local/demo-target",
        "openai/gpt-4.1-nano",
        "openai/gpt-4.1-mini",
    )
    drop_params: bool = False
    ledger: str | None = Field(default=None, repr=False)  # a database URL may hold a password
    ledger_durability: Literal["batch", "sync"] = "batch"
    cache: CacheSettings = Field(default_factory=CacheSettings.model_construct)
    stored: StoredSettings = Field(default_factory=StoredSettings.model_construct)
    transport: Literal["aiohttp", "httpx"] = "aiohttp"
    connections: Annotated[int, Field(ge=1)] = 1000
    aliases: dict[str, str] = Field(default_factory=dict)
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    currencies: dict[str, CurrencySettings] = Field(default_factory=dict)
    policies: dict[str, PolicySettings] = Field(default_factory=dict)
    pairs: dict[str, PairSettings] = Field(default_factory=dict)
    quality: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    judge: JudgeSettings | None = None
    limits: dict[str, LimitSettings] = Field(default_factory=dict)
    pacing: bool = True
    response_limits: ResponseLimitSettings = Field(default_factory=ResponseLimitSettings.model_construct)
    circuit: CircuitSettings | Literal[False] = Field(default_factory=CircuitSettings.model_construct)
    local: LocalSettings = Field(default_factory=LocalSettings.model_construct)
    budgets: dict[str, BudgetSettings] = Field(default_factory=dict)
    fleets: dict[str, FleetSettings] = Field(default_factory=dict)
    server: ServerSettings = Field(default_factory=ServerSettings.model_construct)
    source: Path | None = Field(default=None, exclude=True)

    @pydantic.field_validator("prices", mode="after")
    @classmethod
    def _routes(cls, prices: dict[str, PriceSettings]) -> dict[str, PriceSettings]:
        """Refuse a price table whose route cannot match any call."""
        for route in prices:
            provider, slash, model = route.partition("/")
            if not (provider and slash and model) or "*" in provider or "*" in model.removesuffix("*"):
                raise PydanticCustomError(
                    "route",
                    "{route} is not a route; write 'provider/model', or 'provider/*' for all its models",
                    {"route": repr(route)},
                )
        return prices

    @pydantic.field_validator("fleets", mode="after")
    @classmethod
    def _fleet_names(cls, fleets: dict[str, FleetSettings]) -> dict[str, FleetSettings]:
        """Refuse a fleet whose name cannot be part of a URL."""
        for name in fleets:
            check_fleet_name(name, "fleet")
        return fleets

    @pydantic.model_validator(mode="after")
    def _known_currencies(self) -> Self:
        """Refuse a price in a currency without a rate."""
        for route, price in self.prices.items():
            for table in (price, *price.tiers.values()):
                if table.currency != DOLLAR and table.currency not in self.currencies:
                    raise PydanticCustomError(
                        "currency",
                        "the price of {route} is in {code}, which has no rate; add [currencies.{code}] with "
                        "usd (dollars for one) and on (the date)",
                        {"route": route, "code": table.currency},
                    )
        return self

    def budget_list(self) -> list[Budget]:
        """Return the checked budgets, and that of the judge unless a budget has its name."""
        budgets = [Budget(name=name, **table.model_dump()) for name, table in self.budgets.items()]
        if self.judge is not None and JUDGE_BUDGET not in self.budgets:
            budgets.append(self.judge.budget())
        return budgets

    def policy_named(self, name: str) -> Policy:
        """Return a policy from the file.

        Raises:
            ConfigurationError: there is no such table; the message lists the known ones.
        """
        if name not in self.policies:
            known = ", ".join(sorted(self.policies)) or "none"
            raise ConfigurationError(
                f"no policy named {name!r}; defined in {self.source or FILE_NAME}: {known}"
            )
        return self.policies[name].policy()
