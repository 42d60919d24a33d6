"""The table of all provider presets, by name and by URL."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from specclient.errors import ConfigurationError
from specclient.providers.endpoint import Endpoint
from specclient.providers.presets.hosted import HOSTED
from specclient.providers.presets.preset import Preset
from specclient.providers.presets.servers import SERVERS
from specclient.types.capabilities import Capabilities

PRESETS: Mapping[str, Preset] = MappingProxyType({row.name: row for row in (*HOSTED, *SERVERS)})
"""All presets by name."""


@dataclass(frozen=True, slots=True)
class ProviderWithoutEndpoint:
    """A provider without a common endpoint: its capabilities, and how to configure an endpoint."""

    title: str
    capabilities: Capabilities
    why: str


WITHOUT_ENDPOINT: Mapping[str, ProviderWithoutEndpoint] = MappingProxyType(
    {
        "vertex": ProviderWithoutEndpoint(
            "Vertex AI, self-deployed",
            Capabilities(prediction=False),
            "speculation is set when a model is deployed (SpeculativeDecodingSpec: a draft model or n-grams) "
            "and has no field in a request; name the URL of a deployment under [providers.vertex]",
        ),
    }
)
"""Providers without a preset endpoint, and why."""

_BY_URL = {
    url.rstrip("/"): row
    for row in HOSTED
    if "{" not in row.base_url
    for url in (row.base_url, *row.other_urls)
}


def preset(name: str) -> Preset:
    """Return the preset with a name.

    Raises:
        ConfigurationError: the name is unknown. The message lists the known names.
    """
    found = PRESETS.get(name)
    if found is not None:
        return found
    elsewhere = WITHOUT_ENDPOINT.get(name)
    raise ConfigurationError(
        f"{name!r} has no endpoint known by name: {elsewhere.why} in specclient.toml"
        if elsewhere
        else f"no provider is named {name!r}; known are {', '.join(PRESETS)}"
    )


def preset_for_url(base_url: str) -> Preset | None:
    """Return the hosted provider with this URL, or None. Servers of the user's own have no known URL."""
    return _BY_URL.get(base_url.rstrip("/"))


@functools.cache
def bare_endpoints() -> Mapping[str, Endpoint]:
    """Return the endpoints of all presets, without keys. Created once and shared by all clients."""
    return MappingProxyType({name: row.endpoint() for name, row in PRESETS.items()})
