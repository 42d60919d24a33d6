"""Turn a request into the Decision of where it goes: the model that was named, or the best candidate."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from specclient.config import Settings
from specclient.errors import ConfigurationError
from specclient.prices.prices import Prices
from specclient.providers.endpoint import Endpoint
from specclient.routing.choose.decisions import choose_in_order, named_decision
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.option_catalogue import STRATEGY_OPERATIONS, OptionCatalogue
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.choose.task_classifier import BYTES_PER_TOKEN, classify_task, summarize_prompt
from specclient.routing.destinations import DestinationRegistry
from specclient.routing.learn.adaptive_percentile import AdaptivePercentile
from specclient.routing.learn.estimator import Estimator, representative_length
from specclient.routing.learn.prompt_scale import PromptTokenScale
from specclient.routing.learn.route_estimate import AnswerLength
from specclient.types.criterion import CRITERIA
from specclient.types.request import Request
from specclient.types.route import Decision, Policy, PromptTask

AUTO = "auto"
_ANSWERED = frozenset({"chat", "completion", "response"})
_BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_NO_ANSWER = AnswerLength(0, 0, 0, measured=True)
#: Slates that are kept: of policies, tasks, and lengths of prompts.
_SLATES = 512

_ScoreTableKey = tuple[int, PromptTask, int | None, int, int]


class Router:
    """Decides for one client.

    Args:
        candidates: the routes that ``auto`` chooses among, in order of preference.
        policy: of a routed call that brings none.
        sizes: what prompts come to on each route, for several to share.
        dice: chance, for what is tried to learn more of it.
        now: monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        places: DestinationRegistry,
        estimates: Estimator,
        prices: Prices,
        *,
        candidates: Sequence[str],
        policy: Policy,
        sizes: PromptTokenScale | None = None,
        dice: random.Random | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self.places = places
        self._estimates = estimates
        self._prices = prices
        self._candidates = tuple(candidates)
        self._policy = policy
        self._menu = OptionCatalogue(settings, places, prices, sizes or PromptTokenScale(), now=now)
        self._explorer = Explorer(dice or random.Random())
        self._slates: OrderedDict[
            _ScoreTableKey, tuple[Policy, tuple[RouteOption, ...], ScoreTable, AdaptivePercentile]
        ] = OrderedDict()
        self._alike: dict[Policy, Policy] = {}
        self._named: dict[str, Policy] = {}

    @property
    def candidates(self) -> tuple[str, ...]:
        """The routes that ``auto`` chooses among."""
        return self._candidates

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

    def decide(self, request: Request, *, explore: bool = True) -> Decision:
        """Choose the route of a request.

        A model that is named is taken; ``auto``, or any call that brings a policy, is routed. A policy that
        lists its fallbacks may come with a model: that one is first. With a base URL of the client's own,
        ``auto`` without a policy is a model name like any other.

        Args:
            explore: whether it may go where more is to be learned, as the policy says; False for a question
                that no call follows.

        Raises:
            NotFoundError: an unknown provider.
            NoRouteError: no candidate satisfies the policy.
            ConfigurationError: a policy name that is not configured, or a candidate that is no route.
        """
        if not self._routed(request):
            provider, model = self.places.split(request.model)
            route = request.model if self.places.owns_names else f"{provider}/{model}"
            return named_decision(route, provider, model)
        policy = self._policy_of(request)
        first = None if request.model == AUTO else self._first(request, policy)
        asked, operation = self._asked(request, policy), request.operation
        if first is not None:
            return self._in_order(policy, (first, *self._fallbacks(policy)), asked, operation)
        slate, margin = self._slate(policy, asked, operation)
        share = margin.percentile
        slate.update(
            self._estimates.all_of(slate.routes, asked.task, share, asked.prompt_tokens), share=share
        )
        decision = slate.decide(asked, self._explorer if explore else None)
        fallbacks = self._fallbacks(policy)
        if fallbacks:
            others = self._in_order(policy, (decision.chosen, *fallbacks), asked, operation).alternatives
            return replace(decision, alternatives=others)
        return decision

    def with_strategy(self, request: Request) -> Request:
        """Return a call with the strategy of the policy it is routed by, where it brings none of its own."""
        if (
            request.strategy is not None
            or not self._routed(request)
            or request.operation not in STRATEGY_OPERATIONS
        ):
            return request
        strategy = self._policy_of(request).strategy
        return request if strategy is None else replace(request, strategy=strategy)

    def _routed(self, request: Request) -> bool:
        return request.policy is not None or (request.model == AUTO and not self.places.owns_names)

    def _policy_of(self, request: Request) -> Policy:
        policy = request.policy
        if policy is None:
            return self._policy
        if not isinstance(policy, str):
            if len(self._alike) >= _SLATES:
                self._alike.clear()
            return self._alike.setdefault(policy, policy)  # made anew for each call, it is the same
        if policy not in self._named:
            self._named[policy] = self._settings.policy_named(policy)
        return self._named[policy]

    def _first(self, request: Request, policy: Policy) -> str:
        """Return the route of a model that is named beside a policy.

        Raises:
            ConfigurationError: the policy lists no fallbacks for it, and so chooses the model itself.
        """
        if not self._fallbacks(policy):
            raise ConfigurationError(
                f"a policy was given together with model {request.model!r}; policies choose the model, so "
                "use model='auto', or list the model's fallbacks in the policy: fallbacks=['provider/model']"
            )
        return "/".join(self.places.split(request.model))

    def _fallbacks(self, policy: Policy) -> tuple[str, ...]:
        return policy.fallbacks if isinstance(policy.fallbacks, tuple) else ()

    def _asked(self, request: Request, policy: Policy) -> RouteRequest:
        """Return what a route is looked for: the task and the sizes of a request."""
        gist = summarize_prompt(request)
        task = classify_task(gist) if policy.task == "auto" else policy.task
        prompt = int(gist.size / BYTES_PER_TOKEN)
        if request.operation not in _ANSWERED:
            return RouteRequest(task, prompt, _NO_ANSWER)
        params = request.params
        limit = next((most for name in _BOUNDS if type(most := params.get(name)) is int), None)
        length = self._estimates.length(task, prompt, limit, session=request.options.session)
        greedy = request.operation == "completion" and (
            params.get("temperature") == 0 or request.options.body.get("top_k") == 1
        )
        return RouteRequest(task, prompt, length, greedy, 0 if limit is None or _slides(request) else limit)

    def _slate(
        self, policy: Policy, asked: RouteRequest, operation: str
    ) -> tuple[ScoreTable, AdaptivePercentile]:
        """Return the candidates as a policy sees them for prompts such as this one, and how sure to be."""
        prompt = asked.prompt_tokens
        options = self._menu.options(self._candidates, prompt, policy, operation=operation)
        key = id(policy), asked.task, representative_length(prompt), id(options), CRITERIA.version
        known = self._slates.get(key)
        if known is not None and known[0] is policy and known[1] is options:
            return known[2], known[3]
        slate, margin = ScoreTable(policy, options, asked.task), self._estimates.margin(policy)
        self._slates[key] = policy, options, slate, margin
        if len(self._slates) > _SLATES:
            with suppress(KeyError):  # another thread made room
                self._slates.popitem(last=False)
        return slate, margin

    def _in_order(
        self, policy: Policy, routes: Sequence[str], asked: RouteRequest, operation: str
    ) -> Decision:
        """Decide on the first that may be taken of routes in an order that the caller has given."""
        listed = tuple(dict.fromkeys(routes))
        options = self._menu.options(listed, asked.prompt_tokens, policy, operation=operation)[: len(listed)]
        estimates = self._estimates.all_of(listed, asked.task, policy.percentile, asked.prompt_tokens)
        return choose_in_order(policy, options, estimates, asked)


def _slides(request: Request) -> bool:
    """Tell whether engines may let the oldest half of the context go."""
    body = request.options.body
    own = body.get("specclient")
    return "slide" in (body.get("overflow"), own.get("overflow") if isinstance(own, Mapping) else None)
