"""Provider presets: the URL, authentication and capabilities of a provider, as one row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import SecretStr

from specclient.errors import ConfigurationError
from specclient.providers.dialects import DIALECTS
from specclient.providers.endpoint import Endpoint
from specclient.providers.openai.quirks import NO_QUIRKS, Quirks
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities

#: Forms of rate-limit headers. :mod:`specclient.http_transport.pacing.limit_headers` reads all of them from
#: every provider.
LimitFormat = Literal[
    "openai",  # x-ratelimit-{limit,remaining,reset}-{requests,tokens}; resets are durations: 6m0s, 12ms
    "azure",  # x-ratelimit-remaining-{requests,tokens}, retry-after-ms
    "anthropic",  # anthropic-ratelimit-{requests,tokens,…}-{limit,remaining,reset}; RFC 3339 instants
    "google",  # no headers; google.rpc.RetryInfo in the body of a 429
    "groq",  # OpenAI's names; requests per day, tokens per minute
    "cerebras",  # x-ratelimit-*-{requests-day,tokens-minute}; resets are seconds with a fraction
    "mistral",  # x-ratelimitbysize-{limit,remaining}-{minute,month}; resets are whole seconds
    "fireworks",  # x-ratelimit-{limit,remaining}-tokens-{prompt,cache-adjusted-prompt,generated}
    "together",  # x-ratelimit-{limit,remaining,reset}, x-tokenlimit-{limit,remaining}; per second
    "openrouter",  # X-RateLimit-*, in error responses only
    "none",
]


@dataclass(frozen=True, slots=True)
class Preset:
    """A row of the tables of providers, or a user's own row.

    Attributes:
        name: the part of a model's name before ``/``.
        base_url: the URL of the API with the wire dialect ``dialect``; for self-hosted servers, with their
            default port. A placeholder in braces must be replaced, by ``base_url_env`` or configuration.
        key_env: environment variables that may hold the key, in order.
        dialect: the name of the wire dialect, one of :data:`DIALECTS`.
        key_header, price_provider, capabilities, quirks, key_required: see
            :class:`specclient.providers.Endpoint`.
        base_url_env: the environment variable that may hold the address.
        base_url_path: appended to the address in ``base_url_env``.
        other_urls: further base URLs of the same vendor, with the same prices and capabilities.
        limits: see :data:`LimitFormat`; None for unknown.
        title: the vendor's or server's display name.
        note: remarks that the columns of the capability table do not show.
    """

    name: str
    base_url: str
    key_env: tuple[str, ...] = ()
    price_provider: str | None = None
    capabilities: Capabilities = UNKNOWN_CAPABILITIES
    key_required: bool = False
    dialect: str = "openai"
    key_header: str = "authorization"
    quirks: Quirks = NO_QUIRKS
    base_url_env: str | None = None
    base_url_path: str = ""
    other_urls: tuple[str, ...] = ()
    limits: LimitFormat | None = None
    title: str = ""
    note: str = ""

    @property
    def anywhere(self) -> bool:
        """Whether the user has to supply the URL: of their own server, or of a deployment."""
        return not self.key_required or "{" in self.base_url

    def key_in(self, environ: Mapping[str, str]) -> SecretStr | None:
        """Return the key from the environment, or None."""
        return next((SecretStr(environ[name]) for name in self.key_env if environ.get(name)), None)

    def endpoint(
        self,
        *,
        key: SecretStr | None = None,
        base_url: str | None = None,
        organization: str | None = None,
        project: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Endpoint:
        """Return the provider's endpoint, at ``base_url`` if given.

        Raises:
            ConfigurationError: the base URL, key or dialect is invalid.
        """
        if self.dialect not in DIALECTS:
            raise ConfigurationError(
                f"provider {self.name!r} names the dialect {self.dialect!r}; known are {', '.join(DIALECTS)}"
            )
        return Endpoint(
            name=self.name,
            base_url=base_url or self.base_url,
            dialect=self.dialect,
            key=key,
            headers=headers or {},
            query=query or {},
            organization=organization,
            project=project,
            key_env=self.key_env,
            key_required=self.key_required,
            capabilities=self.capabilities,
            quirks=self.quirks,
            base_url_env=self.base_url_env,
            key_header=self.key_header,
            price_provider=self.price_provider,
        )
