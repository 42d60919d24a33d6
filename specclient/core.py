"""Turn a client's options into the parts of its pipeline, own their lifetime, and share them with copies."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from specclient.config import Settings, load
from specclient.costs.prices import Prices
from specclient.errors import ConfigurationError
from specclient.forks import restart_in_child, uncut
from specclient.logs import setup_logging
from specclient.loops import in_thread
from specclient.pipeline import Pipeline
from specclient.providers.base import Endpoint, KeySource
from specclient.providers.configured import endpoints
from specclient.providers.provider import Provider
from specclient.resources.base import limit_of
from specclient.routing.estimates import Estimates
from specclient.routing.places import Places
from specclient.routing.router import Router
from specclient.routing.sizes import Sizes
from specclient.transport.http import Transport
from specclient.types.backend import Backend
from specclient.types.call import Call
from specclient.types.params import NotGiven
from specclient.types.route import Policy

if TYPE_CHECKING:
    from specclient.costs.budgets import Budgets
    from specclient.costs.ledger import Ledger
    from specclient.costs.row import Row
    from specclient.routed import Memory
    from specclient.routing.polls import Polls
    from specclient.types.budget import Budget, Scope

#: Seconds that the end of a program waits for the ledger.
FLUSH_S = 2.0
DEFAULT_MAX_RETRIES = 2
_MOST_ACCOUNTS = 4096
#: Where OpenAI keeps and processes data, and the URL that sends it there
#: (https://platform.openai.com/docs/guides/your-data#data-residency-controls).
DataResidency = Literal["global", "us", "eu", "ae", "au", "in", "jp"]


class ClientOptions(TypedDict, total=False):
    """What a client takes; every option may be left out.

    Those of the OpenAI client: ``api_key`` (a string, or a function that returns one and is asked before
    each try), ``admin_api_key``, ``organization``, ``project``, ``webhook_secret``, ``base_url`` or
    ``data_residency``, ``timeout``, ``max_retries``, ``default_headers``, ``default_query`` (of the default
    provider), ``http_client``.

    Ours: ``config`` (a path, or :class:`Settings`; searched for otherwise), ``ledger`` (a path or URL, or
    ``"off"``), ``ledger_durability`` (``"batch"``, or ``"sync"`` for calls that return when their row is on
    the disk), ``policy`` and ``candidates`` (of calls with ``model="auto"``), ``providers`` (more of them,
    or changes to known ones), ``drop_params`` (leaves out what an endpoint cannot express), ``budgets``
    (limits on what calls may cost; one takes the place of the configuration's of its name).
    """

    api_key: str | KeySource | None
    admin_api_key: str | None
    organization: str | None
    project: str | None
    webhook_secret: str | None
    base_url: Any
    data_residency: DataResidency | None
    websocket_base_url: Any
    timeout: Any
    max_retries: int
    default_headers: Mapping[str, Any] | None
    default_query: Mapping[str, object] | None
    http_client: Any
    config: str | Path | Settings | None
    ledger: str | None
    ledger_durability: Literal["batch", "sync"] | None
    policy: Policy | str | None
    candidates: Sequence[str] | None
    providers: Sequence[Provider] | None
    drop_params: bool | None
    budgets: Sequence[Budget] | None


#: Options of a client that its copies cannot change: they share what was made of them.
SHARED = frozenset({"budgets", "config", "ledger", "ledger_durability"})
#: Options that say where calls may go, and how they are sent there; copies that keep them share a router.
_ROUTING = (
    "providers", "drop_params", "api_key", "admin_api_key", "base_url", "data_residency", "organization",
    "project", "default_headers", "default_query", "candidates", "policy",
)  # fmt: skip
KNOWN = frozenset(ClientOptions.__annotations__)


class Parts:
    """What a client and its copies share: settings, connections, engines, the ledger and what was learned."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.settings = _settings(options)
        self.prices = Prices(self.settings)
        self.estimates = Estimates(_Past(self))
        self.sizes = Sizes()
        self.backends: dict[str, Backend] = {}
        self.closed = False
        self.warm: set[str] = set()
        settings = self.settings
        self.transport = Transport(
            http_client=options.get("http_client"),
            kind=settings.transport,
            connections=settings.connections,
            limits={name: table.limit() for name, table in settings.limits.items()},
            circuit=settings.circuit.circuit() if settings.circuit else None,
        )
        self._budgets = _budgets(self.settings, options.get("budgets"))
        self._accounts: OrderedDict[int, str] = OrderedDict()
        self._numbered = count()
        self._lock = threading.Lock()
        self._memory: Memory | None = None
        restart_in_child(self)

    def start_afresh(self) -> None:
        """In a forked child: a lock that another thread of the parent holds is never released there."""
        self._lock = threading.Lock()

    def account(self, identity: int) -> str:
        """Return what marks an account at a provider: its limits and failures are those of no other.

        Args:
            identity: a hash of address and key; the first one seen has no mark. One that was not named for
                long, while thousands of others were, gets a new mark.
        """
        with self._lock:
            mark = self._accounts.pop(identity, None)
            if mark is None:
                number = next(self._numbered)
                mark = f" #{number}" if number else ""
            self._accounts[identity] = mark
            if len(self._accounts) > _MOST_ACCOUNTS:
                self._accounts.popitem(last=False)
            return mark

    @cached_property
    def ledger(self) -> Ledger:
        """The record of every call; the database toolkit is imported when it is first needed."""
        from specclient.costs.ledger import Ledger  # noqa: PLC0415 - keeps `import specclient` light

        return Ledger(self.settings.ledger, durability=self.settings.ledger_durability)

    def open_ledger(self) -> None:
        """Import what the ledger needs, and refuse a setting that cannot name one."""
        self.ledger.prepare()

    @cached_property
    def budgets(self) -> Budgets | None:
        """What keeps the budgets; None where there are none, and nothing of theirs is imported."""
        return self.keep_budgets() if self._budgets else None

    def keep_budgets(self) -> Budgets:
        """Return what keeps the budgets, made where there is none yet."""
        if (kept := self.__dict__.get("budgets")) is None:
            from specclient.costs.budgets import Budgets  # noqa: PLC0415 - as above

            kept = self.__dict__["budgets"] = Budgets(self._budgets, self.prices, self.estimates, self.ledger)
        return kept

    @cached_property
    def polls(self) -> Polls:
        """What reads how busy places are; imported when the first call is routed."""
        with uncut:
            from specclient.routing.polls import Polls  # noqa: PLC0415

        return Polls(self.estimates)

    def memory(self) -> Memory:
        """Return what is remembered of routed calls; imported when the first one is made."""
        with self._lock:
            if self._memory is None:
                with uncut:
                    from specclient.routed import Memory  # noqa: PLC0415

                self._memory = Memory(self.prices)
            return self._memory

    def flowing(self, router: Router, transport: Transport) -> None:
        """Note that a call is being routed."""
        self.polls.flowing(router, transport)

    async def note(self, call: Call) -> None:
        """Note a finished call."""
        self.estimates.observe(call)
        self.sizes.observe(call)
        counted = None if self.budgets is None else self.budgets.settle(call)
        await self.ledger.record(call)
        if counted is not None:
            await counted

    def flush(self) -> None:
        """Write what the ledger still holds; for the end of a program."""
        if "budgets" in self.__dict__ and self.budgets is not None:
            self.budgets.flush()
        if "ledger" in self.__dict__:
            self.ledger.flush(FLUSH_S)

    async def close(self) -> None:
        """Close connections, free the engines and write what the ledger still holds."""
        self.closed = True
        if "polls" in self.__dict__:
            await self.polls.aclose()
        await self.transport.aclose()
        backends = list(self.backends.values())
        self.backends.clear()
        for backend in backends:
            await backend.aclose()
        if self.budgets is not None:
            await in_thread(self.budgets.flush)
        if "ledger" in self.__dict__:
            await in_thread(self.ledger.close)


class Core:
    """One client's own options on shared parts; its pipeline serves every call.

    Args:
        options: see :class:`ClientOptions`; those that are not given count as left out.
        endpoint: changes to the default endpoint that no option stands for (Azure's).
        source: of the client that this one is a copy of.

    Raises:
        ConfigurationError: for an option, file or environment variable that cannot be used.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        endpoint: Mapping[str, Any] | None = None,
        source: Core | None = None,
    ) -> None:
        self.options = {name: value for name, value in options.items() if not isinstance(value, NotGiven)}
        self.endpoint = dict(endpoint or {})
        setup_logging(os.environ)
        self.parts: Parts = Parts(self.options) if source is None else source.parts
        self.pipeline: Pipeline = Pipeline(
            source.pipeline.router if source is not None and self._routes_as(source) else self._router(),
            self._transport(),
            self.parts.prices,
            (self.parts.note,),
            prepare=self.parts.open_ledger,
            budgets=self.parts.budgets,
            warm=self.parts.warm,
            flowing=self.parts.flowing,
            memory=self.parts.memory,
        )

    @property
    def settings(self) -> Settings:
        """The configuration."""
        return self.parts.settings

    @property
    def default(self) -> Endpoint:
        """The endpoint whose a bare model name is."""
        place = self.pipeline.router.places.get(self.settings.default_provider)
        assert isinstance(place, Endpoint)
        return place

    @property
    def webhook_secret(self) -> str | None:
        """What webhooks are signed with."""
        given: str | None = self.options.get("webhook_secret")
        return os.environ.get("OPENAI_WEBHOOK_SECRET") if given is None else given

    @property
    def max_retries(self) -> int:
        """Tries after the first."""
        return checked_retries(self.options.get("max_retries", DEFAULT_MAX_RETRIES))

    @property
    def closed(self) -> bool:
        """Whether the client has been closed, or the user's own HTTP client that it works through."""
        own = self.options.get("http_client")
        return self.parts.closed or (own is not None and bool(own.is_closed))

    def set(self, name: str, value: Any) -> None:
        """Change one option; calls that are made from now on follow it."""
        self.options[name] = value
        if name == "base_url":
            self.options["data_residency"] = None
        self.pipeline.router, self.pipeline.transport = self._router(), self._transport()

    def budget_by(self, further: Callable[[Scope], Iterable[Budget]]) -> None:
        """Have calls counted by budgets that are looked up for each, too, beside the client's own."""
        budgets = self.parts.keep_budgets()
        budgets.further = further
        self.pipeline.budgets = budgets

    def _routes_as(self, source: Core) -> bool:
        """Tell whether calls go where those of another client go."""
        ours, theirs = (
            [None if options.get(name) == {} else options.get(name) for name in _ROUTING]
            for options in (self.options, source.options)
        )
        return self.endpoint == source.endpoint and ours == theirs

    def _transport(self) -> Transport:
        options = self.options
        return self.parts.transport.sharing(
            timeout=limit_of(options),
            max_retries=self.max_retries,
            http_client=options.get("http_client"),
        )

    def _router(self) -> Router:
        settings, parts, options = self.parts.settings, self.parts, self.options
        base_url = url_of(options)
        known = endpoints(
            settings,
            os.environ,
            providers=_providers(options.get("providers")),
            drop_params=options.get("drop_params"),
            api_key=options.get("api_key"),
            admin_api_key=options.get("admin_api_key"),
            base_url=None if base_url is None else str(base_url),
            organization=options.get("organization"),
            project=options.get("project"),
            headers=options.get("default_headers"),
            query=options.get("default_query"),
        )
        if self.endpoint:
            name = settings.default_provider
            known[name] = replace(known[name], **self.endpoint)
        name = settings.default_provider
        own = known[name]
        identity = hash((own.base_url, own.key, own.key_source, own.organization, own.project))
        known[name] = replace(own, account=parts.account(identity))
        places = Places(
            settings,
            known,
            settings.default_provider,
            owns_names=base_url is not None,
            backends=parts.backends,
        )
        return Router(
            settings,
            places,
            parts.estimates,
            parts.prices,
            candidates=options.get("candidates") or settings.candidates,
            policy=_policy(settings, options.get("policy")),
            sizes=parts.sizes,
        )


def checked_options(cls: type, options: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that no client takes."""
    unknown = options.keys() - KNOWN
    if unknown:
        raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {sorted(unknown)[0]!r}")


def checked_retries(value: Any) -> int:
    """Return a number of retries.

    Raises:
        TypeError, ValueError: for what is none, as the OpenAI client does.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"max_retries is {value!r}; it must be a whole number, 0 or more (0 switches retries off)"
        )
    if value < 0:
        raise ConfigurationError(f"max_retries is {value}; it must be 0 or more")
    return value


def _providers(given: Any) -> Sequence[Provider]:
    """Return the providers that an option holds.

    Raises:
        ConfigurationError: for what is none.
    """
    listed = [] if given is None else [given] if isinstance(given, Provider) else list(given)
    for each in listed:
        if not isinstance(each, Provider):
            raise ConfigurationError(
                f"providers holds a {type(each).__name__}; it must be a list of specclient.Provider"
            )
    return listed


def url_of(options: Mapping[str, Any]) -> Any:
    """Return the base URL that options name, None where they name none.

    Raises:
        ConfigurationError: for two of them, or a residency that there is none of.
    """
    base_url, residency = options.get("base_url"), options.get("data_residency")
    if residency is None:
        return base_url
    if base_url is not None or options.get("websocket_base_url") is not None:
        raise ConfigurationError("data_residency and a base_url cannot both be given; leave one of them out")
    if residency not in get_args(DataResidency):
        raise ConfigurationError(
            f"data_residency is {residency!r}; it must be one of {', '.join(get_args(DataResidency))}"
        )
    return f"https://{'' if residency == 'global' else f'{residency}.'}api.openai.com/v1"


def _settings(options: Mapping[str, Any]) -> Settings:
    config = options.get("config")
    named = {name: options[name] for name in ("ledger", "ledger_durability") if options.get(name) is not None}
    return config.model_copy(update=named) if isinstance(config, Settings) else load(config, **named)


def _budgets(settings: Settings, given: Any) -> list[Budget]:
    """Return the budgets of the settings and of an option, whose own win.

    Raises:
        ConfigurationError: for what is none, or two of one name in the option.
    """
    if not given:
        return settings.budget_list()
    from specclient.types.budget import Budget  # noqa: PLC0415 - only where there are some

    named: dict[str, Budget] = {}
    for each in given:
        if not isinstance(each, Budget):
            raise ConfigurationError(
                f"budgets holds a {type(each).__name__}; it must be a list of specclient.Budget"
            )
        if each.name in named:
            raise ConfigurationError(f"budgets holds two of the name {each.name!r}; give each its own")
        named[each.name] = each
    return [*(each for each in settings.budget_list() if each.name not in named), *named.values()]


def _policy(settings: Settings, policy: Policy | str | None) -> Policy:
    return settings.policy_named(policy) if isinstance(policy, str) else policy or Policy()


class _Past:
    """A client's ledger as its estimates read it: opened when they first ask."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[Row]:
        return self._parts.ledger.rows(since, until, limit=limit)
