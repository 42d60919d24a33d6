"""Turn what a user says of a provider into a checked row: one of their own, or changes to a known one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from pydantic import SecretStr

from specclient.config import ANY_VENDOR
from specclient.errors import ConfigurationError
from specclient.providers.dialects import DIALECTS
from specclient.providers.endpoint import Endpoint, KeySource, checked_base_url, shown_url
from specclient.providers.presets.registry import PRESETS, preset_for_url
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider of one's own, or changes to a known one: ``OpenAI(providers=[Provider(…)])``.

    Its models are used as ``NAME/MODEL``. The same can stand in ``specclient.toml`` under
    ``[providers.NAME]``. Whatever is None stays as it is known: by the name, or else by the URL of a known
    provider.

    Attributes:
        name: the part of a model's name before ``/``.
        base_url: where it is; needed for a name that is not known.
        dialect: the language it speaks, see :data:`specclient.providers.DIALECTS`.
        key: or a function that returns one and is asked before each try.
        key_env: environment variable that holds the key, or several in order; requests then need one.
        key_header: the header that carries the key: by itself, or as a bearer token in ``authorization``.
            The dialect's own by default.
        headers: sent with every request; None leaves one out.
        stream_usage: whether it takes ``stream_options.include_usage``.
        price_provider: the vendor whose prices hold there, an id of genai-prices; ``*`` prices calls by
            the name of their model, whoever's it is.
        metrics: reads its Prometheus counters before and after each call, for what its answers do not tell
            of speculation: True at ``/metrics`` beside ``/v1``, or their URL; the key goes to the provider's
            own server alone. They count all that the server does, so they tell of one call where it is the
            only one; each reading is one more request. Where ``auto`` may choose it, how busy it is is read
            there too, now and then and beside the calls; of the known servers that is done in any case.
        capabilities: what it exposes of speculation; what is not said in them stays as it is known.

    Raises:
        ConfigurationError: for a value that cannot be used, named with what is allowed.
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
                raise self._error("metrics", shown_url(self.metrics), f"true or a URL ({error})") from None

    def _error(self, key: str, value: object, allowed: str) -> ConfigurationError:
        return ConfigurationError(f"provider {self.name!r}: {key} is {value!r}; it must be {allowed}")

    def endpoint(self, known: Endpoint | None, env: Mapping[str, str]) -> Endpoint:
        """Return the endpoint this stands for.

        Args:
            known: the one of the same name, None where there is none.
            env: where ``key_env`` is looked up.

        Raises:
            ConfigurationError: for an unknown name without a URL, or a key that cannot be used.
        """
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
            stream_usage=known.stream_usage if self.stream_usage is None else self.stream_usage,
            capabilities=_combined(known.capabilities, self.capabilities),
            price_provider=self.price_provider or known.price_provider,
            metrics=known.metrics if self.metrics is None else self.metrics,
        )

    def _key_header(self, known: Endpoint) -> str:
        if self.key_header is not None:
            return self.key_header.lower()
        if self.dialect is None or self.dialect == known.dialect:
            return known.key_header
        return next(row.key_header for row in PRESETS.values() if row.dialect == self.dialect)


def with_base_url(endpoint: Endpoint, base_url: str) -> Endpoint:
    """Return an endpoint at another URL.

    A hosted provider's URL tells whose prices and capabilities hold there, whatever the endpoint is called;
    any other URL tells nothing, may need no key, and its calls are priced by their model's name. The name of
    a server of the user's own, or of a provider whose addresses are the user's, tells what stands there
    wherever it is.
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
        stream_usage=owner.stream_usage if owner is not None and same_dialect else endpoint.stream_usage,
        price_provider=owner.price_provider if owner else ANY_VENDOR,
    )


def _key(given: str | SecretStr | KeySource | None) -> tuple[SecretStr | None, KeySource | None]:
    if given is None or given == "":
        return None, None
    if isinstance(given, str):
        return SecretStr(given), None
    return (given, None) if isinstance(given, SecretStr) else (None, given)


def _combined(known: Capabilities, said: Capabilities | None) -> Capabilities:
    """Return what is known, and over it whatever the user says."""
    if said is None:
        return known
    changes = {each.name: getattr(said, each.name) for each in fields(Capabilities)}
    return replace(
        known,
        **{name: value for name, value in changes.items() if value != getattr(UNKNOWN_CAPABILITIES, name)},
    )
