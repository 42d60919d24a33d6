"""Permits of requests: the routes that a server serves and a key allows.

The pipeline checks a request's permit for each attempt, wherever its route comes from: the request, its
policy, a fallback, a hedge, a draft or a configured pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from urllib.parse import parse_qsl

from specclient.client.async_client import AsyncOpenAI
from specclient.errors import NotFoundError
from specclient.openai_http.errors import ServingError, bad_request
from specclient.routing.destinations import DestinationRegistry
from specclient.routing.router import AUTO
from specclient.serving.catalogue import ModelCatalogue
from specclient.types.model_aliases import LONGEST_NAME, ModelAliases
from specclient.types.policy import Policy
from specclient.types.request import Request
from specclient.types.strategy import Strategy

__all__ = ["ServerPermit", "ServerPermits", "model_names", "request_names"]

#: Decisions that a permit remembers, and sets of models whose permits are kept.
_MOST = 1024
#: Fields that name further models, for providers and gateways that choose among several themselves.
_MORE_MODELS = ("models", "fallbacks", "preset", "extra_body")
#: The fields of a policy that name routes.
_NAMING = ("allow", "deny", "fallbacks")


class ServerPermits:
    """The permits of a server's requests.

    Args:
        client: sends the calls.
        catalogue: the served models.
    """

    def __init__(self, client: AsyncOpenAI, catalogue: ModelCatalogue) -> None:
        self._client, self.catalogue = client, catalogue
        self._permits: dict[tuple[str, ...], ServerPermit] = {}

    @property
    def places(self) -> DestinationRegistry:
        """The destinations of the server's client."""
        return self._client.pipeline.destinations

    @property
    def candidates(self) -> tuple[str, ...]:
        """The candidates of ``auto``."""
        return self._client.pipeline.router.candidates

    def of(self, models: tuple[str, ...]) -> ServerPermit:
        """Return the permit of requests that may use models of these patterns; empty for all served ones."""
        found = self._permits.get(models)
        if found is None:
            if len(self._permits) >= _MOST:
                self._permits.clear()
            found = self._permits[models] = ServerPermit(models, self)
        return found

    @cached_property
    def chosen(self) -> frozenset[str]:
        """The routes that the server's own policies can choose for ``auto``.

        They are the candidates that the default policy or a configured one does not exclude, the fallbacks of
        these policies, and the drafts of their strategies and of the configured pairs.
        """
        router, settings = self._client.pipeline.router, self._client.settings
        routes: set[str] = set()
        for policy in (router.policy, *(settings.policy_named(name) for name in settings.policies)):
            routes.update(route for route in router.candidates if self._may_choose(policy, route))
            if isinstance(policy.fallbacks, tuple):
                routes.update(policy.fallbacks)
            if isinstance(policy.strategy, Strategy) and policy.strategy.draft:
                routes.add(policy.strategy.draft)
        routes.update(pair.draft for pair in settings.pairs.values() if pair.target in routes)
        return frozenset("/".join(route_parts(route, self.places)) for route in routes)

    def _may_choose(self, policy: Policy, route: str) -> bool:
        if policy.deny and route.startswith(policy.deny):
            return False
        if policy.allow and not route.startswith(policy.allow):
            return False
        return not policy.local_only or self.places.stays_local(route.partition("/")[0])


class ServerPermit:
    """The permit of requests with one set of model patterns; see :class:`RoutePermit`.

    Patterns besides ``auto`` limit the routes however they are reached; ``auto`` then chooses among them.
    With the pattern ``auto`` alone, requests may use what the server's own policies choose
    (:attr:`ServerPermits.chosen`), and may not name routes in a policy. The same holds for the models of
    ``serve --model``.

    Args:
        models: patterns of the allowed models; empty for all that are served.
        server: the served models.
    """

    def __init__(self, models: tuple[str, ...], server: ServerPermits) -> None:
        self._models, self._server = models, server
        self._allowed: dict[tuple[str, str], bool] = {}
        self._usable: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def limited(self) -> bool:
        """Whether the models are limited by a key or by ``serve --model``."""
        return bool(self._models) or self._server.catalogue.closed

    def check(self, provider: str, model: str) -> None:
        """Refuse a route; see :class:`RoutePermit`."""
        key = provider, model
        allowed = self._allowed.get(key)
        if allowed is None:
            allowed = self._allows(provider, model)
            if len(model) <= LONGEST_NAME:
                if len(self._allowed) >= _MOST:  # names come from requests
                    self._allowed.clear()
                self._allowed[key] = allowed
        if not allowed:
            raise _unknown(f"{provider}/{model}")

    def usable(self, routes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the routes that may be used; see :class:`RoutePermit`."""
        if self._usable[0] is routes:
            return self._usable[1]
        kept = tuple(route for route in routes if self._allows_route(route))
        found = routes if len(kept) == len(routes) else kept
        if routes is self._server.candidates:  # those of every call; any others come from requests
            self._usable = routes, found
        return found

    def check_request(self, request: Request, query: str = "") -> None:
        """Check all names in a request before anything is sent, for errors that name the field.

        Args:
            query: the query string, if it is a part of the request's path.

        Raises:
            ServingError: 404 if the key may not use a model, 400 if a field names models that cannot be
                checked.
        """
        if not self.limited:
            return
        if self._models:  # the catalogue checks its own models
            self._check_named(request_names(request, self._server.places), request.model, "model")
            if isinstance(request.strategy, Strategy) and request.strategy.draft:
                draft = request.strategy.draft
                self._check_named(model_names(draft, self._server.places), draft, "specclient.draft")
        self._check_policy(request.policy)
        options = request.options
        for sent in (request.params, options.body, options.query):
            if more := [name for name in _MORE_MODELS if name in sent]:
                raise bad_request(
                    more[0], f"{more[0]} names further models, which a key with limited models may not use"
                )
        if "model" in options.query or "model" in dict(parse_qsl(query)):
            raise bad_request("model", "model is named in the query; name it in the body")
        self._check_tools(request)

    def _check_named(self, names: Sequence[str], model: str, param: str) -> None:
        if not _matches(self._models, names):
            raise ServingError(404, str(_unknown(model)), param, "model_not_found")

    def _check_policy(self, policy: Policy | str | None) -> None:
        if not isinstance(policy, Policy):
            return  # a configured policy is the server's own
        for models in (self._models, self._server.catalogue.only):
            if models and not any(model != AUTO for model in models):
                for name in _NAMING:
                    if isinstance(named := getattr(policy, name), tuple) and named:
                        raise bad_request(
                            "specclient.policy",
                            f"specclient.policy.{name} names routes, but only 'auto' is allowed here, so the "
                            "server chooses: omit it, or give the name of a configured policy",
                        )
        if isinstance(policy.fallbacks, tuple):
            for route in policy.fallbacks:
                if not self._allows_route(route):
                    raise ServingError(
                        404, str(_unknown(route)), "specclient.policy.fallbacks", "model_not_found"
                    )

    def _check_tools(self, request: Request) -> None:
        """Check the models of tools that the provider runs, such as image generation."""
        tools = request.params.get("tools")
        for place, tool in enumerate(tools if isinstance(tools, list) else ()):
            model = tool.get("model") if isinstance(tool, dict) else None
            provider = self._server.places.split_request(request)[0]
            if isinstance(model, str) and not self._allows(provider, model):
                raise ServingError(404, str(_unknown(model)), f"tools[{place}].model", "model_not_found")

    def _allows_route(self, route: str) -> bool:
        return self._allows(*route_parts(route, self._server.places))

    def _allows(self, provider: str, model: str) -> bool:
        places, catalogue = self._server.places, self._server.catalogue
        route = f"{provider}/{model}"
        names = [route, model] if provider == places.default else [route]
        for models, matched in (
            (self._models, _matches(self._models, names)),
            (catalogue.only, any(name in catalogue.only for name in names)),
        ):
            if not models or matched:
                continue
            if any(each != AUTO for each in models) or route not in self._server.chosen:
                return False
        if provider in places.endpoints:
            return True
        return provider in places.backend_names() and model in catalogue.engine_models(provider)


def model_names(
    model: str, places: DestinationRegistry, aliases: ModelAliases | None = None
) -> Sequence[str]:
    """Return all names of a model: with its provider, and without it for the default provider.

    For an alias, these are the names of its target.

    Args:
        aliases: the request's aliases; None if it has none.
    """
    if places.resolve(model, aliases) == AUTO:
        return [AUTO]
    try:
        head, inner = places.split(model, aliases)
    except NotFoundError:
        return [model]
    return [f"{head}/{inner}", inner] if head == places.default else [f"{head}/{inner}"]


def request_names(request: Request, places: DestinationRegistry) -> Sequence[str]:
    """Return all names of the model that serves a request; see :func:`model_names`."""
    return model_names(request.model, places, request.options.aliases)


def route_parts(route: str, places: DestinationRegistry) -> tuple[str, str]:
    """Return the provider and the model of a route in a policy, a pair or a strategy.

    A known provider before the slash is used even if the client's base URL owns all model names.
    """
    head, _, rest = route.partition("/")
    if rest and places.known(head):
        return head, rest
    try:
        return places.split(route)
    except NotFoundError:
        return head, rest


def _matches(patterns: Collection[str], names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _unknown(model: str) -> NotFoundError:
    error = NotFoundError(f"model {model!r} does not exist, or this key may not use it")
    error.code, error.param = "model_not_found", "model"
    return error
