"""The options of a client as attributes, to be read and set as those of the `openai` package's client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specclient.client.core import ClientCore
from specclient.client.remembered_key import RememberedKey
from specclient.client.workload_identity import PLACEHOLDER_KEY, WorkloadIdentity
from specclient.http_transport.clients.timeouts import own_timeout
from specclient.providers.encoding import user_agent
from specclient.types.params import Omit, omit

__all__ = ["OptionAttributes"]


class OptionAttributes:
    """The attributes of a client that read and set its options, of which the core keeps the values."""

    _core: ClientCore
    _is_async: ClassVar[bool]

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
