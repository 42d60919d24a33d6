"""A provider's endpoint: address, key, wire dialect and capabilities."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from pydantic import SecretStr

from specclient.errors import ConfigurationError
from specclient.providers.cloud import NO_CLOUD, CloudSettings
from specclient.providers.openai.quirks import NO_QUIRKS, Quirks
from specclient.providers.vertex.place import VertexPlace
from specclient.runtime.masked_urls import mask_url, masked_reason
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities
from specclient.types.request import Request
from specclient.types.wire import Authorize, WireRequest

#: Returns the key. Called before each HTTP attempt, so the key may change.
KeySource = Callable[[], str | Awaitable[str]]


class Authorizer(Protocol):
    """Authorises requests to a cloud with tokens or signatures from the caller's credentials.

    An endpoint has one in place of a key. It is an :data:`specclient.types.wire.Authorize`, so it may also be
    called with a request alone.
    """

    @property
    def lacks(self) -> str | None:
        """The settings missing for a first attempt, as text; None if one may succeed. Reads no network."""
        ...

    async def __call__(self, request: WireRequest) -> WireRequest:
        """Return a request as one attempt sends it.

        Raises:
            CredentialsError: the credentials are missing, expired or refused.
        """
        ...


class EndpointServer(Protocol):
    """The server of an endpoint that is started when a call needs it; see
    :class:`specclient.providers.started_server.StartedServer`."""

    @property
    def title(self) -> str:
        """The server's name in messages."""
        ...

    def for_call(self, call: str, request: Request) -> EndpointServer:
        """Return what serves one call: this server, or one of its replicas.

        Args:
            call: the id of its record.
            request: the call.
        """
        ...

    def accepted(self, request: Request, idle: Endpoint) -> Request:
        """Return a request without parameters that the server refuses, if those are dropped.

        Raises:
            UnsupportedParameterError: the request has such a parameter, and they are not dropped.
        """
        ...

    async def endpoint(self, idle: Endpoint) -> Endpoint:
        """Start the server unless it runs; return its endpoint. Then :meth:`release` must be called.

        Raises:
            ConfigurationError, EngineError: it cannot be started, or ended.
        """
        ...

    def release(self) -> None:
        """Note that a call has ended."""
        ...

    def authorize(self, started: Endpoint) -> Authorize:
        """Return a function that starts the server again before a further attempt, if it has ended."""
        ...

    def others_serve(self) -> bool:
        """Return whether servers beside the one of the call's last attempt are expected to answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A provider's address, and what it accepts: a :class:`specclient.providers.Preset` with its key.

    Attributes:
        name: the provider's name, the part of a model's name before ``/``.
        base_url: a URL with a scheme. Its path and query are kept in every request's URL. While it contains
            a placeholder in braces, requests are refused.
        dialect: the name of the wire dialect, see :mod:`specclient.providers.dialects`.
        key: sent as a bearer token; None sends none.
        key_source: called for the key before each HTTP attempt, in place of ``key``.
        authorizer: authorises requests in place of a key; None for providers with keys.
        authorizes_all: whether the authorizer also receives requests with a key in their headers, which it
            may refuse.
        key_header: a name other than ``authorization`` sends the bare key in that header (Azure's
            ``api-key``).
        admin_key: sent with the methods of ``client.admin``.
        deployments: whether model calls go to ``/deployments/MODEL/…`` (Azure).
        deployment: the deployment they go to, whatever their model.
        headers, query: sent with every request; a header that is None is omitted.
        organization, project: values of OpenAI's headers of these names; None omits them.
        key_env: environment variables that may hold the key; the error for a missing key names them.
        key_required: whether a request without a key is refused before it is sent.
        base_url_env: the environment variable that may fill in the base URL; the error for a placeholder
            names it.
        requests_usage: whether streams ask for their usage by ``stream_options.include_usage``. An endpoint
            that refuses ``stream_options`` lists it in ``quirks.refused`` instead.
        drop_params: whether unsupported parameters are omitted instead of refused.
        capabilities: support for speculation, for all models.
        metrics: whether its Prometheus counters are read before and after each call: True for ``/metrics``,
            or their URL.
        probed: capabilities of single models that probes have found; see :meth:`capabilities_of`.
        templates: chat templates by model, ``*`` for all others; see :meth:`template_of`.
        quirks: differences from OpenAI's request and response bodies.
        websocket_url: the URL of WebSockets in place of ``base_url``; None for ``base_url``.
        cloud: the settings of a cloud provider.
        place: the place in Google Cloud, which determines the paths; None for other providers.
        account: distinguishes several keys or addresses at one provider, each with its own rate limits.
        server: starts the endpoint's server when a call needs it; None for servers that run anyway.
        served_model: the name of its one model in requests, if it is not that after ``provider/``.
        pools: the base URLs of a fleet's pools, by name; None for ``base_url``. Empty for other providers.
        start_hint: a sentence that says how its server is started, for the error where none answers.
        price_provider: its id in genai-prices, None if it has no prices there,
            :data:`specclient.config.ANY_VENDOR` if the vendor is unknown.

    Raises:
        ConfigurationError: the base URL or the key is invalid.
    """

    name: str
    base_url: str = field(repr=False)  # its query may hold a key
    dialect: str = "openai"
    key: SecretStr | None = None
    key_source: KeySource | None = field(default=None, repr=False)
    authorizer: Authorizer | None = field(default=None, repr=False)
    authorizes_all: bool = False
    key_header: str = "authorization"
    admin_key: SecretStr | None = None
    deployments: bool = False
    deployment: str | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict, repr=False)  # may hold keys
    query: Mapping[str, Any] = field(default_factory=dict, repr=False)
    organization: str | None = None
    project: str | None = None
    key_env: tuple[str, ...] = ()
    key_required: bool = False
    base_url_env: str | None = None
    requests_usage: bool = True
    drop_params: bool = False
    capabilities: Capabilities = UNKNOWN_CAPABILITIES
    metrics: bool | str = field(default=False, repr=False)
    probed: Mapping[str, Capabilities] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    quirks: Quirks = NO_QUIRKS
    websocket_url: str | None = field(default=None, repr=False)  # its query may hold a key
    cloud: CloudSettings = NO_CLOUD
    place: VertexPlace | None = None
    account: str = ""
    server: EndpointServer | None = field(default=None, repr=False)
    served_model: str | None = None
    pools: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    start_hint: str = ""
    price_provider: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", checked_base_url(self.base_url))
        if self.key is not None:
            object.__setattr__(self, "key", _checked_key(self.key, self.name))

    @property
    def address(self) -> str:
        """The base URL without its query, which may hold a key."""
        return mask_url(self.base_url)

    @property
    def asks_usage(self) -> bool:
        """Whether streams ask for their usage, also if the caller does not."""
        return self.requests_usage and "stream_options" not in self.quirks.refused

    @property
    def lacks(self) -> str | None:
        """The missing settings as text, None if requests can be sent."""
        if self.place is not None and self.place.problem is not None:
            return self.place.problem
        if "{" in self.base_url:
            option = f"give base_url under [providers.{self.name}] in specclient.toml"
            return f"no address: {f'set {self.base_url_env}, or ' if self.base_url_env else ''}{option}"
        if self.has_key:
            return None
        if self.authorizer is not None:
            return self.authorizer.lacks
        return f"no key: set {' or '.join(self.key_env)}"

    @property
    def has_key(self) -> bool:
        """Whether the endpoint has a key or other credentials, as far as known, or needs none."""
        if self.key is not None or self.key_source is not None or not self.key_required:
            return True
        return self.authorizer is not None and self.authorizer.lacks is None

    def template_of(self, model: str) -> str | None:
        """Return the folder, file or hub id of a model's chat template; None where it is not known."""
        return self.templates.get(model, self.templates.get("*"))

    def capabilities_of(self, model: str) -> Capabilities:
        """Return the capabilities of one model: the endpoint's, with unknown ones filled in from a probe.

        A probe that found predictions also overrides a vendor's list that does not include the model.
        """
        probed, known = self.probed.get(model), self.capabilities
        if known.prediction_models and not model.startswith(known.prediction_models):
            if probed is not None and probed.prediction:
                known = replace(known, prediction_models=())
            else:
                known = replace(known, prediction=False)
        if probed is None:
            return known
        unknown = [each.name for each in fields(Capabilities) if getattr(known, each.name) is None]
        return replace(known, **{name: getattr(probed, name) for name in unknown})


def checked_base_url(url: str) -> str:
    """Return ``url`` without surrounding blanks.

    Raises:
        ConfigurationError: the URL has no scheme or host, or contains a user name. The message gives a
            corrected form if there is an obvious one.
    """
    url = url.strip()
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for an invalid port
    except ValueError as error:
        reason = masked_reason(url, error)
        raise ConfigurationError(f"base_url {mask_url(url)!r} is not a URL{reason}") from None
    if "@" in parts.netloc:
        host = f" of {parts.hostname!r}" if url.count("@") == 1 else ""  # else part of a password, perhaps
        raise ConfigurationError(
            f"base_url{host} contains a user name or password; remove them and pass "
            "default_headers={'Authorization': 'Basic …'}"
        )
    if parts.scheme in ("http", "https") and parts.hostname:
        return url
    if "://" not in url and url and not url.startswith("/"):
        host = urlsplit(f"//{url}").hostname or ""
        scheme = "http" if host in ("localhost", "0.0.0.0") or host.startswith("127.") else "https"  # noqa: S104
        url = mask_url(url)
        raise ConfigurationError(f"base_url {url!r} has no scheme; write {f'{scheme}://{url}'!r}")
    raise ConfigurationError(
        f"base_url is {mask_url(url)!r}; it must be a URL such as 'https://api.openai.com/v1'"
    )


def _checked_key(key: SecretStr, name: str) -> SecretStr | None:
    text = key.get_secret_value().strip()  # a key read from a file often ends in a line break
    if not text.isascii() or not text.isprintable():
        raise ConfigurationError(
            f"the key of provider {name!r} contains a line break or a character outside ASCII"
        )
    return SecretStr(text) if text else None
