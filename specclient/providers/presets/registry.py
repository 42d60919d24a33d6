"""Turn a provider's name, or its URL, into what is known of it: the table of all presets."""

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
"""Every provider known by name."""


@dataclass(frozen=True, slots=True)
class ProviderWithoutEndpoint:
    """A provider whose endpoints are known to its users alone: what is known of it, and the way out."""

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
"""Providers that have no endpoint known by name, and why."""

_BY_URL = {
    url.rstrip("/"): row
    for row in HOSTED
    if "{" not in row.base_url
    for url in (row.base_url, *row.other_urls)
}


def preset(name: str) -> Preset:
    """Return the row of ``name``.

    Raises:
        ConfigurationError: for a name that is not in the table, with those that are.
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
    """Return the hosted provider whose URL this is; what stands at an address of one's own, no URL tells."""
    return _BY_URL.get(base_url.rstrip("/"))


@functools.cache
def bare_endpoints() -> Mapping[str, Endpoint]:
    """Return the endpoint of every preset without a key: made once, for all clients to share."""
    return MappingProxyType({name: row.endpoint() for name, row in PRESETS.items()})
