"""Destinations by name: the endpoints and in-process engines that a model's name can refer to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from ipaddress import ip_address
from urllib.parse import urlsplit

from specclient.config import Settings
from specclient.errors import ConfigurationError, NotFoundError
from specclient.providers.dialects import endpoint_of_model
from specclient.providers.endpoint import Endpoint
from specclient.providers.started_server import server_endpoint
from specclient.routing.bare_names import BareNames
from specclient.routing.pools.fleet_routing import FleetRouting
from specclient.types.backend import ENTRY_POINT_GROUP, Backend, SupportsServers
from specclient.types.model_aliases import LONGEST_NAME, ModelAliases
from specclient.types.request import Request

Destination = Endpoint | Backend

_AUTO = "auto"
#: Names whose place is remembered; names come from requests.
_MOST_NAMES = 1024


class DestinationRegistry:
    """All destinations of a client. Engines are made on first use and kept.

    Args:
        settings: holds a table for each engine, and ``[aliases]``, which apply to every model name.
        endpoints: by name.
        default: the endpoint of model names without a slash.
        owns_names: whether model names are sent to the default endpoint unchanged. True for a client with a
            base URL of its own, whose server interprets the slash (OpenRouter's ``openai/gpt-4.1``, a folder
            name for vLLM).
        backends: holds the engines; several registries may share it.
        fleets: counts the calls of fleets; None without fleets.

    Attributes:
        aliases: the aliases of the configuration; None without any.

    Raises:
        ConfigurationError: an alias is for an unknown provider, or for a name that several places serve.
    """

    def __init__(
        self,
        settings: Settings,
        endpoints: Mapping[str, Endpoint],
        default: str,
        *,
        owns_names: bool = False,
        backends: dict[str, Backend] | None = None,
        fleets: FleetRouting | None = None,
    ) -> None:
        self._settings = settings
        self._fleets = fleets
        self._endpoints = endpoints
        self._backends = {} if backends is None else backends
        self._points: dict[str, EntryPoint] | None = None
        self.default = default
        self.owns_names = owns_names
        self._bare = BareNames(settings, default)
        self._bare_places: dict[str, str] = {}
        self._of_models: dict[tuple[str, str], Endpoint] = {}
        self.aliases = ModelAliases(settings.aliases) if settings.aliases else None
        if self.aliases is not None:
            self.check_targets(self.aliases)

    def resolve(self, model: str, aliases: ModelAliases | None = None) -> str:
        """Return the model that a name stands for; the name itself if it is no alias.

        Args:
            model: the name as the caller wrote it.
            aliases: those of the request, which precede the configured ones; None without any.
        """
        if aliases is not None and (target := aliases.target(model)) != model:
            return target if self.aliases is None else self.aliases.exact_target(target)
        return model if self.aliases is None else self.aliases.target(model)

    def split(self, model: str, aliases: ModelAliases | None = None) -> tuple[str, str]:
        """Return the destination's name, and the model name to send to it.

        The target of an alias may name a known provider even if the client's base URL owns all model names.

        Args:
            model: the name as the caller wrote it.
            aliases: those of the request; None without any.

        Raises:
            NotFoundError: the name before the slash is unknown, or several places serve a name without one.
        """
        target = self.resolve(model, aliases)
        if target == model:
            return self._split(model)
        head, _, rest = target.partition("/")
        if self.owns_names and rest and self.known(head):
            return head, rest
        try:
            return self._split(target)
        except NotFoundError as error:
            raise NotFoundError(f"alias {model!r}: {error}") from None

    def resolve_request(self, request: Request) -> str:
        """Return the model that a request names; see :meth:`resolve`.

        A body that is sent unchanged names its model itself, so aliases do not apply to it.
        """
        if request.content is not None:
            return request.model
        return self.resolve(request.model, request.options.aliases)

    def split_request(self, request: Request) -> tuple[str, str]:
        """Return the destination of a request, and the model name to send to it; see :meth:`split`."""
        if request.content is not None:
            return self._split(request.model)
        return self.split(request.model, request.options.aliases)

    def check_targets(self, aliases: ModelAliases) -> None:
        """Check that every alias stands for a model of a known provider, or for ``auto``.

        Raises:
            ConfigurationError: one does not; the message names it.
        """
        for alias, given in aliases.table.items():
            target = aliases.exact_target(given)
            if self.aliases is not None:
                target = self.aliases.exact_target(target)
            if target != _AUTO:
                try:
                    self._split(target)
                except NotFoundError as error:
                    raise ConfigurationError(f"alias {alias!r}: {error}") from None

    def _split(self, model: str) -> tuple[str, str]:
        """Return the destination's name and the model name of a name that is no alias."""
        if self.owns_names:
            return self.default, model
        head, slash, rest = model.partition("/")
        if not slash:
            return self._place_of_bare(model), model
        if self.known(head):
            if not rest:
                raise NotFoundError(
                    f"model {model!r} names the provider {head!r} but no model of it; write {head}/MODEL"
                )
            return head, rest
        near = get_close_matches(head, self.names(), n=1)
        meant = f"did you mean {near[0] + '/' + rest!r}? Known" if near else "known"
        raise NotFoundError(
            f"unknown provider {head!r} in model {model!r}; {meant}: {', '.join(self.names())}. "
            f"Define it under [providers.{head}] in specclient.toml, or give base_url= to send it as it is"
        )

    def _place_of_bare(self, model: str) -> str:
        place = self._bare_places.get(model)
        if place is None:
            place = self._bare.place_of(model, self._endpoints.get(self.default))
            if place != self.default and not self.known(place):
                place = self.default
            if len(model) <= LONGEST_NAME:
                if len(self._bare_places) >= _MOST_NAMES:
                    self._bare_places.clear()
                self._bare_places[model] = place
        return place

    def known(self, name: str) -> bool:
        """Return whether a destination has this name."""
        return name in self._endpoints or name in self._entry_points()

    def stays_local(self, name: str) -> bool:
        """Return whether calls of a destination stay on this machine.

        They do for engines and for endpoints with a loopback address, and do not for unknown names.
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
            if point is None:
                raise NotFoundError(f"unknown provider {name!r}; known: {', '.join(self.names())}")
            return self._backends.setdefault(name, self._make(point))  # the first of threads that make it
        return self._backends[name]

    def of_model(self, name: str, model: str) -> Destination:
        """Return the destination of a name, set up for the calls of one of its models.

        A provider may serve the models of several vendors, each in its dialect. A model of an engine may have
        a server of its own; then this is the server's endpoint, which nothing but a call starts.

        Raises:
            NotFoundError: there is none, or it does not serve the model.
            ConfigurationError: the engine cannot be made; the message says why.
        """
        found: Destination | None = self._of_models.get((name, model))
        if found is not None:
            return found
        found = self.get(name)
        if isinstance(found, Endpoint):
            own = endpoint_of_model(found, model)
            if self._fleets is not None and (use := self._fleets.use(name, model)) is not None:
                own = replace(own, server=use)
        elif isinstance(found, SupportsServers) and (server := found.server(model)) is not None:
            own = server_endpoint(name, server, os.environ)
        else:
            return found
        if own is not found and len(model) <= LONGEST_NAME:
            if len(self._of_models) >= _MOST_NAMES:
                self._of_models.clear()
            self._of_models[name, model] = own
        return own

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


def engine_context(engine: Backend, model: str) -> int | None:
    """Return the context of an engine's model in tokens; None where unknown. May read a file."""
    return next((each.context for each in engine.models() if each.id == model), None)


def _is_loopback(endpoint: Endpoint) -> bool:
    """Return whether an endpoint has a loopback address."""
    host = urlsplit(endpoint.base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
