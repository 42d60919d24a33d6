"""The table of all provider presets, by name and by URL."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from specclient.errors import ConfigurationError
from specclient.providers.endpoint import Endpoint
from specclient.providers.presets.hosted import HOSTED
from specclient.providers.presets.preset import Preset
from specclient.providers.presets.servers import SERVERS

PRESETS: Mapping[str, Preset] = MappingProxyType({row.name: row for row in (*HOSTED, *SERVERS)})
"""All presets by name."""


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
    raise ConfigurationError(f"no provider is named {name!r}; known are {', '.join(PRESETS)}")


def preset_for_url(base_url: str) -> Preset | None:
    """Return the hosted provider with this URL, or None. Servers of the user's own have no known URL."""
    return _BY_URL.get(base_url.rstrip("/"))


@functools.cache
def bare_endpoints() -> Mapping[str, Endpoint]:
    """Return the endpoints of all presets, without keys. Created once and shared by all clients."""
    return MappingProxyType({name: row.endpoint() for name, row in PRESETS.items()})
