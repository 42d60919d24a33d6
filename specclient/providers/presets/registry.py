"""The table of all provider presets, by name and by URL."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

from specclient.errors import ConfigurationError
from specclient.providers.endpoint import Endpoint
from specclient.providers.presets.hosted import HOSTED
from specclient.providers.presets.preset import Preset
from specclient.providers.presets.servers import SERVERS

PRESETS: Mapping[str, Preset] = MappingProxyType({row.name: row for row in (*HOSTED, *SERVERS)})
"""All presets by name."""

#: OpenAI's addresses of regions, also those that ask for a certificate.
_OPENAI_REGION = re.compile(r"https://(?:mtls-)?([a-z]{2})\.api\.openai\.com(?:/|$)")
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
    known = _BY_URL.get(base_url.rstrip("/"))
    return PRESETS["openai"] if known is None and region_of(base_url) is not None else known


@functools.lru_cache(maxsize=256)
def region_of(base_url: str) -> str | None:
    """Return the region of OpenAI's that an address is of ("Data residency"); None for other addresses."""
    found = _OPENAI_REGION.match(base_url)
    return None if found is None else found[1]


@functools.cache
def bare_endpoints() -> Mapping[str, Endpoint]:
    """Return the endpoints of all presets, without keys. Created once and shared by all clients."""
    return MappingProxyType({name: row.endpoint() for name, row in PRESETS.items()})
