"""Destinations by name: the endpoints and in-process engines that a model's name can refer to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from ipaddress import ip_address
from urllib.parse import urlsplit

from specclient.config import Settings
from specclient.errors import ConfigurationError, NotFoundError
from specclient.providers.endpoint import Endpoint
from specclient.providers.presets.registry import WITHOUT_ENDPOINT
from specclient.types.backend import ENTRY_POINT_GROUP, Backend

Destination = Endpoint | Backend


class DestinationRegistry:
    """All destinations of a client. Engines are made on first use and kept.

    Args:
        settings: the engines receive their tables of it.
        endpoints: by name.
        default: the endpoint of model names without a slash.
        owns_names: whether model names are sent to the default endpoint unchanged. True for a client with a
            base URL of its own, whose server interprets the slash (OpenRouter's ``openai/gpt-4.1``, a folder
            name for vLLM).
        backends: holds the engines; several registries may share it.
    """

    def __init__(
        self,
        settings: Settings,
        endpoints: Mapping[str, Endpoint],
        default: str,
        *,
        owns_names: bool = False,
        backends: dict[str, Backend] | None = None,
    ) -> None:
        self._settings = settings
        self._endpoints = endpoints
        self._backends = {} if backends is None else backends
        self._points: dict[str, EntryPoint] | None = None
        self.default = default
        self.owns_names = owns_names

    def split(self, model: str) -> tuple[str, str]:
        """Return the destination's name, and the model name to send to it.

        Raises:
            NotFoundError: the name before the slash is unknown.
        """
        if self.owns_names:
            return self.default, model
        head, slash, rest = model.partition("/")
        if not slash:
            return self.default, model
        if self.known(head):
            if not rest:
                raise NotFoundError(f"model {model!r} names the provider {head!r} but no model of it")
            return head, rest
        if head in WITHOUT_ENDPOINT:
            raise NotFoundError(f"model {model!r}: {WITHOUT_ENDPOINT[head].why} in specclient.toml")
        raise NotFoundError(
            f"unknown provider {head!r} in model {model!r}; known: {', '.join(self.names())}. "
            f"Define it under [providers.{head}] in specclient.toml, or give base_url= to send it as it is"
        )

    def known(self, name: str) -> bool:
        """Return whether a destination has this name."""
        return name in self._endpoints or name in self._entry_points()

    def stays_local(self, name: str) -> bool:
        """Return whether calls of a destination stay on this machine.

        Those of engines do, and those of endpoints with a loopback address; those of unknown names do not.
        """
        endpoint = self._endpoints.get(name)
        return self.known(name) if endpoint is None else _is_loopback(endpoint)

    def names(self) -> list[str]:
        """Return all names, engines first."""
        return [*self.backend_names(), *self._endpoints]

    def backend_names(self) -> list[str]:
        """Return the names of the engines that are installed."""
        return sorted(self._entry_points())

    def get(self, name: str) -> Destination:
        """Return the destination of a name.

        Raises:
            NotFoundError: there is none.
            ConfigurationError: the engine cannot be made; the message says why.
        """
        if name in self._endpoints:
            return self._endpoints[name]
        if name not in self._backends:
            point = self._entry_points().get(name)
            if point is None and name in WITHOUT_ENDPOINT:
                raise NotFoundError(f"provider {name!r}: {WITHOUT_ENDPOINT[name].why} in specclient.toml")
            if point is None:
                raise NotFoundError(f"unknown provider {name!r}; known: {', '.join(self.names())}")
            self._backends[name] = self._make(point)
        return self._backends[name]

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """The endpoints, by name."""
        return self._endpoints

    @property
    def made(self) -> Mapping[str, Backend]:
        """The engines made so far, by name."""
        return self._backends

    def _make(self, point: EntryPoint) -> Backend:
        try:
            factory = point.load()
        except ImportError as error:
            raise ConfigurationError(
                f"the engine {point.name!r} cannot be loaded: {error}; pip install 'specclient[{point.name}]'"
            ) from error
        table = getattr(self._settings, point.name, None)
        limits = self._settings.server.requests.limits()
        backend: Backend = factory({**(table.model_dump() if table is not None else {}), "requests": limits})
        return backend

    def _entry_points(self) -> dict[str, EntryPoint]:
        if self._points is None:
            self._points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        return self._points


def _is_loopback(endpoint: Endpoint) -> bool:
    """Return whether an endpoint has a loopback address."""
    host = urlsplit(endpoint.base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
