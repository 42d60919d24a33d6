"""The origins that a client's providers are at, and the provider of a URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from specclient.providers import Endpoint
from specclient.routing.destinations import DestinationRegistry

_PORTS = {"http": 80, "https": 443}
_Origin = tuple[str, str, int | None]
#: The address that official clients have by default.
_OPENAI = "https://api.openai.com/v1"


class HomePath(NamedTuple):
    """A URL below the base URL of a provider.

    Attributes:
        endpoint: the provider's endpoint.
        path: the path below its base URL, percent-encoded, with a slash at its start.
        query: the query without the question mark.
        moved: whether the settings have the provider at another address than the URL's. The caller's headers,
            which are meant for the URL's host, are then not sent.
    """

    endpoint: Endpoint
    path: str
    query: str
    moved: bool = False


class HomeOrigins:
    """Finds the provider of a URL among those that a client knows.

    Args:
        destinations: returns the client's destinations. They may change with the client's options.
    """

    def __init__(self, destinations: Callable[[], DestinationRegistry]) -> None:
        self._destinations = destinations
        self._known: DestinationRegistry | None = None
        self._bases: dict[_Origin, list[_Base]] = {}

    def find(self, url: Any) -> HomePath | None:
        """Return the provider of a URL; None if it is at none of the client's base URLs.

        Args:
            url: a URL object of httpx or httpx2.
        """
        known = self._destinations()
        if known is not self._known:
            self._bases, self._known = _bases_of(known), known
        scheme = url.scheme
        bases = self._bases.get((scheme, url.host, url.port or _PORTS.get(scheme)))
        if bases is None:
            return None
        path, _, query = url.raw_path.decode("ascii").partition("?")
        for base in bases:
            size = len(base.path)
            if path.startswith(base.path) and path[size : size + 1] == "/":
                return HomePath(base.endpoint, path[size:], query, base.moved)
        return None


class _Base(NamedTuple):
    path: str
    endpoint: Endpoint
    moved: bool


def _bases_of(known: DestinationRegistry) -> dict[_Origin, list[_Base]]:
    """Return the base URLs by origin; longer paths first, then the default provider.

    A client with a base URL of its own sends every model to it, so it has one provider. OpenAI's address
    belongs to the provider ``openai``, wherever the settings have it.
    """
    names = [known.default, *(name for name in known.endpoints if name != known.default)]
    found: dict[_Origin, list[_Base]] = {}

    def add(url: str, endpoint: Endpoint, *, moved: bool = False) -> None:
        parts = urlsplit(url)
        origin = (parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme))
        found.setdefault(origin, []).append(_Base(parts.path.rstrip("/"), endpoint, moved))

    for name in names[:1] if known.owns_names else names:
        endpoint = known.endpoints.get(name)
        if endpoint is not None and "{" not in endpoint.base_url:
            add(endpoint.base_url, endpoint)
    openai = known.endpoints.get("openai")
    if openai is not None and not known.owns_names and openai.base_url.rstrip("/") != _OPENAI:
        add(_OPENAI, openai, moved=True)
    for bases in found.values():
        bases.sort(key=lambda base: -len(base.path))  # stable: the default provider stays first among equals
    return found
