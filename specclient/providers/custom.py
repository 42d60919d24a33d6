"""User-defined providers, and changes to known ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydantic import SecretStr

from specclient.config import ANY_VENDOR
from specclient.errors import ConfigurationError
from specclient.providers.cloud import CloudSettings
from specclient.providers.dialects import DIALECTS
from specclient.providers.endpoint import Endpoint, KeySource, checked_base_url
from specclient.providers.openai.quirks import Quirks
from specclient.providers.presets.registry import PRESETS, preset_for_url
from specclient.runtime.masked_urls import mask_url
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A user-defined provider, or changes to a known one: ``OpenAI(providers=[Provider(…)])``.

    Its models are used as ``NAME/MODEL``. The table ``[providers.NAME]`` in ``specclient.toml`` has the same
    options. An option that is None keeps the value of the known provider with this name or URL.

    Attributes:
        name: the part of a model's name before ``/``.
        base_url: its URL; required for an unknown name.
        dialect: the wire dialect, one of :data:`specclient.providers.DIALECTS`.
        key: the API key, or a function that returns it and is called before each HTTP attempt.
        key_env: the environment variable that holds the key, or several in order. Requests then need a key.
        key_header: the header of the key: a bearer token in ``authorization``, the bare key in any other.
            Defaults to the dialect's header.
        headers: sent with every request; None omits a header.
        stream_usage: whether ``stream_options.include_usage`` is supported; streams then ask for usage.
        price_provider: the vendor whose prices apply, an id of genai-prices; ``*`` looks prices up by the
            model's name, regardless of its vendor.
        metrics: whether its Prometheus counters are read before and after each call, for figures of
            speculation that its responses lack: True for ``/metrics`` next to ``/v1``, or their URL. The key
            is sent only to the provider's own server. The counters cover all requests of the server, so
            they describe a call only if it runs alone; each reading is one more request. If ``auto`` may
            choose the provider, its load is read there periodically, too, independently of calls; for known
            servers this is always done.
        project, location: of a cloud provider (``vertex``, ``bedrock``): the project of the requests, and the
            region that serves them. By default those of the environment or of the credentials.
        credentials: of a cloud provider: the path of a file with credentials (``vertex``), the name of a
            profile (``bedrock``), or credentials of the cloud's own library (google-auth, botocore). By
            default those of the environment or of the machine.
        template: the chat template of its models, by which strategy ``remote`` renders chats: a checkpoint's
            folder or hub id, or a Jinja file; or one for each model by its name, ``*`` for the others.
        capabilities: its support for speculation; unknown fields keep the known values.

    Raises:
        ConfigurationError: a value is invalid. The message names it and what is allowed.
    """

    name: str
    base_url: str | None = field(default=None, repr=False)  # its query may hold a key
    dialect: str | None = None
    key: str | SecretStr | KeySource | None = field(default=None, repr=False)
    key_env: str | tuple[str, ...] | None = None
    key_header: str | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict, repr=False)  # may hold keys
    stream_usage: bool | None = None
    price_provider: str | None = None
    metrics: bool | str | None = field(default=None, repr=False)
    project: str | None = None
    location: str | None = None
    credentials: Any = field(default=None, repr=False)
    template: str | Mapping[str, str] | None = None
    capabilities: Capabilities | None = None

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ConfigurationError(
                f"a provider is named {self.name!r}; its name must be the part of a model's name before '/'"
            )
        if self.dialect is not None and self.dialect not in DIALECTS:
            raise self._error("dialect", self.dialect, f"one of {', '.join(DIALECTS)}")
        if self.key_header is not None and not _HEADER_NAME.fullmatch(self.key_header):
            raise self._error("key_header", self.key_header, "a header's name, such as 'x-api-key'")
        if self.base_url is not None:
            try:
                checked_base_url(self.base_url)
            except ConfigurationError as error:
                raise ConfigurationError(f"provider {self.name!r}: {error}") from None

        if isinstance(self.metrics, str):
            try:
                checked_base_url(self.metrics)
            except ConfigurationError as error:
                raise self._error("metrics", mask_url(self.metrics), f"true or a URL ({error})") from None

        if not all(name and template for name, template in self._templates().items()):
            raise self._error("template", self.template, "a folder, file or hub id, or one for each model")

    def _templates(self) -> Mapping[str, str]:
        return {"*": self.template} if isinstance(self.template, str) else self.template or {}

    def _error(self, key: str, value: object, allowed: str) -> ConfigurationError:
        return ConfigurationError(f"provider {self.name!r}: {key} is {value!r}; it must be {allowed}")

    def endpoint(self, known: Endpoint | None, env: Mapping[str, str]) -> Endpoint:
        """Return the provider's endpoint.

        Args:
            known: the endpoint with the same name, or None.
            env: the environment with the variables of ``key_env``.

        Raises:
            ConfigurationError: an unknown name has no URL, or the key is invalid.
        """
        if known is None and self.base_url is None and self.dialect is not None:
            known = _cloud_endpoint(self.name, self.dialect, env)
        if known is None:
            if self.base_url is None:
                raise ConfigurationError(
                    f"[providers.{self.name}] has no base_url, and {self.name!r} is not known by itself; "
                    f'add base_url = "https://…"'
                )
            known = with_base_url(Endpoint(name=self.name, base_url=self.base_url), self.base_url)
        elif self.base_url is not None:
            known = with_base_url(known, self.base_url)
        names = (self.key_env,) if isinstance(self.key_env, str) else self.key_env
        key, source = _key(self.key)
        if key is None and names:
            key = next((SecretStr(env[name]) for name in names if env.get(name)), None)
        return replace(
            known,
            dialect=self.dialect or known.dialect,
            key=key or known.key,
            key_source=source or known.key_source,
            key_env=names or known.key_env,
            key_required=known.key_required or bool(names),
            key_header=self._key_header(known),
            headers={**known.headers, **self.headers},
            requests_usage=known.requests_usage if self.stream_usage is None else self.stream_usage,
            quirks=_taking_stream_options(known.quirks) if self.stream_usage else known.quirks,
            capabilities=_combined(known.capabilities, self.capabilities),
            price_provider=self.price_provider or known.price_provider,
            templates={**known.templates, **self._templates()},
            metrics=known.metrics if self.metrics is None else self.metrics,
            cloud=known.cloud.updated(
                CloudSettings(project=self.project, location=self.location, credentials=self.credentials)
            ),
        )

    def _key_header(self, known: Endpoint) -> str:
        if self.key_header is not None:
            return self.key_header.lower()
        if self.dialect is None or self.dialect == known.dialect:
            return known.key_header
        return next(row.key_header for row in PRESETS.values() if row.dialect == self.dialect)


def _cloud_endpoint(name: str, dialect: str, env: Mapping[str, str]) -> Endpoint | None:
    """Return an endpoint of a cloud, whose address follows from its location; None for other dialects."""
    row = PRESETS.get(dialect)
    if row is None or row.dialect != dialect or "{location}" not in row.base_url:
        return None
    return replace(row.endpoint(key=row.key_in(env)), name=name)


def with_base_url(endpoint: Endpoint, base_url: str) -> Endpoint:
    """Return an endpoint at another URL.

    The URL of a hosted provider determines prices and capabilities, regardless of the endpoint's name. At any
    other URL they are unknown, a key may not be needed, and calls are priced by their model's name. Self-
    hosted servers, and providers whose URL the user supplies, are recognized by their name at any URL.
    """
    row = PRESETS.get(endpoint.name)
    owner = preset_for_url(base_url)
    if owner is None and row is not None and row.anywhere:
        return replace(endpoint, base_url=base_url)
    same = base_url.rstrip("/") == endpoint.base_url.rstrip("/")
    same_dialect = owner is not None and owner.dialect == endpoint.dialect
    return replace(
        endpoint,
        base_url=base_url,
        key_required=endpoint.key_required and same,
        capabilities=owner.capabilities if owner else UNKNOWN_CAPABILITIES,
        quirks=owner.quirks if owner is not None and same_dialect else endpoint.quirks,
        requests_usage=same_dialect or endpoint.requests_usage,
        price_provider=owner.price_provider if owner else ANY_VENDOR,
    )


def _key(value: str | SecretStr | KeySource | None) -> tuple[SecretStr | None, KeySource | None]:
    if value is None or value == "":
        return None, None
    if isinstance(value, str):
        return SecretStr(value), None
    return (value, None) if isinstance(value, SecretStr) else (None, value)


def _taking_stream_options(quirks: Quirks) -> Quirks:
    """Return the quirks of an endpoint that accepts ``stream_options`` contrary to its preset."""
    refused = tuple(name for name in quirks.refused if name != "stream_options")
    return quirks if refused == quirks.refused else replace(quirks, refused=refused)


def _combined(known: Capabilities, changed: Capabilities | None) -> Capabilities:
    """Return the known capabilities, updated with those that the user has set."""
    if changed is None:
        return known
    changes = {each.name: getattr(changed, each.name) for each in fields(Capabilities)}
    return replace(
        known,
        **{name: value for name, value in changes.items() if value != getattr(UNKNOWN_CAPABILITIES, name)},
    )
