"""The router: decides on the route of a request, the named model or the best candidate."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from specclient.config import Settings
from specclient.errors import ConfigurationError, NotFoundError
from specclient.http_transport.http import Transport
from specclient.prices.prices import Prices
from specclient.prices.service_tiers import requested_tier
from specclient.providers.endpoint import Endpoint
from specclient.routing.choose.decisions import choose_in_order, named_decision
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.option_catalogue import STRATEGY_OPERATIONS, OptionCatalogue
from specclient.routing.choose.policy_tables import PolicyTables
from specclient.routing.choose.route_options import NOTHING_HELD, RouteRequest
from specclient.routing.choose.task_classifier import BYTES_PER_TOKEN, classify_task, summarize_prompt
from specclient.routing.destinations import DestinationRegistry
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.prompt_scale import PromptTokenScale
from specclient.routing.learn.quality import QualityModel
from specclient.routing.learn.route_estimate import AnswerLength, representative_length
from specclient.routing.pools.fleet_routing import FleetRouting
from specclient.types.criterion import CRITERIA, PromptTask
from specclient.types.permit import RoutePermit
from specclient.types.policy import Policy
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.strategy import Strategy

AUTO = "auto"
_ANSWERED = frozenset({"chat", "completion", "response"})
_BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_NO_ANSWER = AnswerLength(0, 0, 0, measured=True)
#: Score tables that are kept, by policy, task and prompt length.
_TABLES = 512

_ScoreTableKey = tuple[int, PromptTask, int | None, int, int]


class Router:
    """Decides on the routes of one client's requests.

    Args:
        destinations: the endpoints and engines that routes name.
        estimates: the predictions of each route's speed.
        prices: the prices of each route's tokens.
        candidates: the routes that ``auto`` chooses among, in order of preference.
        policy: the policy of routed calls without one.
        sizes: the tokens of a prompt on each route; several routers may share it.
        fleets: chooses the pools of fleets; None without fleets.
        qualities: the scores of answers; several routers may share it.
        dice: the random numbers by which routes are explored.
        now: returns monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        destinations: DestinationRegistry,
        estimates: Estimator,
        prices: Prices,
        *,
        candidates: Sequence[str],
        policy: Policy,
        sizes: PromptTokenScale | None = None,
        fleets: FleetRouting | None = None,
        qualities: QualityModel | None = None,
        dice: random.Random | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self.destinations = destinations
        self._estimates = estimates
        self._prices = prices
        self._candidates = tuple(candidates)
        self._policy = policy
        self._fleets = fleets
        self._catalogue = OptionCatalogue(
            settings, destinations, prices, sizes or PromptTokenScale(), now=now
        )
        self._qualities = qualities or QualityModel()
        self._explorer = Explorer(dice or random.Random())
        self._tables: OrderedDict[_ScoreTableKey, PolicyTables] = OrderedDict()
        self._equal_policies: dict[Policy, Policy] = {}
        self._named_policies: dict[str, Policy] = {}

    @property
    def candidates(self) -> tuple[str, ...]:
        """The routes that ``auto`` chooses among."""
        return self._candidates

    @property
    def policy(self) -> Policy:
        """The policy of routed calls without one."""
        return self._policy

    def kind(self, request: Request) -> str:
        """Return the name of a request's destination, or ``auto`` for a routed request."""
        return AUTO if self._routed(request) else self.destinations.split_request(request)[0]

    def warm_up(self, kind: str) -> bool:
        """Import modules and read files for requests of a kind, once. Slow: do not call it on an event loop.

        Args:
            kind: as :meth:`kind` returns it.

        Returns:
            Whether such requests may be sent to a server.
        """
        sent = False
        if kind == AUTO:
            self._estimates.load_history()
            self._qualities.load_scores()
        if self._fleets is not None:
            self._fleets.load_history(kind)
        for route in self._candidates if kind == AUTO else (kind,):
            head, _, model = route.partition("/")
            if self.destinations.known(head):
                with suppress(ConfigurationError):  # raised again by the decision
                    destination = self.destinations.get(head)
                    sent = sent or isinstance(destination, Endpoint)
                    listed = destination.price_provider if isinstance(destination, Endpoint) else None
                    if model and listed is not None and not self._prices.is_loaded(head, model, listed):
                        self._prices.load(model, listed)
        return sent

    def decide(self, request: Request, *, explore: bool = True) -> Decision:
        """Choose the route of a request.

        A named model is taken; ``auto``, or any request with a policy, is routed. A policy that lists its
        fallbacks may come with a named model, which then is the first route. For a client with a base URL of
        its own, ``auto`` without a policy is a model name like any other.

        Args:
            explore: whether the request may go to a route of which little is known, as the policy says; False
                for a decision that no call follows.

        Raises:
            NotFoundError: an unknown provider, or the request's permit excludes every candidate.
            NoRouteError: no candidate satisfies the policy.
            ConfigurationError: a policy name that is not configured, or a candidate that is not a route.
        """
        if (named := self.named(request)) is not None:
            return named
        policy = self.policy_of(request)
        permit = request.options.permit
        listed = self._fallbacks(policy)
        fallbacks = listed if permit is None else permit.usable(listed)
        first = None if self.names_auto(request) else self._first(request, policy)
        route_request, operation = self._route_request(request, policy), request.operation
        if first is not None:
            return self._in_order(policy, (first, *fallbacks), route_request, operation)
        candidates = self._candidates if permit is None else permit.usable(self._candidates)
        if self._candidates and not candidates:
            raise NotFoundError(f"model {AUTO!r} does not exist, or none of its candidates may be used")
        tables = self._tables_of(policy, route_request, operation, candidates, permit)
        decision = tables.decide(self._estimates, route_request, self._explorer if explore else None)
        if listed:
            others = self._in_order(
                policy, (decision.chosen, *fallbacks), route_request, operation
            ).alternatives
            return replace(decision, alternatives=others)
        return decision

    def named(self, request: Request) -> Decision | None:
        """Return the decision for a request that names its model; None for a routed one.

        Raises:
            NotFoundError: the provider is unknown.
        """
        if self._routed(request):
            return None
        provider, model = self.destinations.split_request(request)
        owned = self.destinations.owns_names and provider == self.destinations.default
        route = model if owned else f"{provider}/{model}"
        alias = None if request.model in (route, model) else request.model
        return named_decision(route, provider, model, alias=alias)

    def placed(self, decision: Decision, request: Request, transport: Transport) -> Decision:
        """Return a decision for a fleet's fastest pool, ``NAME/auto``, with that pool; others as they are.

        The state of a fleet's servers is read meanwhile, where it is old.

        An event loop must be running.

        Args:
            transport: reads the load of the pools.
        """
        fleets = self._fleets
        if fleets is None or not fleets.has(decision.provider):
            return decision
        fleets.poll(self.destinations.endpoints[decision.provider], transport)
        if not fleets.is_auto(decision):
            return decision
        call = self._route_request(request, self._policy)
        return fleets.place(decision, request, call.task, call.prompt_tokens, call.length.median)

    def with_strategy(self, request: Request) -> Request:
        """Return a request with its policy's strategy, unless it has one of its own."""
        if (
            request.strategy is not None
            or not self._routed(request)
            or request.operation not in STRATEGY_OPERATIONS
        ):
            return request
        strategy, permit = self.policy_of(request).strategy, request.options.permit
        draft = strategy.draft if isinstance(strategy, Strategy) else None
        if strategy is None or (draft is not None and permit is not None and not permit.usable((draft,))):
            return request
        return replace(request, strategy=strategy)

    def _routed(self, request: Request) -> bool:
        return request.policy is not None or (self.names_auto(request) and not self.destinations.owns_names)

    def names_auto(self, request: Request) -> bool:
        """Return whether a request's model is ``auto`` or an alias of it."""
        return self.destinations.resolve_request(request) == AUTO

    def policy_of(self, request: Request) -> Policy:
        """Return the policy of a routed request; a name stands for a configured one.

        Raises:
            ConfigurationError: no policy of this name is configured.
        """
        policy = request.policy
        if policy is None:
            return self._policy
        if not isinstance(policy, str):
            if len(self._equal_policies) >= _TABLES:
                self._equal_policies.clear()
            return self._equal_policies.setdefault(
                policy, policy
            )  # policies made anew for each call share one object
        if policy not in self._named_policies:
            self._named_policies[policy] = self._settings.policy_named(policy)
        return self._named_policies[policy]

    def _first(self, request: Request, policy: Policy) -> str:
        """Return the route of a model that a request names together with a policy.

        Raises:
            ConfigurationError: the policy lists no fallbacks, so it would choose the model itself.
        """
        if not self._fallbacks(policy):
            raise ConfigurationError(
                f"a policy was given together with model {request.model!r}; policies choose the model, so "
                "use model='auto', or list the model's fallbacks in the policy: fallbacks=['provider/model']"
            )
        return "/".join(self.destinations.split_request(request))

    def _fallbacks(self, policy: Policy) -> tuple[str, ...]:
        return policy.fallbacks if isinstance(policy.fallbacks, tuple) else ()

    def _route_request(self, request: Request, policy: Policy) -> RouteRequest:
        """Return the task of a request and the tokens of its prompt and answer."""
        prompt_summary = summarize_prompt(request)
        task = classify_task(prompt_summary) if policy.task == "auto" else policy.task
        prompt = int(prompt_summary.size / BYTES_PER_TOKEN)
        tier = requested_tier(request)
        if request.operation not in _ANSWERED:
            return RouteRequest(task, prompt, _NO_ANSWER, tier=tier)
        params, limit = request.params, None
        for name in _BOUNDS:
            if type(most := params.get(name)) is int:
                limit = most
                break
        session = request.options.session
        length = self._estimates.length(task, prompt, limit, session=session)
        greedy = request.operation == "completion" and (
            params.get("temperature") == 0 or request.options.body.get("top_k") == 1
        )
        return RouteRequest(
            task,
            prompt,
            length,
            greedy,
            0 if limit is None or _slides(request) else limit,
            tier,
            NOTHING_HELD if session is None else self._estimates.held(session, prompt),
        )

    def _tables_of(
        self,
        policy: Policy,
        route_request: RouteRequest,
        operation: str,
        candidates: tuple[str, ...],
        permit: RoutePermit | None,
    ) -> PolicyTables:
        """Return the score tables for a policy and prompts like this one."""
        prompt = route_request.prompt_tokens
        options = self._catalogue.options(
            candidates, prompt, policy, operation=operation, permit=permit, tier=route_request.tier
        )
        options = self._qualities.applied(options, route_request.task)
        key = id(policy), route_request.task, representative_length(prompt), id(options), CRITERIA.version
        known = self._tables.get(key)
        if known is not None and known.policy is policy and known.options is options:
            return known
        margin = self._estimates.margin(policy, route_request.task, prompt)
        made = PolicyTables(policy, options, route_request.task, margin)
        self._tables[key] = made
        if len(self._tables) > _TABLES:
            with suppress(KeyError):  # another thread made room
                self._tables.popitem(last=False)
        return made

    def _in_order(
        self, policy: Policy, routes: Sequence[str], route_request: RouteRequest, operation: str
    ) -> Decision:
        """Decide on the first route that may be taken, in the caller's order."""
        listed = tuple(dict.fromkeys(routes))
        options = self._catalogue.options(
            listed, route_request.prompt_tokens, policy, operation=operation, tier=route_request.tier
        )[: len(listed)]
        estimates = self._estimates.all_of(
            listed, route_request.task, policy.percentile, route_request.prompt_tokens
        )
        return choose_in_order(policy, options, estimates, route_request)


def _slides(request: Request) -> bool:
    """Return whether engines may drop the oldest half of the context when it is full."""
    body = request.options.body
    own = body.get("specclient")
    return "slide" in (body.get("overflow"), own.get("overflow") if isinstance(own, Mapping) else None)
