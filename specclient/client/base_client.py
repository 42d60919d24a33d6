"""The common part of both clients: options as attributes, resources, and copies with changed options."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from specclient.client.core import ClientCore
from specclient.client.http_methods import HttpMethods
from specclient.client.options import SHARED, checked_options, with_one_credential
from specclient.client.remembered_key import RememberedKey
from specclient.client.workload_identity import PLACEHOLDER_KEY, WorkloadIdentity
from specclient.errors import ConfigurationError
from specclient.http_transport.clients.timeouts import own_timeout
from specclient.providers.encoding import user_agent
from specclient.resources.base import ResourceCaller
from specclient.resources.resource_classes import class_of, names
from specclient.runtime.official_classes import SeenAsOfficial
from specclient.types.params import Omit, is_given, omit

if TYPE_CHECKING:
    from specclient.call.pipeline import Pipeline
    from specclient.config import Settings
    from specclient.ledger.ledger import Ledger
    from specclient.routing.router import Router

Client = TypeVar("Client", bound="BaseClient")


class ClientResource:
    """A resource as an attribute of a client, made on first use.

    Unlike ``functools.cached_property``, it has no lock that a forked process could inherit locked.

    Args:
        name: the attribute.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.__doc__ = f"``client.{name}``."

    def __get__(self, client: BaseClient | None, owner: type) -> Any:
        if client is None:
            return self
        resource = class_of(self._name, is_async=client._is_async)(client._caller)
        client.__dict__[self._name] = resource
        return resource


def with_resources(client_class: type[Client]) -> type[Client]:
    """Add all resources to a class of clients as attributes."""
    for name in names():
        setattr(client_class, name, ClientResource(name))
    return client_class


class BaseClient(SeenAsOfficial, HttpMethods):
    """Base class of the synchronous and the asynchronous client."""

    _core: ClientCore
    _is_async: ClassVar[bool]

    @property
    def settings(self) -> Settings:
        """The configuration the client was made with."""
        return self._core.settings

    @property
    def ledger(self) -> Ledger:
        """The record of every call."""
        return self._core.shared.ledger

    def feedback(self, call_id: str, score: float) -> None:
        """Score the answer of a call, from which ``min_quality`` of policies learns; nothing is sent.

        Args:
            call_id: ``meta.id`` of the answer.
            score: from 0 to 1, such as a grader's mark; True and False stand for a thumb up or down.

        Raises:
            ConfigurationError: another score, or a call that this client did not make, or made long ago.
        """
        self._core.shared.qualities.feedback(call_id, score)

    def is_closed(self) -> bool:
        """Return whether the client is closed. A closed client reopens when it is used."""
        return self._core.closed

    @property
    def core(self) -> ClientCore:
        """The client's options, its pipeline, and the state that it shares with its copies."""
        return self._core

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that serves the client's requests."""
        return self._core.pipeline

    @property
    def router(self) -> Router:
        """The router, which chooses the destination of each request among ``router.destinations``."""
        return self._core.pipeline.router

    @property
    def api_key(self) -> str:
        """The key of the default provider; of a key function, its latest key, empty before the first call."""
        if self.workload_identity is not None:
            return PLACEHOLDER_KEY
        given = self._core.options.get("api_key")
        if isinstance(given, RememberedKey):
            return given.latest
        key = self._core.default.key
        return "" if key is None or callable(given) else key.get_secret_value()

    @api_key.setter
    def api_key(self, value: Any) -> None:
        self._core.set("api_key", value)

    @property
    def admin_api_key(self) -> str | None:
        """The key of ``client.admin``."""
        key = self._core.default.admin_key
        return None if key is None else key.get_secret_value()

    @admin_api_key.setter
    def admin_api_key(self, value: str | None) -> None:
        self._core.set("admin_api_key", value)

    @property
    def workload_identity(self) -> WorkloadIdentity | None:
        """The identity whose tokens authorise requests; ``api_key`` is then a placeholder. None for a key."""
        given: WorkloadIdentity | None = self._core.options.get("workload_identity")
        return given

    @property
    def organization(self) -> str | None:
        """The organization, sent as ``OpenAI-Organization``."""
        return self._core.default.organization

    @organization.setter
    def organization(self, value: str | None) -> None:
        self._core.set("organization", value)

    @property
    def project(self) -> str | None:
        """The project, sent as ``OpenAI-Project``."""
        return self._core.default.project

    @project.setter
    def project(self, value: str | None) -> None:
        self._core.set("project", value)

    @property
    def webhook_secret(self) -> str | None:
        """The secret that webhooks are signed with."""
        return self._core.webhook_secret

    @webhook_secret.setter
    def webhook_secret(self, value: str | None) -> None:
        self._core.set("webhook_secret", value)

    @property
    def base_url(self) -> Any:
        """The URL of the default provider, as an ``httpx.URL`` that ends with a slash."""
        from specclient.http_transport.clients.defaults import URL  # noqa: PLC0415 - imports httpx

        endpoint = self._core.default
        path, mark, query = endpoint.base_url.partition("?")
        if endpoint.deployment is not None:
            path = f"{path.rstrip('/')}/deployments/{endpoint.deployment}"
        return URL(path + mark + query if URL(path).path.endswith("/") else f"{path}/{mark}{query}")

    @base_url.setter
    def base_url(self, value: Any) -> None:
        self._core.set("base_url", value)

    @property
    def _base_url(self) -> Any:
        """``base_url`` under the name that integrations of the `openai` package read."""
        return self.base_url

    @_base_url.setter
    def _base_url(self, value: Any) -> None:
        self.base_url = value

    @property
    def _client(self) -> Any:
        """The ``http_client`` option; without it, an ``httpx`` client to inspect, which sends no calls."""
        given = self._core.options.get("http_client")
        if given is None:
            given = self._core.idle_http_client(is_async=self._is_async)
        return given

    @_client.setter
    def _client(self, value: Any) -> None:
        self._core.set("http_client", value)

    @property
    def _strict_response_validation(self) -> bool:
        """The option of this name, which has no effect."""
        return bool(self._core.options.get("_strict_response_validation", False))

    @property
    def websocket_base_url(self) -> Any:
        """The URL of WebSockets at the default provider; None for :attr:`base_url`."""
        return self._core.options.get("websocket_base_url")

    @websocket_base_url.setter
    def websocket_base_url(self, value: Any) -> None:
        self._core.set("websocket_base_url", value)

    @property
    def timeout(self) -> Any:
        """The time limit of a request: seconds, an ``httpx.Timeout``, or None for no limit."""
        options = self._core.options
        if "timeout" in options:
            return options["timeout"]
        from specclient.http_transport.clients.defaults import DEFAULT_TIMEOUT  # noqa: PLC0415 - imports httpx

        http_client = options.get("http_client")
        own = None if http_client is None else own_timeout(http_client)
        return DEFAULT_TIMEOUT if own is None else own

    @timeout.setter
    def timeout(self, value: Any) -> None:
        self._core.set("timeout", value)

    @property
    def max_retries(self) -> int:
        """The number of attempts after the first."""
        return self._core.max_retries

    @max_retries.setter
    def max_retries(self, value: int) -> None:
        self._core.set("max_retries", value)

    @property
    def auth_headers(self) -> dict[str, str]:
        """The header with the key of the default provider; empty before a function has provided the key."""
        key = self.api_key
        if not key or self.workload_identity is not None:
            return {}
        header = self._core.default.key_header
        return {"Authorization": f"Bearer {key}"} if header == "authorization" else {header: key}

    @property
    def default_headers(self) -> dict[str, str | Omit]:
        """The headers of every request to the default provider, without the key."""
        return {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": self.user_agent,
            "OpenAI-Organization": omit if self.organization is None else self.organization,
            "OpenAI-Project": omit if self.project is None else self.project,
            **self._custom_headers,
        }

    @property
    def user_agent(self) -> str:
        """The value of the ``User-Agent`` header."""
        return user_agent()

    @property
    def default_query(self) -> dict[str, Any]:
        """The query parameters of every request to the default provider."""
        return dict(self._core.default.query)

    @property
    def _custom_headers(self) -> Mapping[str, Any]:
        return self._core.options.get("default_headers") or {}

    @property
    def _custom_query(self) -> Mapping[str, object]:
        return self._core.options.get("default_query") or {}

    def copy(
        self,
        *,
        default_headers: Mapping[str, Any] | None = None,
        set_default_headers: Mapping[str, Any] | None = None,
        default_query: Mapping[str, object] | None = None,
        set_default_query: Mapping[str, object] | None = None,
        _extra_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Return a client with changed options that shares this client's connections, engines and ledger.

        Args:
            default_headers, default_query: added to those of this client.
            set_default_headers, set_default_query: replace those of this client.
            options: any other client option except ``budgets``, ``config``, ``ledger`` and
                ``ledger_durability``.

        Raises:
            ValueError: both forms of headers, or of the query, are given.
            TypeError: an option does not exist.
            ConfigurationError: an option belongs to the shared state.
        """
        changes = {k: v for k, v in {**options, **(_extra_kwargs or {})}.items() if is_given(v)}
        changes["default_headers"] = _merged(
            "headers", self._custom_headers, default_headers, set_default_headers
        )
        changes["default_query"] = _merged("query", self._custom_query, default_query, set_default_query)
        if named := SHARED & changes.keys():
            raise ConfigurationError(
                f"{sorted(named)[0]} cannot be changed in a copy, which shares it; make a new client"
            )
        kept = {k: v for k, v in changes.items() if v is not None or k in ("timeout", "max_retries")}
        for name, other in (("base_url", "data_residency"), ("data_residency", "base_url")):
            if name in kept and other not in kept:
                kept[other] = None
        return self._changed(with_one_credential(kept))

    with_options = copy

    def __deepcopy__(self, memo: Any) -> Self:
        """Return a copy that shares this client's connections, which cannot be copied."""
        return self.copy()

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        checked_options(type(self), changes)
        client = type(self).__new__(type(self))
        core = self._core
        client._begin(ClientCore({**core.options, **changes}, endpoint=core.endpoint, source=core))
        return client

    def _begin(self, core: ClientCore) -> None:
        """Set the core and the caller that serves the resources."""
        raise NotImplementedError

    @property
    def with_raw_response(self) -> Self:
        """This client; its methods return HTTP responses: ``.headers``, ``.status_code``, ``.parse()``."""
        return self._through(self._caller.raw())

    @property
    def with_streaming_response(self) -> Self:
        """This client with methods that return context managers of responses with an unread body."""
        streaming = self._caller.streaming()
        view: Self = streaming.view(self._through(streaming))
        return view

    def _client_source(self) -> Callable[[], Any]:
        """Return a function that returns this client or, once it is deleted, a new one with the same core.

        The function holds no reference to this client, so that an unused client is deleted at once.
        """
        reference, kind, core, own = weakref.ref(self), type(self), self._core, dict(vars(self))

        def client() -> Any:
            found = reference()
            if found is None:
                found = kind.__new__(kind)
                vars(found).update(own)
                found._begin(core)
            return found

        return client

    def _through(self, caller: ResourceCaller) -> Self:
        client = copy.copy(self)
        for name in [name for name in client.__dict__ if not name.startswith("_")]:
            del client.__dict__[name]  # cached resources, which use the old caller
        client._caller = caller
        return client


def _merged(
    what: str,
    current: Mapping[str, Any],
    added: Mapping[str, Any] | None,
    replacement: Mapping[str, Any] | None,
) -> dict[str, Any]:
    if added is not None and replacement is not None:
        raise ValueError(f"default_{what} and set_default_{what} cannot both be given; choose one")
    return dict(replacement) if replacement is not None else {**current, **(added or {})}
