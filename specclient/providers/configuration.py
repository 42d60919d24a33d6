"""A client's endpoints by name, from presets, configuration, environment and its options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from specclient.config import ProviderSettings, Settings
from specclient.errors import ConfigurationError
from specclient.providers.bedrock.endpoint import placed_endpoint as placed_bedrock_endpoint
from specclient.providers.custom import Provider, with_base_url
from specclient.providers.endpoint import Endpoint, KeySource, checked_base_url
from specclient.providers.fleet_endpoints import fleet_endpoints
from specclient.providers.presets.registry import PRESETS, bare_endpoints
from specclient.providers.probe_cache import key_of, read_probes
from specclient.providers.vertex.endpoint import placed_endpoint


def endpoints(
    settings: Settings,
    env: Mapping[str, str],
    *,
    providers: Iterable[Provider] = (),
    drop_params: bool | None = None,
    api_key: str | KeySource | None = None,
    admin_api_key: str | None = None,
    base_url: str | None = None,
    organization: str | None = None,
    project: str | None = None,
    headers: Mapping[str, str | None] | None = None,
    query: Mapping[str, Any] | None = None,
) -> dict[str, Endpoint]:
    """Return all endpoints of a client, by name.

    The keys of presets come from the environment. A ``[providers.NAME]`` table changes a preset or defines a
    new provider, and ``providers`` override the tables. The keyword arguments from ``api_key`` on apply to
    the default provider only.

    Raises:
        ConfigurationError: a URL or key is invalid, a provider has no URL, or the default provider does not
            exist.
    """
    known = _presets(env)
    for name, table in settings.providers.items():
        known[name] = _of_table(name, table, known.get(name), settings, env)
    known |= fleet_endpoints(settings, known, env)
    for provider in providers:
        known[provider.name] = provider.endpoint(known.get(provider.name), env)
    default = settings.default_provider
    if default not in known:
        raise ConfigurationError(f"default_provider is {default!r}; known: {', '.join(known)}")
    endpoint = known[default]
    if base_url is not None:
        endpoint = with_base_url(endpoint, base_url)
    key, key_source = endpoint.key, endpoint.key_source
    if api_key is not None:  # an empty key means none, even if the environment has one
        key_source = api_key if callable(api_key) else None
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
    for name, each in known.items():
        if each.dialect == "vertex":
            known[name] = placed_endpoint(each, env)
        elif each.dialect == "bedrock":
            known[name] = placed_bedrock_endpoint(each, env)
    if settings.drop_params if drop_params is None else drop_params:
        known = {name: replace(each, drop_params=True) for name, each in known.items()}
    if probes := read_probes(env):
        for name, each in known.items():
            if models := probes.get(key_of(each.base_url)):
                known[name] = replace(each, probed=models)
    return known


def _presets(env: Mapping[str, str]) -> dict[str, Endpoint]:
    """Return the endpoints of all presets, with keys and URLs from the environment."""
    known = dict(bare_endpoints())
    for name, row in PRESETS.items():
        if (key := row.key_in(env)) is not None:
            known[name] = row.endpoint(key=key)
        if row.base_url_env and env.get(row.base_url_env):
            known[name] = _placed(known[name], env[row.base_url_env], row.base_url_path)
    if env.get("OPENAI_BASE_URL"):
        known["openai"] = with_base_url(known["openai"], env["OPENAI_BASE_URL"])
    admin_key = env.get("OPENAI_ADMIN_KEY")
    known["openai"] = replace(
        known["openai"],
        admin_key=SecretStr(admin_key) if admin_key else None,
        headers={**known["openai"].headers, **_headers_in(env.get("OPENAI_CUSTOM_HEADERS", ""))},
        organization=env.get("OPENAI_ORG_ID") or None,
        project=env.get("OPENAI_PROJECT_ID") or None,
    )
    return known


def _placed(endpoint: Endpoint, address: str, path: str) -> Endpoint:
    """Return an endpoint at the address of a resource, which may or may not end with the API's path.

    An invalid address is ignored here. The first call to this provider reports it, so that calls to other
    providers work.
    """
    try:
        address = checked_base_url(address).rstrip("/")
    except ConfigurationError:
        return endpoint
    return replace(endpoint, base_url=address if address.endswith(path) else address + path)


def _of_table(
    name: str, table: ProviderSettings, known: Endpoint | None, settings: Settings, env: Mapping[str, str]
) -> Endpoint:
    """Return the endpoint of a ``[providers.NAME]`` table. Errors name the configuration file."""
    try:
        provider = Provider(
            name=name,
            base_url=table.base_url,
            dialect=table.dialect,
            key=table.api_key,
            key_env=table.api_key_env,
            key_header=table.key_header,
            headers={header: value.get_secret_value() for header, value in table.headers.items()},
            stream_usage=table.stream_usage,
            price_provider=table.price_provider,
            metrics=table.metrics,
            project=table.project,
            location=table.location,
            credentials=table.credentials,
            template=table.template,
            capabilities=table.capabilities,
        )
        return provider.endpoint(known, env)
    except ConfigurationError as error:
        raise ConfigurationError(f"{settings.source}: {error}" if settings.source else str(error)) from None


def _headers_in(text: str) -> dict[str, str]:
    """Return the headers in ``OPENAI_CUSTOM_HEADERS``: one per line, as ``name: value``."""
    lines = (line.partition(":") for line in text.split("\n"))
    return {name.strip(): value.strip() for name, colon, value in lines if colon and name.strip()}
