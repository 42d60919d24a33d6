"""The settings: arguments, the environment, ``specclient.toml`` and defaults, in this order of precedence.

The file is ``$SPECCLIENT_CONFIG``, else ``./specclient.toml``, else ``specclient.toml`` in the user's
configuration folder. Nothing is read at import; :func:`load` reads the file when a client is made.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import pydantic
from pydantic import Field, SecretStr
from pydantic_core import PydanticCustomError

from specclient.errors import ConfigurationError
from specclient.runtime.folders import user_folder
from specclient.types.budget import Budget
from specclient.types.capabilities import Capabilities
from specclient.types.criterion import CRITERIA, PromptTask
from specclient.types.limit import CircuitRule, DeploymentLimit
from specclient.types.policy import EXPLORED_SHARE, Policy
from specclient.types.strategy import Strategy

FILE_NAME = "specclient.toml"

#: The default of ``device_cost_per_hour`` in US dollars: about the price of a two-core cloud instance on
#: demand. Costs computed from it are marked as estimates.
DEFAULT_DEVICE_COST_PER_HOUR = Decimal("0.10")

#: The ``price_provider`` of an endpoint of an unknown vendor: calls are priced by the model's name alone.
ANY_VENDOR: Final = "*"

_CIRCUIT = CircuitRule()

Price = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class _SettingsTable(pydantic.BaseModel):
    # Validators are built on first use, so that a program without a file does not build them.
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ProviderSettings(_SettingsTable):
    """A ``[providers.NAME]`` table: the fields of :class:`specclient.providers.custom.Provider`."""

    base_url: str | None = Field(default=None, repr=False)  # its query may hold a key
    dialect: str | None = None
    api_key: SecretStr | None = None
    api_key_env: str | None = None
    key_header: str | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    models: tuple[str, ...] = ()
    stream_usage: bool | None = None
    price_provider: str | None = None
    metrics: bool | str | None = Field(default=None, repr=False)
    capabilities: Capabilities | None = None


class PriceSettings(_SettingsTable):
    """A ``[prices."provider/model"]`` table; ``provider/*`` applies to its models without one.

    Attributes:
        input, output, cached_input, cache_write, cache_write_1h, reasoning, rejected_prediction: US dollars
            per million tokens. Without their own price, cached and written tokens cost as ``input``, and
            reasoning and rejected prediction tokens as ``output``.
        per_call: US dollars per call.
        per_gpu_second: US dollars per second that an engine, or else a server, worked on a call.
    """

    input: Price | None = None
    output: Price | None = None
    cached_input: Price | None = None
    cache_write: Price | None = None
    cache_write_1h: Price | None = None
    reasoning: Price | None = None
    rejected_prediction: Price | None = None
    per_call: Price | None = None
    per_gpu_second: Price | None = None

    @pydantic.model_validator(mode="after")
    def _whole(self) -> Self:
        """Refuse a table without a price for prompt or completion tokens."""
        given = self.model_fields_set
        missing = [name for name in ("input", "output") if name not in given]
        if missing == ["input", "output"] and given & {"per_call", "per_gpu_second"} == given and given:
            return self
        if missing:
            raise PydanticCustomError(
                "needed",
                "a price has input and output (dollars per million tokens), per_call or per_gpu_second "
                "(dollars)",
                {"key": missing[0]},
            )
        return self


class PairSettings(_SettingsTable):
    """A ``[pairs.NAME]`` table: the models of :func:`specclient.speculative_decode`, ``provider/model``.

    Attributes:
        acceptance: the measured acceptance rate, one number or one per task; the router's initial value.
        cost_ratio: measured seconds per drafted token / seconds per forward pass of the target.
    """

    draft: Annotated[str, Field(min_length=1)]
    target: Annotated[str, Field(min_length=1)]
    acceptance: Share | dict[PromptTask, Share] | None = None
    cost_ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class LocalModelSettings(_SettingsTable):
    """A ``[local.models.NAME]`` table: a checkpoint folder or hub id, its draft, and how it is loaded.

    The engine checks the other settings (``device``, ``quantize``, …).
    """

    model_config = pydantic.ConfigDict(extra="allow")

    path: str
    draft: str | tuple[str, ...] | None = None
    method: str = "auto"
    dtype: str = "float32"


class LocalSettings(_SettingsTable):
    """The ``[local]`` table: the engine in this process.

    Attributes:
        device_cost_per_hour: US dollars per hour of the machine, without electricity.
        watts: the power that the machine draws while it works.
        electricity_cost_per_kwh: US dollars per kWh; given together with ``watts``.
    """

    device_cost_per_hour: Price | None = None
    watts: Price | None = None
    electricity_cost_per_kwh: Price | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    slots: Annotated[int, Field(ge=1)] = 4
    models: dict[str, LocalModelSettings] = Field(default_factory=dict)

    @pydantic.model_validator(mode="after")
    def _both(self) -> Self:
        """Refuse ``watts`` without ``electricity_cost_per_kwh``, and the reverse."""
        if (self.watts is None) != (self.electricity_cost_per_kwh is None):
            missing = "watts" if self.watts is None else "electricity_cost_per_kwh"
            raise PydanticCustomError(
                "needed",
                "electricity is priced by watts and electricity_cost_per_kwh together",
                {"key": missing},
            )
        return self


class PolicySettings(_SettingsTable):
    """A ``[policies.NAME]`` table; the fields of :class:`specclient.types.policy.Policy`.

    ``strategy`` is its kind; ``draft`` and ``depth`` are those of the strategy. The limit of any criterion
    may be set in the table by the field of its bound, such as ``max_co2_g``.
    """

    minimize: str | dict[str, float] = "cost"
    max_cost_usd: float | None = None
    max_latency_s: float | None = None
    max_ttft_s: float | None = None
    percentile: float = 0.95
    min_quality: float | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    local_only: bool = False
    task: str = "auto"
    deadline_s: float | None = None
    fallbacks: bool | tuple[str, ...] = True
    hedge: bool | float = False
    explore: float = EXPLORED_SHARE
    strategy: str | None = None
    draft: str | None = None
    depth: int | None = None
    limits: dict[str, float] = Field(default_factory=dict)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _collect_limits(cls, table: Any) -> Any:
        """Move the limits of criteria without a field of their own to ``limits``."""
        if not isinstance(table, dict):
            return table
        others = {name for name in table.keys() & CRITERIA.bounds.keys() if name not in cls.model_fields}
        if not others:
            return table
        kept = {name: value for name, value in table.items() if name not in others}
        return {**kept, "limits": {**table.get("limits", {}), **{name: table[name] for name in others}}}

    def policy(self) -> Policy:
        """Return the checked policy."""
        names = {field.name for field in dataclasses.fields(Policy)} - {"strategy"}
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.strategy is None and self.draft is None and self.depth is None:
            return Policy(**given)
        kind: Any = self.strategy or "auto"
        return Policy(**given, strategy=Strategy(kind=kind, draft=self.draft, depth=self.depth))


class LimitSettings(_SettingsTable):
    """A ``[limits."provider/model"]`` table; the fields of
    :class:`specclient.types.limit.DeploymentLimit`."""

    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    concurrent: Annotated[int, Field(ge=1)] | None = None

    def limit(self) -> DeploymentLimit:
        """Return the limit."""
        return DeploymentLimit(**self.model_dump())


class CircuitSettings(_SettingsTable):
    """The ``[circuit]`` table; the fields of :class:`specclient.types.limit.CircuitRule`."""

    failures: Annotated[int, Field(ge=1)] = _CIRCUIT.failures
    lasting_s: Annotated[float, Field(ge=0)] = _CIRCUIT.lasting_s
    rest_s: Annotated[float, Field(gt=0)] = _CIRCUIT.rest_s

    def circuit(self) -> CircuitRule:
        """Return the rule."""
        return CircuitRule(**self.model_dump())


class BudgetSettings(_SettingsTable):
    """A ``[budgets.NAME]`` table; the fields of :class:`specclient.types.budget.Budget`."""

    usd: Decimal | None = None
    tokens: int | None = None
    period: str = "total"
    provider: str | None = None
    model: str | None = None
    tag: str | None = None
    session: str | None = None
    mode: str = "hard"
    unpriced: str = "allow"


class ServerSettings(_SettingsTable):
    """The ``[server]`` table: ``specclient serve``.

    Attributes:
        redis_url: the URL of a Redis server in which workers share the usage of key limits.
    """

    redis_url: SecretStr | None = None  # may hold a password


class Settings(_SettingsTable):
    """Everything that can be set.

    Attributes:
        default_provider: the provider of model names without a provider.
        default_model: the model of commands that name none.
        candidates: the routes that ``auto`` chooses from.
        drop_params: whether parameters that an endpoint does not support are dropped instead of refused.
        ledger: a database URL or file path, ``off``, or None for a file in the user's data folder.
        ledger_durability: ``batch``: rows are written within half a second, and calls do not wait for it;
            ``sync``: a call returns when its row is on the disk.
        connections: the maximum of open connections of a client; further requests wait.
        limits: rate limits of deployments, by ``provider/model``, in addition to their response headers.
        circuit: when the circuit of a failing deployment opens; False for never.
        quality: the quality of models, from 0 to 1, by route or prefix; overrides the built-in tiers.
        budgets: limits on the cost or tokens of calls, by name.
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
    transport: Literal["aiohttp", "httpx"] = "aiohttp"
    connections: Annotated[int, Field(ge=1)] = 1000
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    policies: dict[str, PolicySettings] = Field(default_factory=dict)
    pairs: dict[str, PairSettings] = Field(default_factory=dict)
    quality: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    limits: dict[str, LimitSettings] = Field(default_factory=dict)
    circuit: CircuitSettings | Literal[False] = Field(default_factory=CircuitSettings.model_construct)
    local: LocalSettings = Field(default_factory=LocalSettings.model_construct)
    budgets: dict[str, BudgetSettings] = Field(default_factory=dict)
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

    def budget_list(self) -> list[Budget]:
        """Return the checked budgets."""
        return [Budget(name=name, **table.model_dump()) for name, table in self.budgets.items()]

    def policy_named(self, name: str) -> Policy:
        """Return a policy from the file.

        Raises:
            ConfigurationError: no such table, with those there are.
        """
        if name not in self.policies:
            known = ", ".join(sorted(self.policies)) or "none"
            raise ConfigurationError(
                f"no policy named {name!r}; defined in {self.source or FILE_NAME}: {known}"
            )
        return self.policies[name].policy()


#: Environment variables that override the file, with their settings; a dot separates table and setting.
ENVIRONMENT = {
    "SPECCLIENT_LEDGER": "ledger",
    "SPECCLIENT_LEDGER_DURABILITY": "ledger_durability",
    "SPECCLIENT_TRANSPORT": "transport",
    "SPECCLIENT_MODEL": "default_model",
    "SPECCLIENT_REDIS_URL": "server.redis_url",
}


#: Settings that may be any text.
_PLAIN = {"ledger", "default_model"}


def search_path(env: Mapping[str, str] | None = None, cwd: Path | None = None) -> list[Path]:
    """Return where a file is looked for, first match first."""
    env = os.environ if env is None else env
    if named := env.get("SPECCLIENT_CONFIG"):
        return [Path(named).expanduser()]
    return [(cwd or Path.cwd()) / FILE_NAME, user_folder("config") / FILE_NAME]


def load(
    path: str | Path | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    **arguments: Any,
) -> Settings:
    """Read the settings.

    Args:
        path: a file to read instead of searching; it must exist.
        env: the environment, ``os.environ`` by default.
        cwd: where a relative search starts.
        arguments: settings given by the caller; those that are None count as not given.

    Raises:
        ConfigurationError: a file that cannot be read or parsed, or a value that is not allowed; names
            file, key, value and what is allowed.
    """
    env = os.environ if env is None else env
    named = path is not None or "SPECCLIENT_CONFIG" in env
    places = [Path(path).expanduser()] if path is not None else search_path(env, cwd)
    source = next((p for p in places if p.is_file()), None)
    if source is None and named:
        raise ConfigurationError(
            f"no configuration file at {places[0]}; create one with `specclient config init` "
            "or unset SPECCLIENT_CONFIG"
        )
    values = _read(source) if source else {}
    values |= _from_environment(env, values)
    values |= {key: value for key, value in arguments.items() if value is not None}
    if values.keys() <= _PLAIN and all(isinstance(value, str) for value in values.values()):
        return Settings.model_construct(
            **values, source=source
        )  # nothing to check, and no validator to be made
    try:
        settings = Settings.model_validate({**values, "source": source})
        for policy in settings.policies.values():
            policy.policy()
        settings.budget_list()
    except pydantic.ValidationError as error:
        raise ConfigurationError(_explain(error, source)) from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error}") from None
    return settings


def _from_environment(env: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the environment; a table keeps its other ``values``."""
    settings: dict[str, Any] = {}
    for name, key in ENVIRONMENT.items():
        table, _, field = key.rpartition(".")
        if env.get(name) and not table:
            settings[key] = env[name]
        elif env.get(name) and isinstance(values.get(table, {}), dict):
            settings[table] = {**values.get(table, {}), field: env[name]}
    return settings


def _read(source: Path) -> dict[str, Any]:
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {source}: {error}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source} is not valid TOML: {error}") from None


def _explain(error: pydantic.ValidationError, source: Path | None) -> str:
    """Return a message with the first invalid setting, its value unless secret, and what is allowed."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    place = source or "settings"
    if first["type"] == "extra_forbidden":
        return f"{place}: unknown setting {where!r}; `specclient config show` lists all"
    if first["type"] == "needed":
        return f"{place}: {where}.{first['ctx']['key']} is required: {first['msg']}"
    if first["type"] == "route":
        return f"{place}: {where}: {first['msg']}"
    if first["type"] == "unexpected_keyword_argument":
        allowed = ", ".join(field.name for field in dataclasses.fields(Capabilities))
        return f"{place}: unknown setting {where!r}; known are {allowed}"
    if first["loc"] and first["loc"][0] in _MAY_HOLD_KEYS and not set(first["loc"][2:3]) & _HOLD_NO_KEYS:
        value = f" is a value of type {type(first['input']).__name__}"
    else:
        value = f" is {first['input']!r}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{place}: {where}{value}: {first['msg']}{more}"


#: Tables and settings whose values are never quoted in errors, because they may hold keys and passwords.
_MAY_HOLD_KEYS = ("providers", "ledger", "server")
_HOLD_NO_KEYS = {"dialect", "api_key_env", "key_header", "stream_usage", "price_provider", "capabilities"}
