"""Turn what calls have cost, and may yet cost, into whether one more fits into a budget."""

from __future__ import annotations

from decimal import Decimal

from specclient import tokens
from specclient.client.core import ClientCore
from specclient.errors import BudgetExceededError, ConfigurationError, OpenAIError
from specclient.providers.endpoint import Endpoint
from specclient.routing.learn.ledger_forecast import COMPLETION_TOKENS
from specclient.routing.router import AUTO
from specclient.types.call import Call
from specclient.types.request import Request

_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class BatchBudget:
    """What may be spent on a batch.

    A line is estimated by its prompt's tokens and the longest answer that it allows, else the mean of the
    answers so far (256 tokens before the first); where there is no price by tokens, as with the local engine,
    by the mean cost of the lines so far. Before that is known, lines go one by one. An answer that is longer
    than was estimated can pass the limit by so much.

    Args:
        limit: dollars; None for no limit.
        spent: dollars before this run.
    """

    def __init__(self, limit: Decimal | None, spent: Decimal, core: ClientCore) -> None:
        self.limit = limit
        self.spent = spent
        self.unpriced = 0
        self._core = core
        self._reserved = Decimal(0)
        self._calls = 0
        self._paid = Decimal(0)
        self._told = self._tokens = 0

    def estimate(self, request: Request) -> Decimal | None:
        """Return the dollars that a call may cost; None where nothing is known yet.

        Raises:
            ConfigurationError: there is a limit, and a model without a price, so that it could not be kept.
        """
        if self.limit is None:
            return Decimal(0)
        router = self._core.pipeline.router
        try:
            routed = router.kind(request) == AUTO
            route = None if routed else router.decide(request)
            place = None if route is None else router.destinations.get(route.provider)
        except OpenAIError:  # the call itself will say so, and cost nothing
            return Decimal(0)
        if route is not None and isinstance(place, Endpoint):
            return self._by_tokens(request, route.provider, route.model, place.price_provider)
        return self._paid / self._calls if self._calls else None

    def _by_tokens(self, request: Request, provider: str, model: str, listed: str | None) -> Decimal:
        given = {**request.params, **request.options.body}
        longest = next((given[name] for name in _LIMITS if isinstance(given.get(name), int)), None)
        if longest is None:
            longest = self._tokens // self._told if self._told else COMPLETION_TOKENS
        if request.operation == "embedding":
            longest = 0
        prompt = tokens.count_prompt(request, model).tokens
        prices = self._core.shared.prices
        cost = prices.predict(prompt, longest, provider, model, price_provider=listed)
        if cost is None:
            route = f"{provider}/{model}"
            raise ConfigurationError(
                f"no price is known for {route}, so a limit of ${self.limit} could not be kept; set "
                f'[prices."{route}"] in specclient.toml, or leave the limit out'
            )
        return cost

    def fits(self, estimate: Decimal | None, *, alone: bool) -> bool:
        """Tell whether a call may be sent now; ``alone``: none is running whose cost would tell more.

        Raises:
            BudgetExceededError: it does not fit, and will not.
        """
        if self.limit is None:
            return True
        if self.spent + self._reserved + (estimate or 0) <= self.limit and self.spent < self.limit:
            return estimate is not None or alone
        if alone:
            more = f", and the next line may take ${estimate:.6f}" if estimate else ""
            raise BudgetExceededError(
                f"the batch has spent ${self.spent:.6f} of ${self.limit}{more}; the rest of its lines were "
                "not sent: run it again with a larger limit to go on"
            )
        return False

    def reserve(self, estimate: Decimal | None) -> None:
        """Count a call that is being sent."""
        self._reserved += estimate or 0

    def settle(self, estimate: Decimal | None, call: Call | None) -> None:
        """Count what a call has cost; one that tells no cost counts as its estimate, one that failed nothing.

        Raises:
            ConfigurationError: there is a limit, and neither is known.
        """
        self._reserved -= estimate or 0
        if call is None:
            return
        if call.usage.completion is not None:
            self._told, self._tokens = self._told + 1, self._tokens + call.usage.completion
        cost = call.cost.total
        if cost is not None:
            self._calls, self._paid = self._calls + 1, self._paid + cost
            self.spent += cost
            return
        self.unpriced += 1
        if self.limit is not None:
            if estimate is None:
                raise ConfigurationError(
                    f"a call of {call.route.chosen} tells no cost ({call.cost.source}), so a limit of "
                    f"${self.limit} cannot be kept; leave it out"
                )
            self.spent += estimate
