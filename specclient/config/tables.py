"""The tables of the configuration, such as providers, prices, policies and budgets."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Annotated, Any, Final, Self

import pydantic
from pydantic import Field, SecretStr
from pydantic_core import PydanticCustomError

from specclient.types.capabilities import Capabilities
from specclient.types.criterion import CRITERIA, PromptTask
from specclient.types.limit import CircuitRule, DeploymentLimit, ResponseLimits
from specclient.types.model_kind import CHAT_KIND, ModelKind
from specclient.types.policy import EXPLORED_SHARE, Policy
from specclient.types.request_limits import RequestLimits
from specclient.types.stored_limits import StoredLimits
from specclient.types.strategy import Strategy

#: The default of ``device_cost_per_hour`` in US dollars: about the price of a two-core cloud instance on
#: demand. Costs computed from it are marked as estimates.
DEFAULT_DEVICE_COST_PER_HOUR = Decimal("0.10")

#: The currency of prices that name none, and of all costs.
DOLLAR: Final = "USD"

#: The ``price_provider`` of an endpoint of an unknown vendor: calls are priced by the model's name alone.
ANY_VENDOR: Final = "*"

_CIRCUIT = CircuitRule()
_REQUESTS = RequestLimits()
_RESPONSE_LIMITS = ResponseLimits()
_STORED = StoredLimits()

Price = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class SettingsTable(pydantic.BaseModel):
    """A table of the configuration; unknown keys are refused."""

    # Validators are built on first use, so that a program without a file does not build them.
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ProviderSettings(SettingsTable):
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
    project: str | None = None
    location: str | None = None
    credentials: str | None = None  # the path of a file, or the name of a profile
    template: str | dict[str, str] | None = None
    capabilities: Capabilities | None = None


class PairSettings(SettingsTable):
    """A ``[pairs.NAME]`` table: the models of :func:`specclient.speculative_decode`, ``provider/model``.

    Attributes:
        acceptance: the measured acceptance rate, one number or one per task; the router's initial value.
        cost_ratio: measured seconds per drafted token / seconds per forward pass of the target.
    """

    draft: Annotated[str, Field(min_length=1)]
    target: Annotated[str, Field(min_length=1)]
    acceptance: Share | dict[PromptTask, Share] | None = None
    cost_ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class LocalModelSettings(SettingsTable):
    """A ``[local.models.NAME]`` table: a checkpoint folder or hub id, its draft, and how it is loaded.

    ``kind`` is ``chat``, or ``embedding`` for a sentence-transformers checkpoint. ``env`` is for a server
    that is started for the model, and may hold keys. The engine checks the other settings (``device``,
    ``quantize``, …).
    """

    model_config = pydantic.ConfigDict(extra="allow")

    kind: ModelKind = CHAT_KIND
    path: str
    draft: str | tuple[str, ...] | None = None
    method: str = "auto"
    dtype: str | None = None
    env: dict[str, SecretStr] = Field(default_factory=dict)


class LocalSettings(SettingsTable):
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


class PolicySettings(SettingsTable):
    """A ``[policies.NAME]`` table; the fields of :class:`specclient.types.policy.Policy`.

    ``strategy`` is its kind; ``draft`` and ``depth`` are those of the strategy. The limit of any criterion
    may be set in the table by the field of its bound, such as ``max_co2_g``.
    """

    minimize: str | dict[str, float] = "cost"
    max_cost_usd: float | None = None
    max_latency_s: float | None = None
    max_ttft_s: float | None = None
    percentile: float = 0.95
    percentile_per: str = "policy"
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


class LimitSettings(SettingsTable):
    """A ``[limits."provider/model"]`` table; the fields of
    :class:`specclient.types.limit.DeploymentLimit`."""

    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    concurrent: Annotated[int, Field(ge=1)] | None = None

    def limit(self) -> DeploymentLimit:
        """Return the limit."""
        return DeploymentLimit(**self.model_dump())


class ResponseLimitSettings(SettingsTable):
    """The ``[response_limits]`` table; the fields of :class:`specclient.types.limit.ResponseLimits`."""

    max_body_bytes: Annotated[float, Field(gt=0)] = _RESPONSE_LIMITS.max_body_bytes
    max_event_bytes: Annotated[float, Field(gt=0)] = _RESPONSE_LIMITS.max_event_bytes
    max_compression_ratio: Annotated[float, Field(gt=0)] = _RESPONSE_LIMITS.max_compression_ratio

    def limits(self) -> ResponseLimits:
        """Return the limits."""
        return ResponseLimits(**self.model_dump())


class StoredSettings(SettingsTable):
    """The ``[stored]`` table; the fields of :class:`specclient.types.stored_limits.StoredLimits`."""

    enabled: bool = _STORED.enabled
    max_age_days: Annotated[float, Field(gt=0, le=36_500)] = _STORED.max_age_days
    max_bytes: Annotated[int, Field(ge=1)] = _STORED.max_bytes
    max_bytes_per_key: Annotated[int, Field(ge=1)] = _STORED.max_bytes_per_key

    def limits(self) -> StoredLimits:
        """Return the limits."""
        return StoredLimits(**self.model_dump())


class CircuitSettings(SettingsTable):
    """The ``[circuit]`` table; the fields of :class:`specclient.types.limit.CircuitRule`."""

    failures: Annotated[int, Field(ge=1)] = _CIRCUIT.failures
    lasting_s: Annotated[float, Field(ge=0)] = _CIRCUIT.lasting_s
    rest_s: Annotated[float, Field(gt=0)] = _CIRCUIT.rest_s

    def circuit(self) -> CircuitRule:
        """Return the rule."""
        return CircuitRule(**self.model_dump())


class BudgetSettings(SettingsTable):
    """A ``[budgets.NAME]`` table; the fields of :class:`specclient.types.budget.Budget`."""

    usd: Decimal | None = None
    tokens: int | None = None
    period: str = "total"
    provider: str | None = None
    model: str | None = None
    tag: str | None = None
    session: str | None = None
    judge: bool = False
    mode: str = "hard"
    unpriced: str = "allow"


class RequestLimitSettings(SettingsTable):
    """The ``[server.requests]`` table; the fields of
    :class:`specclient.types.request_limits.RequestLimits`."""

    choices: Annotated[int, Field(ge=1)] = _REQUESTS.choices
    prompt_logprobs: Annotated[int, Field(ge=1)] = _REQUESTS.prompt_logprobs
    embedding_inputs: Annotated[int, Field(ge=1)] = _REQUESTS.embedding_inputs
    embedding_tokens: Annotated[int, Field(ge=1)] = _REQUESTS.embedding_tokens
    grammar_bytes: Annotated[int, Field(ge=1)] = _REQUESTS.grammar_bytes
    grammar_rules: Annotated[int, Field(ge=1)] = _REQUESTS.grammar_rules
    grammar_nesting: Annotated[int, Field(ge=1)] = _REQUESTS.grammar_nesting
    grammar_chain: Annotated[int, Field(ge=1)] = _REQUESTS.grammar_chain
    grammar_alternatives: Annotated[int, Field(ge=1)] = _REQUESTS.grammar_alternatives
    grammar_repetitions: Annotated[int, Field(ge=1)] = _REQUESTS.grammar_repetitions
    grammar_s: Annotated[float, Field(gt=0)] = _REQUESTS.grammar_s
    grammar_memory_bytes: Annotated[int, Field(ge=1)] = _REQUESTS.grammar_memory_bytes

    def limits(self) -> RequestLimits:
        """Return the limits."""
        return RequestLimits(**self.model_dump())


class ServerSettings(SettingsTable):
    """The ``[server]`` table: ``specclient serve``.

    Attributes:
        bodies_bytes: maximum size of all request bodies that a process holds.
        grace_s: seconds for running requests to end when the server stops.
        head_s: seconds for the head of a request to arrive.
        idle_s: seconds that a connection without a request stays open.
        json_values: maximum number of values in the JSON body of a request; a name counts as four, and
            4 escape sequences or 32 bytes of other than ASCII text count as one.
        redis_url: the URL of a Redis server in which workers share the usage of key limits.
        sockets: maximum number of open WebSockets of a process.
        requests: limits on one request to an engine; they hold without a server, too.
    """

    bodies_bytes: Annotated[int, Field(ge=2**20)] = 2**30
    grace_s: Annotated[int, Field(ge=0)] = 30
    head_s: Annotated[float, Field(gt=0)] = 10.0
    idle_s: Annotated[int, Field(ge=1)] = 75
    json_values: Annotated[int, Field(ge=1)] = 400_000
    redis_url: SecretStr | None = None  # may hold a password
    sockets: Annotated[int, Field(ge=1)] = 200
    requests: RequestLimitSettings = Field(default_factory=RequestLimitSettings.model_construct)
