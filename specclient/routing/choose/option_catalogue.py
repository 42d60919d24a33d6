"""The catalogue of route options: the model, price and draft behind each candidate route."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from specclient.config import Settings
from specclient.errors import ConfigurationError, NotFoundError
from specclient.prices.prices import Prices
from specclient.providers.dialects import unsupported_operation
from specclient.providers.endpoint import Endpoint
from specclient.routing.choose.draft_pairs import DraftPairFacts, pair_facts, with_measurements
from specclient.routing.choose.quality_tiers import tier_of
from specclient.routing.choose.route_options import ClientSideDraft, RouteOption
from specclient.routing.choose.tariff import Tariff
from specclient.routing.destinations import Destination, DestinationRegistry
from specclient.routing.learn.prompt_scale import PromptTokenScale
from specclient.types.criterion import PromptTask
from specclient.types.model_kind import ENGINE_OPERATIONS, kind_of_operation, wrong_kind
from specclient.types.permit import RoutePermit
from specclient.types.policy import Policy
from specclient.types.strategy import Strategy

__all__ = ["OptionCatalogue"]

#: Seconds after which prices that depend on the date are read again.
_DATED_S = 60.0
#: Lists of routes whose options are cached; beyond it the cache is cleared.
_MOST = 1024
#: The operations of client-side strategies.
STRATEGY_OPERATIONS = frozenset({"chat", "completion"})
#: Why engines in this process do not serve other methods, and what to do.
_NOT_SERVED = (
    "an engine in this process serves only chat.completions.create, completions.create, responses.create and "
    "embeddings.create; add a hosted provider's route for anything else"
)

_OptionsKey = tuple[tuple[str, ...], int, Strategy | None, str, RoutePermit | None, str | None]


class OptionCatalogue:
    """The options of one client, computed once for each list of candidates.

    Args:
        settings: the configuration of models, pairs and quality.
        destinations: the endpoints and engines that routes name.
        prices: the prices of each route's tokens.
        sizes: the tokens of a prompt on each route.
        now: returns monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        destinations: DestinationRegistry,
        prices: Prices,
        sizes: PromptTokenScale,
        *,
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._destinations = destinations
        self._prices = prices
        self._sizes = sizes
        self._now = now
        self._seen = sizes.version
        self._until = float("inf")
        self._steps: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._made: dict[_OptionsKey, tuple[RouteOption, ...]] = {}

    def options(
        self,
        routes: Sequence[str],
        prompt_tokens: int,
        policy: Policy,
        *,
        operation: str = "chat",
        permit: RoutePermit | None = None,
        tier: str | None = None,
    ) -> tuple[RouteOption, ...]:
        """Return the options of some routes; the same object until one of them changes.

        Args:
            routes: the names of the routes, in order of preference.
            prompt_tokens: of the prompt; beyond some lengths, prices of all its tokens rise.
            policy: if it has a strategy, every route uses that one and no option has a client-side draft.
            operation: the kind of call; engines in this process and some vendors do not serve all of them.
            permit: excludes options whose client-side draft may not be used; None for any.
            tier: the service tier that the request asks for, other than the standard one. A route without a
                price for it has no tariff, as its calls are unpriced.

        Raises:
            ConfigurationError: a candidate that is not a route.
        """
        if self._sizes.version != self._seen or self._now() >= self._until:
            self._made.clear()
            self._seen, self._until = self._sizes.version, float("inf")
        named = tuple(routes)
        steps = self._steps.get(named)
        level = 0 if not steps else bisect_left(steps, prompt_tokens)
        strategy = policy.strategy if isinstance(policy.strategy, Strategy) else None
        drafting = permit if self._settings.pairs else None
        key = named, level, strategy, operation, drafting, tier
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST:  # calls may name candidates of their own
                self._made.clear()
                self._steps.clear()
            own = [self._own(route, prompt_tokens, strategy, operation, tier) for route in named]
            drafted = (
                self._client_drafted(own, prompt_tokens, tier)
                if strategy is None and operation in STRATEGY_OPERATIONS
                else ()
            )
            if drafting is not None:
                drafted = [each for each in drafted if _may_draft(each, drafting)]
            found = self._made[key] = (*own, *drafted)
            self._steps[named] = self._price_steps(own)
        return found

    def _own(
        self,
        route: str,
        prompt_tokens: int,
        strategy: Strategy | None,
        operation: str = "chat",
        tier: str | None = None,
    ) -> RouteOption:
        """Return the option of a route, with its destination's own speculation or the policy's strategy."""
        head, _, model = route.partition("/")
        if not model:
            raise ConfigurationError(
                f"candidate {route!r} is not a route; write 'provider/model', such as 'local/demo'"
            )
        sent_as = "chat" if operation == "response" else operation  # see specclient.call.over_chat
        quality = tier_of(route, self._settings.quality)
        try:
            destination: Destination = self._destinations.of_model(head, model)
        except (NotFoundError, ConfigurationError) as error:
            return RouteOption(route, head, model, unavailable=str(error), quality=quality)
        vendor = destination.price_provider if isinstance(destination, Endpoint) else None
        traffic = tier if isinstance(destination, Endpoint) else None  # engines have no tiers
        quote = self._prices.quote(head, model, price_provider=vendor, prompt=prompt_tokens, traffic=traffic)
        tariff = Tariff.of(quote)
        scale = self._sizes.scale(route)
        if isinstance(destination, Endpoint):
            lacks = destination.lacks or unsupported_operation(destination.dialect, sent_as)
            return RouteOption(
                route,
                head,
                model,
                lacks,
                self._destinations.stays_local(head),
                quality,
                tariff,
                scale,
                strategy=strategy,
                context=self._prices.loaded_context(vendor, model),
                published_context=True,
            )
        if sent_as not in ENGINE_OPERATIONS:
            return RouteOption(route, head, model, _NOT_SERVED, local=True, quality=quality)
        known = {each.id: each for each in destination.models()}
        served = known.get(model)
        if served is None:
            reason = f"no model {model!r} in {head}; there are {', '.join(known)}"
            return RouteOption(route, head, model, reason, local=True, quality=quality)
        if served.kind != kind_of_operation(sent_as):
            reason = wrong_kind(route, served.kind)
            return RouteOption(route, head, model, reason, local=True, quality=quality)
        pair = None if served.draft is None else self._drafted(route, served.target, served.draft)
        return RouteOption(
            route,
            head,
            model,
            local=True,
            quality=tier_of(served.target) if quality is None else quality,
            tariff=tariff,
            scale=scale,
            context=served.context,
            draft=served.draft,
            strategy=strategy,
            acceptance=() if pair is None else tuple(pair.acceptance.items()),
            cost_ratios=() if pair is None or pair.cost_ratio is None else tuple(pair.cost_ratio.items()),
        )

    def _drafted(self, route: str, target: str, draft: str) -> DraftPairFacts:
        """Return the facts of a local model and its draft, with the measurements of its ``[pairs]`` table."""
        models, row = self._settings.local.models, pair_facts(target, draft)
        for pair in self._settings.pairs.values():
            small = models.get(pair.draft.removeprefix("local/"))
            if pair.target == route and small is not None and small.path == draft:
                return with_measurements(row, pair.acceptance, pair.cost_ratio)
        return row

    def _client_drafted(
        self, own: Iterable[RouteOption], prompt_tokens: int, tier: str | None
    ) -> Iterable[RouteOption]:
        """Yield the options with a client-side draft that the configured pairs make possible.

        Each yields the target's own answer.
        """
        for option in own:
            for pair in self._settings.pairs.values():
                if pair.target != option.route or option.unavailable is not None:
                    continue
                destination = self._destinations.of_model(option.provider, option.model)
                if not isinstance(destination, Endpoint):
                    continue  # an engine drafts by itself
                known = destination.capabilities_of(option.model)
                row = with_measurements(pair_facts(pair.target, pair.draft), pair.acceptance, pair.cost_ratio)
                draft = self._own(pair.draft, prompt_tokens, None, tier=tier)
                if draft.unavailable is not None:
                    continue
                if known.verification and row.same_tokenizer is not False:
                    yield _with_client_draft(
                        option, draft, row, Strategy(kind="remote", draft=draft.route), greedy=True
                    )
                if known.prediction:
                    yield _with_client_draft(
                        option, draft, row, Strategy(kind="prediction", draft=draft.route)
                    )

    def _price_steps(self, own: Iterable[RouteOption]) -> tuple[int, ...]:
        """Return the prompt lengths at which a price changes; schedule dated prices to be read again."""
        lengths: set[int] = set()
        for option in own:
            if option.unavailable is None and not (option.local and option.tariff is None):
                destination = self._destinations.get(option.provider)
                vendor = destination.price_provider if isinstance(destination, Endpoint) else None
                steps = self._prices.prompt_tiers(option.provider, option.model, vendor)
                if steps is not None:
                    lengths.update(steps)
                    self._until = min(self._until, self._now() + _DATED_S)
        return tuple(sorted(lengths))


def _may_draft(option: RouteOption, permit: RoutePermit) -> bool:
    return option.client_side_draft is None or bool(permit.usable((option.client_side_draft.route,)))


def _with_client_draft(
    option: RouteOption, draft: RouteOption, row: DraftPairFacts, strategy: Strategy, *, greedy: bool = False
) -> RouteOption:
    rates: dict[PromptTask, float] = dict(row.acceptance)
    return RouteOption(
        option.route,
        option.provider,
        option.model,
        local=option.local,
        quality=option.quality,
        tariff=option.tariff,
        scale=option.scale,
        draft=draft.route,
        acceptance=tuple(rates.items()),
        client_side_draft=ClientSideDraft(draft.route, strategy, draft.tariff, draft.local, greedy),
        context=option.context,
        published_context=option.published_context,
    )
