"""Turn where a provider is and what it takes into an endpoint, and say what a dialect must do with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from pydantic import SecretStr

from specclient.errors import ConfigurationError
from specclient.providers.dialects import dialect
from specclient.providers.openai.quirks import NO_QUIRKS, Quirks
from specclient.types.api_method import ApiMethod
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities
from specclient.types.model import Model
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import WireRequest, WireResponse

#: Reads the events of one stream: returns what an event becomes, one thing or a list of them; None for the
#: end's mark, a ping, and whatever else says nothing.
EventReader = Callable[[bytes, str | None], Any]

#: Returns a key when it is called: a fresh one for every try.
KeySource = Callable[[], str | Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests go, and what may be asked there: a :class:`specclient.providers.Preset` with its key.

    Attributes:
        name: the provider's, the part of a model's name before ``/``.
        base_url: with scheme; a path and a query are kept in every URL. One with a placeholder in braces
            names no place yet: requests are refused until it is filled in.
        speaks: the name of the language spoken there, see :mod:`specclient.providers.dialects`.
        key: sent as a bearer token; None sends none.
        key_source: asked for the key before each try, in place of ``key``.
        key_header: any but ``authorization`` sends the key by itself under that name (Azure's ``api-key``).
        admin_key: sent with the methods of ``client.admin``.
        deployments: whether model calls go to ``/deployments/MODEL/…`` (Azure).
        deployment: the one they go to, whatever their model.
        headers, query: sent with every request; a header that is None is left out.
        organization, project: OpenAI's headers of these names, where not None.
        key_env: environment variables that hold the key, named when it is missing.
        key_required: whether a request without a key is refused before sending.
        base_url_env: environment variable that may fill in the base URL, named while that has a placeholder.
        stream_usage: whether ``stream_options.include_usage`` may be sent.
        drop_params: whether parameters that cannot be expressed there are left out instead of refused.
        capabilities: what it exposes of speculation, whatever the model.
        metrics: whether its Prometheus counters are read around each call: at ``/metrics``, or at a URL.
        probed: what probes have found of single models; see :meth:`capabilities_of`.
        quirks: how its form of OpenAI's bodies differs.
        account: marks another key or address at the same provider, whose rate limits are its own.
        price_provider: its id in genai-prices, None where it has no prices there,
            :data:`specclient.config.ANY_VENDOR` where it is not known who it is.

    Raises:
        ConfigurationError: for a base URL or key that cannot be used.
    """

    name: str
    base_url: str = field(repr=False)  # its query may hold a key
    speaks: str = "openai"
    key: SecretStr | None = None
    key_source: KeySource | None = field(default=None, repr=False)
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
    stream_usage: bool = True
    drop_params: bool = False
    capabilities: Capabilities = UNKNOWN_CAPABILITIES
    metrics: bool | str = field(default=False, repr=False)
    probed: Mapping[str, Capabilities] = field(default_factory=dict)
    quirks: Quirks = NO_QUIRKS
    account: str = ""
    price_provider: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", checked_base_url(self.base_url))
        if self.key is not None:
            object.__setattr__(self, "key", _checked_key(self.key, self.name))

    @property
    def address(self) -> str:
        """Its base URL as it may be shown."""
        return shown_url(self.base_url)

    @property
    def dialect(self) -> Dialect:
        """The language spoken there."""
        return dialect(self.speaks)

    @property
    def lacks(self) -> str | None:
        """What must be set before anything can be sent there, in words; None where nothing must."""
        if "{" in self.base_url:
            given = f"give base_url under [providers.{self.name}] in specclient.toml"
            return f"no address: {f'set {self.base_url_env}, or ' if self.base_url_env else ''}{given}"
        if self.key_required and self.key is None and self.key_source is None:
            return f"no key: set {' or '.join(self.key_env)}"
        return None

    def capabilities_of(self, model: str) -> Capabilities:
        """Return what is known of one model: of the endpoint, else what a probe has found.

        Of predictions, a probe is believed where the vendor names other models alone, too.
        """
        found, known = self.probed.get(model), self.capabilities
        if known.prediction_models and not model.startswith(known.prediction_models):
            if found is not None and found.prediction:
                known = replace(known, prediction_models=())
            else:
                known = replace(known, prediction=False)
        if found is None:
            return known
        unknown = [each.name for each in fields(Capabilities) if getattr(known, each.name) is None]
        return replace(known, **{name: getattr(found, name) for name in unknown})


class Dialect(Protocol):
    """A provider's language; every method is a pure function of its arguments."""

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        """Return ``request`` as it is sent to ``endpoint`` for ``model``.

        Raises:
            BadRequestError: for a parameter that cannot be sent, named.
            ConfigurationError: for a key that is missing, or a header that cannot be sent.
        """
        ...

    def decode(self, method: ApiMethod, reply: WireResponse) -> Any:
        """Return a whole answer as what the method gives.

        Raises, with ``attempts`` noted and without the secrets of the request:
            APIResponseValidationError: for what is no such answer.
            APIError: for an error under a status of success.
        """
        ...

    def events(self, method: ApiMethod) -> EventReader:
        """Return what reads the events of one stream, their data and name, into what the method's events are.

        Raises, as it reads:
            APIResponseValidationError: for what is no such chunk.
            APIError: for an error that came as an event; of the class its status or type stands for.
        """
        ...

    def usage(self, answer: Any) -> Usage | None:
        """Return the tokens an answer or chunk reports, None where it reports none."""
        ...

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        """Return the request that lists the models of ``endpoint``."""
        ...

    def decode_models(self, reply: WireResponse) -> list[Model]:
        """Return the models of the answer to :meth:`encode_models`; raises as :meth:`decode`."""
        ...


def shown_url(url: str) -> str:
    """Return a URL as it may be shown: without its query, which may hold a key."""
    head, mark, _ = url.partition("?")
    return f"{head}?…" if mark else url


def checked_base_url(url: str) -> str:
    """Return ``url`` stripped of blanks.

    Raises:
        ConfigurationError: without scheme or host, with the corrected form where one can be told.
    """
    url = url.strip()
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises for a port that is none
    except ValueError as error:
        raise ConfigurationError(f"base_url {shown_url(url)!r} is no URL: {error}") from None
    if "@" in parts.netloc:  # not shown: it holds a password
        raise ConfigurationError(
            f"base_url of {parts.hostname!r} holds a user name or password; take them out of it and pass "
            "default_headers={'Authorization': 'Basic …'}"
        )
    if parts.scheme in ("http", "https") and parts.hostname:
        return url
    if "://" not in url and url and not url.startswith("/"):
        host = urlsplit(f"//{url}").hostname or ""
        scheme = "http" if host in ("localhost", "0.0.0.0") or host.startswith("127.") else "https"  # noqa: S104
        url = shown_url(url)
        raise ConfigurationError(f"base_url {url!r} has no scheme; write {f'{scheme}://{url}'!r}")
    raise ConfigurationError(
        f"base_url is {shown_url(url)!r}; it must be a URL such as 'https://api.openai.com/v1'"
    )


def _checked_key(key: SecretStr, name: str) -> SecretStr | None:
    text = key.get_secret_value().strip()  # a key read from a file often ends in a line break
    if not text.isascii() or not text.isprintable():
        raise ConfigurationError(
            f"the key of provider {name!r} holds a line break or a character outside ASCII"
        )
    return SecretStr(text) if text else None
