"""Turn a request into the Decision of where it goes: the model that was named, or the best candidate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from specclient import tokens
from specclient.config import Settings
from specclient.costs.prices import Prices
from specclient.errors import ConfigurationError, NotFoundError
from specclient.providers.base import Endpoint
from specclient.routing.estimates import Estimates, Forecast
from specclient.routing.places import Place, Places
from specclient.routing.policy import Option, choose, named
from specclient.types.request import Request
from specclient.types.route import Decision, Policy

AUTO = "auto"
_PLAYED = frozenset({"chat", "completion"})


class Router:
    """Decides for one client.

    Args:
        candidates: the routes that ``auto`` chooses among, in order of preference.
        policy: of a routed call that brings none.
    """

    def __init__(
        self,
        settings: Settings,
        places: Places,
        estimates: Estimates,
        prices: Prices,
        *,
        candidates: Sequence[str],
        policy: Policy,
    ) -> None:
        self._settings = settings
        self.places = places
        self._estimates = estimates
        self._prices = prices
        self._candidates = candidates
        self._policy = policy

    def kind(self, request: Request) -> str:
        """Return what a request's route rests on: the name of its place, or ``auto`` for all candidates."""
        return AUTO if self._routed(request) else self.places.split(request.model)[0]

    def warm(self, kind: str) -> bool:
        """Import and read, once, what requests of a kind need; takes a while, so not on the event loop.

        Returns:
            Whether any of them are sent to a server.
        """
        sent = False
        if kind == AUTO:
            self._estimates.warm()
        for route in self._candidates if kind == AUTO else (kind,):
            head, _, model = route.partition("/")
            if self.places.known(head):
                with suppress(ConfigurationError):  # told where a request is decided
                    place = self.places.get(head)
                    sent = sent or isinstance(place, Endpoint)
                    listed = place.price_provider if isinstance(place, Endpoint) else None
                    if model and listed is not None and not self._prices.ready(head, model, listed):
                        self._prices.warm(model, listed)
        return sent

    def decide(self, request: Request) -> Decision:
        """Choose the route of a request.

        A model that is named is taken; ``auto``, or any call that brings a policy, is routed. With a base
        URL of the client's own, ``auto`` without a policy is a model name like any other.

        Raises:
            NotFoundError: an unknown provider.
            NoRouteError: no candidate satisfies the policy.
            ConfigurationError: a policy name that is not configured, or a candidate that is no route.
        """
        if not self._routed(request):
            provider, model = self.places.split(request.model)
            route = request.model if self.places.owns_names else f"{provider}/{model}"
            return named(route, provider, model)
        if request.model != AUTO:
            raise ConfigurationError(
                f"a policy was given together with model {request.model!r}; "
                "policies choose the model, so use model='auto'"
            )
        return choose(self._policy_of(request), self._options(request))

    def with_strategy(self, request: Request) -> Request:
        """Return a call with the strategy of the policy it is routed by, where it brings none of its own."""
        if request.strategy is not None or not self._routed(request) or request.operation not in _PLAYED:
            return request
        strategy = self._policy_of(request).strategy
        return request if strategy is None else replace(request, strategy=strategy)

    def _routed(self, request: Request) -> bool:
        return request.policy is not None or (request.model == AUTO and not self.places.owns_names)

    def _policy_of(self, request: Request) -> Policy:
        policy = request.policy
        if policy is None:
            return self._policy
        return self._settings.policy_named(policy) if isinstance(policy, str) else policy

    def _options(self, request: Request) -> list[Option]:
        """Predict every candidate for the same answer, so that they can be compared."""
        limit = request.params.get("max_completion_tokens") or request.params.get("max_tokens")
        forecasts = self._estimates.compare(
            self._candidates, max_tokens=limit if isinstance(limit, int) else None
        )
        return [
            self._option(route, request, forecast)
            for route, forecast in zip(self._candidates, forecasts, strict=True)
        ]

    def _option(self, route: str, request: Request, forecast: Forecast) -> Option:
        head, _, model = route.partition("/")
        if not model:
            raise ConfigurationError(
                f"candidate {route!r} is no route; write 'provider/model', such as 'local/demo'"
            )
        unavailable = self._unavailable(head, model)
        place = None if unavailable else self.places.get(head)
        cost = self._prices.predict(
            tokens.count_prompt(request, model).tokens,
            forecast.completion_tokens,
            head,
            model,
            price_provider=place.price_provider if isinstance(place, Endpoint) else None,
            engine_s=forecast.engine_s,
            latency_s=forecast.latency_s,
        )
        return Option(
            route=route,
            provider=head,
            model=model,
            unavailable=unavailable,
            cost=cost,
            latency_s=forecast.latency_s,
            acceptance_rate=forecast.acceptance_rate,
            evidence=forecast.evidence,
        )

    def _unavailable(self, head: str, model: str) -> str | None:
        """Return why a candidate cannot be taken now, and the way out."""
        try:
            place: Place = self.places.get(head)
        except (NotFoundError, ConfigurationError) as error:
            return str(error)
        if isinstance(place, Endpoint):
            return place.lacks
        known = [m.id for m in place.models()]
        if model not in known:
            return f"no model {model!r} in {head}; there are {', '.join(known)}"
        return None
