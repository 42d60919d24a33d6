"""Turn presets, configuration, environment and a client's own options into its endpoints by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from specclient.config import ProviderSettings, Settings
from specclient.errors import ConfigurationError
from specclient.providers.base import Endpoint, KeySource
from specclient.providers.presets import PRESETS
from specclient.types.capabilities import UNKNOWN


def endpoints(
    settings: Settings,
    env: Mapping[str, str],
    *,
    api_key: str | KeySource | None = None,
    admin_api_key: str | None = None,
    base_url: str | None = None,
    organization: str | None = None,
    project: str | None = None,
    headers: Mapping[str, str | None] | None = None,
    query: Mapping[str, Any] | None = None,
) -> dict[str, Endpoint]:
    """Return every endpoint a client can send to.

    A preset takes its key from the environment; a ``[providers.NAME]`` table changes it, or defines a
    provider of the user's own; the keyword arguments are for the default provider alone.

    Raises:
        ConfigurationError: for a URL or key that cannot be used, a provider without a URL, or a default
            provider that does not exist.
    """
    known = {name: preset.endpoint(key=preset.key_in(env)) for name, preset in PRESETS.items()}
    if env.get("OPENAI_BASE_URL"):
        known["openai"] = _moved(known["openai"], env["OPENAI_BASE_URL"])
    admin_key = env.get("OPENAI_ADMIN_KEY")
    known["openai"] = replace(
        known["openai"],
        admin_key=SecretStr(admin_key) if admin_key else None,
        headers={**known["openai"].headers, **_headers_in(env.get("OPENAI_CUSTOM_HEADERS", ""))},
        organization=env.get("OPENAI_ORG_ID") or None,
        project=env.get("OPENAI_PROJECT_ID") or None,
    )
    for name, table in settings.providers.items():
        known[name] = _changed(name, known.get(name), table, env)
    default = settings.default_provider
    if default not in known:
        raise ConfigurationError(f"default_provider is {default!r}; known: {', '.join(known)}")
    endpoint = known[default]
    if base_url is not None:
        endpoint = _moved(endpoint, base_url)
    key_source = api_key if callable(api_key) else None
    key = endpoint.key
    if api_key is not None:  # an empty one is none, whatever the environment holds
        key = SecretStr(api_key) if isinstance(api_key, str) and api_key else None
    known[default] = replace(
        endpoint,
        key=key,
        key_source=key_source,
        admin_key=SecretStr(admin_api_key) if admin_api_key else endpoint.admin_key,
        organization=organization or endpoint.organization,
        project=project or endpoint.project,
        headers={**endpoint.headers, **(headers or {})},
        query={**endpoint.query, **(query or {})},
    )
    return known


def _changed(name: str, known: Endpoint | None, table: ProviderSettings, env: Mapping[str, str]) -> Endpoint:
    if known is None:
        if table.base_url is None:
            raise ConfigurationError(
                f'[providers.{name}] has no base_url, and {name!r} is not known by itself; add base_url = "https://…"'
            )
        known = Endpoint(name=name, base_url=table.base_url)
    elif table.base_url is not None:
        known = _moved(known, table.base_url)
    key = table.api_key
    if key is None and table.api_key_env:
        key = SecretStr(env[table.api_key_env]) if env.get(table.api_key_env) else None
    return replace(
        known,
        key=key or known.key,
        key_env=(table.api_key_env,) if table.api_key_env else known.key_env,
        key_required=known.key_required or table.api_key_env is not None,
        headers={**known.headers, **{k: v.get_secret_value() for k, v in table.headers.items()}},
        stream_usage=known.stream_usage if table.stream_usage is None else table.stream_usage,
        price_provider=table.price_provider or known.price_provider,
    )


def _headers_in(text: str) -> dict[str, str]:
    """Return the headers of ``OPENAI_CUSTOM_HEADERS``: one a line, name and value parted by a colon."""
    lines = (line.partition(":") for line in text.split("\n"))
    return {name.strip(): value.strip() for name, colon, value in lines if colon and name.strip()}


def _moved(endpoint: Endpoint, base_url: str) -> Endpoint:
    """Return an endpoint at another URL, which tells whose prices hold there; it may need no key."""
    same = base_url.rstrip("/") == endpoint.base_url.rstrip("/")
    owner = next((p for p in PRESETS.values() if p.base_url.rstrip("/") == base_url.rstrip("/")), None)
    return replace(
        endpoint,
        base_url=base_url,
        key_required=endpoint.key_required and same,
        capabilities=owner.capabilities if owner else UNKNOWN,
        price_provider=owner.price_provider if owner else None,
    )
