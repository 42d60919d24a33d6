"""The models that a server lists and serves."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from specclient.client.async_client import AsyncOpenAI
from specclient.errors import ConfigurationError, NotFoundError
from specclient.openai_http.errors import ServingError, bad_request
from specclient.openai_http.model_names import check_name
from specclient.providers import Endpoint
from specclient.routing.destinations import DestinationRegistry
from specclient.routing.router import AUTO
from specclient.types.model_aliases import ModelAliases
from specclient.types.request import Request
from specclient.types.strategy import Strategy

_log = logging.getLogger("specclient")


class ModelCatalogue:
    """The models of one server.

    Args:
        client: sends the calls.
        only: the served models, as ``provider/model``; empty for all models that the client can reach.

    Attributes:
        only: as given.
    """

    def __init__(self, client: AsyncOpenAI, only: Sequence[str] = ()) -> None:
        self._client = client
        self.only = tuple(only)
        self._engines: dict[str, tuple[str, ...]] = {}

    @property
    def closed(self) -> bool:
        """Whether the served models are restricted."""
        return bool(self.only)

    @property
    def _places(self) -> DestinationRegistry:
        return self._client.pipeline.destinations

    def names(self) -> list[str]:
        """Return the models: those of engines, then the configured ones whose provider has its key."""
        if self.only:
            return list(self.only)
        settings, places = self._client.settings, self._places
        named = [f"{name}/{model}" for name, table in settings.providers.items() for model in table.models]
        engines = [f"{name}/{model}" for name in places.backend_names() for model in self.engine_models(name)]
        hosted = [n for n in (*named, *settings.candidates) if n not in engines and self._reachable(n)]
        return list(dict.fromkeys([*engines, *hosted, *([AUTO] if settings.candidates else [])]))

    def aliases(self, own: ModelAliases | None = None) -> dict[str, str]:
        """Return the aliases that are no patterns, with the served model that each stands for.

        Args:
            own: aliases of the key, which precede those of the configuration.
        """
        configured = self._places.aliases
        found: dict[str, str] = {}
        for alias in (name for table in (configured, own) if table is not None for name in table.names):
            if self.only and not self._is_listed(alias, own):
                continue
            target = self._places.resolve(alias, own)
            try:
                found[alias] = AUTO if target == AUTO else "/".join(self._places.split(alias, own))
            except NotFoundError:  # of a key, made under another configuration
                _log.warning("the alias %r stands for %r, which no provider serves", alias, target)
        return found

    def check(self, request: Request) -> None:
        """Check model, draft and policy of a request.

        Raises:
            ServingError: a model or draft is not served, or the policy is not configured.
        """
        policies = self._client.settings.policies
        if isinstance(request.policy, str) and request.policy not in policies:
            known = ", ".join(sorted(policies)) or "none"
            raise bad_request(
                "specclient.policy", f"no policy is named {request.policy!r}; the policies are: {known}"
            )
        self._check(request.model, "model", request.options.aliases)
        strategy = request.strategy
        if isinstance(strategy, Strategy) and strategy.draft:
            self._check(strategy.draft, "specclient.draft")

    def is_engines(self, model: str, aliases: ModelAliases | None = None) -> bool:
        """Return whether an engine in this process serves a model that passed :meth:`check`.

        Args:
            aliases: those of the request; None without any.
        """
        if not model or self._places.resolve(model, aliases) == AUTO:
            return False
        return not isinstance(self._places.of_model(*self._places.split(model, aliases)), Endpoint)

    def _check(self, model: str, param: str, aliases: ModelAliases | None = None) -> None:
        check_name(model, param)
        is_auto = self._places.resolve(model, aliases) == AUTO
        if self.only and not self._is_listed(model, aliases):
            raise ServingError(
                404,
                f"model {model!r} is not served here; the models are {', '.join(self.only)}",
                param,
                "model_not_found",
            )
        if is_auto:
            return
        name, inner = self._places.split(model, aliases)
        place = self._places.get(name)
        if isinstance(place, Endpoint):
            check_key(place)
        elif inner not in self.engine_models(name):  # an engine itself would accept any folder
            raise ServingError(
                404,
                f"model {model!r} is not served here; the models of {name} are "
                f"{', '.join(self.engine_models(name))}",
                param,
                "model_not_found",
            )

    def _is_listed(self, model: str, aliases: ModelAliases | None) -> bool:
        """Return whether a name, or the model that it stands for, is one of the served models."""
        if model in self.only:
            return True
        target = self._places.resolve(model, aliases)
        if target == AUTO:
            return AUTO in self.only
        try:
            return "/".join(self._places.split(model, aliases)) in self.only
        except NotFoundError:
            return False

    def engine_models(self, name: str) -> tuple[str, ...]:
        """Return the models of an engine; the engine is queried once."""
        if name not in self._engines:
            try:
                place = self._places.get(name)
            except ConfigurationError as error:  # not installed, or wrongly configured
                _log.warning("the models of %r are not served: %s", name, error)
                self._engines[name] = ()
            else:
                known = () if isinstance(place, Endpoint) else place.models()
                self._engines[name] = tuple(model.id for model in known)
        return self._engines[name]

    def _reachable(self, route: str) -> bool:
        head = route.partition("/")[0]
        if not self._places.known(head) or head in self._places.backend_names():
            return False
        place = self._places.get(head)
        return isinstance(place, Endpoint) and place.has_key


def check_key(place: Endpoint) -> None:
    """Raise ServingError if the key of an endpoint is missing."""
    if not place.has_key:
        raise ServingError(
            401,
            f"this server cannot call provider {place.name!r}: {place.lacks} (in the server's environment)",
            code="provider_key_missing",
        )


def model_row(name: str, alias_of: str | None = None) -> dict[str, Any]:
    """Return a model in the format of OpenAI's list; its creation time is unknown.

    Args:
        alias_of: the model that the name stands for; None if it is no alias.
    """
    row = {"id": name, "object": "model", "created": 0, "owned_by": (alias_of or name).partition("/")[0]}
    return row if alias_of is None else {**row, "alias_of": alias_of}
