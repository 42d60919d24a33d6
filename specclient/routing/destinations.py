"""Turn the name before the slash into the place that serves it: an endpoint, or an in-process engine."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from specclient.config import Settings
from specclient.errors import ConfigurationError, NotFoundError
from specclient.providers.endpoint import Endpoint
from specclient.providers.presets.registry import WITHOUT_ENDPOINT
from specclient.types.backend import ENTRY_POINT_GROUP, Backend

Destination = Endpoint | Backend


class DestinationRegistry:
    """Every place a client can send to; engines are made on first use and kept.

    Args:
        settings: their tables are handed to the engines.
        endpoints: by name.
        default: the endpoint whose a bare model name is.
        owns_names: whether model names go to the default endpoint exactly as they are given. True for a
            client with a base URL of its own: what stands before a slash is then the server's business
            (OpenRouter's ``openai/gpt-4.1``, a folder name at vLLM).
        backends: where the engines are kept, for several to share.
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
        """Return (place, model sent to it) for a model's name.

        Raises:
            NotFoundError: nothing is known by the name before the slash.
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
        """Tell whether a place has this name."""
        return name in self._endpoints or name in self._entry_points()

    def names(self) -> list[str]:
        """Return all names, engines first."""
        return [*self.backend_names(), *self._endpoints]

    def backend_names(self) -> list[str]:
        """Return the names of the engines that are installed."""
        return sorted(self._entry_points())

    def get(self, name: str) -> Destination:
        """Return the place of a name.

        Raises:
            NotFoundError: there is none.
            ConfigurationError: an engine that cannot be made, with the reason.
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
    def made(self) -> Mapping[str, Backend]:
        """The engines that something has asked for so far, by name."""
        return self._backends

    def _make(self, point: EntryPoint) -> Backend:
        try:
            factory = point.load()
        except ImportError as error:
            raise ConfigurationError(
                f"the engine {point.name!r} cannot be loaded: {error}; pip install 'specclient[{point.name}]'"
            ) from error
        table = getattr(self._settings, point.name, None)
        backend: Backend = factory(table.model_dump() if table is not None else {})
        return backend

    def _entry_points(self) -> dict[str, EntryPoint]:
        if self._points is None:
            self._points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        return self._points
