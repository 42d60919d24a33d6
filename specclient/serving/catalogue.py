"""Turn what a client can reach into the models that a server says it serves, and refuse all others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from specclient.client.async_client import AsyncOpenAI
from specclient.errors import ConfigurationError
from specclient.providers import Endpoint
from specclient.routing.destinations import DestinationRegistry
from specclient.routing.router import AUTO
from specclient.serving.errors import ServingError, bad_request
from specclient.types.request import Request
from specclient.types.strategy import Strategy

_log = logging.getLogger("specclient")

#: Letters of a model's name.
_LONGEST = 512


class ModelCatalogue:
    """The models of one server.

    Args:
        client: what serves them.
        only: those that are served, as ``provider/model``; empty for whatever the client can reach.
    """

    def __init__(self, client: AsyncOpenAI, only: Sequence[str] = ()) -> None:
        self._client = client
        self._only = tuple(only)
        self._engines: dict[str, tuple[str, ...]] = {}

    @property
    def closed(self) -> bool:
        """Whether only named models are served."""
        return bool(self._only)

    @property
    def _places(self) -> DestinationRegistry:
        return self._client.pipeline.destinations

    def names(self) -> list[str]:
        """Return the models, engines' first, then those that the configuration names and has the key of."""
        if self._only:
            return list(self._only)
        settings, places = self._client.settings, self._places
        named = [f"{name}/{model}" for name, table in settings.providers.items() for model in table.models]
        engines = [f"{name}/{model}" for name in places.backend_names() for model in self._engine(name)]
        hosted = [n for n in (*named, *settings.candidates) if n not in engines and self._reachable(n)]
        return list(dict.fromkeys([*engines, *hosted, *([AUTO] if settings.candidates else [])]))

    def check(self, request: Request) -> None:
        """Raise ProblemError for a model or draft that is not served, or a policy that is not configured."""
        policies = self._client.settings.policies
        if isinstance(request.policy, str) and request.policy not in policies:
            known = ", ".join(sorted(policies)) or "none"
            raise bad_request(
                "specclient.policy", f"no policy is named {request.policy!r}; there are: {known}"
            )
        self._check(request.model, "model")
        strategy = request.strategy
        if isinstance(strategy, Strategy) and strategy.draft:
            self._check(strategy.draft, "specclient.draft")

    def is_engines(self, model: str) -> bool:
        """Tell whether an engine in this process serves a model that :meth:`check` has let pass."""
        if model in ("", AUTO):
            return False
        return not isinstance(self._places.get(self._places.split(model)[0]), Endpoint)

    def _check(self, model: str, param: str) -> None:
        if len(model) > _LONGEST or not model.isprintable():  # it goes into logs, the ledger and URLs
            raise bad_request(
                param, f"{param} must be a model's name: at most {_LONGEST} letters, all of them printable"
            )
        if self._only and model not in self._only:
            raise ServingError(
                404,
                f"model {model!r} is not served here; served are {', '.join(self._only)}",
                param,
                "model_not_found",
            )
        if model == AUTO:
            return
        name, inner = self._places.split(model)
        place = self._places.get(name)
        if isinstance(place, Endpoint):
            check_key(place)
        elif inner not in self._engine(name):  # by its own name, an engine takes any folder of this machine
            raise ServingError(
                404,
                f"model {model!r} is not served here; {name} has {', '.join(self._engine(name))}",
                param,
                "model_not_found",
            )

    def _engine(self, name: str) -> tuple[str, ...]:
        """Return the models of an engine, asked for them once."""
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
        return isinstance(place, Endpoint) and has_key(place)


def has_key(place: Endpoint) -> bool:
    """Tell whether an endpoint can be used: it has its key, or needs none."""
    return place.key is not None or place.key_source is not None or not place.key_required


def check_key(place: Endpoint) -> None:
    """Raise ProblemError where an endpoint's key is missing."""
    if not has_key(place):
        raise ServingError(
            401,
            f"this server has no key for provider {place.name!r}: set {' or '.join(place.key_env)} "
            "where it runs",
            code="provider_key_missing",
        )


def model_row(name: str) -> dict[str, Any]:
    """Return one model as OpenAI lists it; when it was made is not known."""
    return {"id": name, "object": "model", "created": 0, "owned_by": name.partition("/")[0]}
