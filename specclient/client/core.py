"""A client's core: its options, its pipeline, and the state that it shares with its copies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from specclient.call.pipeline import Judging, Pipeline
from specclient.client.options import (
    DEFAULT_MAX_RETRIES,
    base_url_of,
    check_provider,
    checked_retries,
    policy_of,
    providers_of,
    response_limits_of,
    workload_auth_of,
)
from specclient.client.remembered_key import RememberedKey, remembered_key
from specclient.client.shared_state import SharedState
from specclient.config import Settings
from specclient.http_transport.http import Transport
from specclient.providers.configuration import endpoints
from specclient.providers.endpoint import Endpoint
from specclient.resources.base import timeout_of
from specclient.routing.destinations import DestinationRegistry
from specclient.routing.router import Router
from specclient.runtime.logs import setup_logging
from specclient.types.cache_options import CacheOptions
from specclient.types.params import is_given

if TYPE_CHECKING:
    from specclient.client.workload_identity import WorkloadIdentityAuth
    from specclient.types.budget import Budget, BudgetScope

#: Options that determine destinations and their requests. Copies with equal values share a router.
_ROUTING = (
    "providers", "drop_params", "api_key", "admin_api_key", "base_url", "data_residency", "organization",
    "project", "default_headers", "default_query", "candidates", "policy", "websocket_base_url",
    "workload_identity",
)  # fmt: skip


class ClientCore:
    """The options of one client, and the pipeline that serves its calls.

    Args:
        options: see :class:`specclient.client.options.ClientOptions`; a value of ``NOT_GIVEN`` is dropped.
        endpoint: values for fields of the default endpoint that no option sets (for Azure and Bedrock).
        source: the core of the client that this one is a copy of.

    Attributes:
        options: the options that were given.
        shared: the state shared with copies: settings, prices, connections, engines, ledger, estimates.
        pipeline: serves the client's calls.

    Raises:
        ConfigurationError: an option, the configuration file or an environment variable is invalid.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        endpoint: Mapping[str, Any] | None = None,
        source: ClientCore | None = None,
    ) -> None:
        self.options = {name: value for name, value in options.items() if is_given(value)}
        check_provider(self.options)
        self._remember_key()
        self._workload: WorkloadIdentityAuth | None = workload_auth_of(
            self.options, None if source is None else source._workload
        )
        self.endpoint = dict(endpoint or {})
        self._idle_http_client: Any = None
        setup_logging(os.environ)
        self.shared: SharedState = SharedState(self.options) if source is None else source.shared
        self.pipeline: Pipeline = Pipeline(
            source.pipeline.router if source is not None and self._routes_as(source) else self._router(),
            self._transport(),
            self.shared.prices,
            (self.shared.record,),
            prepare=self.shared.open_ledger,
            budgets=self.shared.budgets,
            warm=self.shared.prepared,
            on_routed_call=self.shared.poll_loads,
            failover_state=lambda: self.shared.failover_state,
            stored=lambda: self.shared.stored,
            cache=lambda: self.shared.cache,
            cache_default=CacheOptions() if self.settings.cache.enabled else None,
            judging=self._judging(),
        )

    @property
    def settings(self) -> Settings:
        """The configuration of the client and its copies."""
        return self.shared.settings

    @property
    def default(self) -> Endpoint:
        """The endpoint of the default provider, which serves model names without a provider."""
        endpoint = self.pipeline.destinations.get(self.settings.default_provider)
        assert isinstance(endpoint, Endpoint)
        return endpoint

    @property
    def webhook_secret(self) -> str | None:
        """The secret that webhooks are signed with."""
        given: str | None = self.options.get("webhook_secret")
        return os.environ.get("OPENAI_WEBHOOK_SECRET") if given is None else given

    @property
    def max_retries(self) -> int:
        """The number of attempts after the first."""
        return checked_retries(self.options.get("max_retries", DEFAULT_MAX_RETRIES))

    @property
    def closed(self) -> bool:
        """Whether the client, or the ``http_client`` that the user passed, is closed."""
        own = self.options.get("http_client")
        return self.shared.closed or (own is not None and bool(own.is_closed))

    def idle_http_client(self, *, is_async: bool) -> Any:
        """Return an ``httpx`` client with this package's defaults, for code that inspects ``client._client``.

        It sends no calls, because the transport has connections of its own.
        """
        if self._idle_http_client is None:
            from specclient.http_transport.clients import defaults  # noqa: PLC0415 - imports httpx

            kind = defaults.DefaultAsyncHttpxClient if is_async else defaults.DefaultHttpxClient
            self._idle_http_client = kind(base_url=self.default.base_url)
        return self._idle_http_client

    def set(self, name: str, value: Any) -> None:
        """Change one option for all later calls."""
        self.options[name] = value
        if name == "api_key" and value is not None:
            self.options["workload_identity"] = None
        self._remember_key()
        self._workload = workload_auth_of(self.options, self._workload)
        if name == "base_url":
            self.options["data_residency"] = None
        self.pipeline.reconfigure(router=self._router(), transport=self._transport())

    def add_budget_source(self, find_budgets: Callable[[BudgetScope], Iterable[Budget]]) -> None:
        """Apply the budgets that ``find_budgets`` returns for a call, in addition to the client's own."""
        budgets = self.shared.ensure_budgets()
        budgets.extra_budgets = find_budgets
        self.pipeline.reconfigure(budgets=budgets)

    def _remember_key(self) -> None:
        """Wrap a key function, so that ``client.api_key`` can show its latest key."""
        key = self.options.get("api_key")
        if callable(key) and not isinstance(key, RememberedKey):
            self.options["api_key"] = remembered_key(key)

    def _routes_as(self, source: ClientCore) -> bool:
        """Return whether the options allow this client to share another client's router."""
        ours, theirs = (
            [None if options.get(name) == {} else options.get(name) for name in _ROUTING]
            for options in (self.options, source.options)
        )
        return self._workload is source._workload and self.endpoint == source.endpoint and ours == theirs

    def _judging(self) -> Judging | None:
        judge, qualities = self.settings.judge, self.shared.qualities
        if judge is None:
            return None
        score = partial(qualities.feedback, weight=judge.weight, giver="judge")
        return Judging(judge, score, self.shared.judgements)

    def _transport(self) -> Transport:
        options = self.options
        return self.shared.transport.sharing(
            timeout=timeout_of(options),
            max_retries=self.max_retries,
            http_client=options.get("http_client"),
            response_limits=response_limits_of(options.get("response_limits")),
        )

    def _router(self) -> Router:
        settings, shared, options = self.shared.settings, self.shared, self.options
        base_url = base_url_of(options)
        known = endpoints(
            settings,
            os.environ,
            providers=providers_of(options.get("providers")),
            drop_params=options.get("drop_params"),
            api_key=None if self._workload is not None else options.get("api_key"),
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
        if self._workload is not None:
            own = self._workload.placed(own, options)
        identity = hash(
            (own.base_url, own.key, own.key_source, own.organization, own.project, self._workload)
        )
        sockets = options.get("websocket_base_url")
        known[name] = replace(
            own,
            account=shared.account_mark(identity),
            websocket_url=None if sockets is None else str(sockets),
        )
        places = DestinationRegistry(
            settings,
            known,
            settings.default_provider,
            owns_names=base_url is not None,
            backends=shared.backends,
            fleets=shared.fleets,
        )
        return Router(
            settings,
            places,
            shared.estimates,
            shared.prices,
            candidates=options.get("candidates") or settings.candidates,
            policy=policy_of(settings, options.get("policy")),
            sizes=shared.sizes,
            fleets=shared.fleets,
            qualities=shared.qualities,
        )
