"""The budget of a batch: estimates of lines, reservations and spending."""

from __future__ import annotations

from decimal import Decimal

from specclient import tokens
from specclient.client.core import ClientCore
from specclient.errors import BudgetExceededError, ConfigurationError, OpenAIError
from specclient.prices.service_tiers import requested_tier
from specclient.providers.endpoint import Endpoint
from specclient.routing.learn.ledger_forecast import COMPLETION_TOKENS
from specclient.routing.router import AUTO
from specclient.types.call import Call
from specclient.types.request import Request

_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class BatchBudget:
    """The budget of a batch.

    The estimate of a line uses its prompt tokens and its maximum answer length or, without a maximum, the
    mean length of the answers so far (256 tokens before the first one). For models without a price per token,
    such as local ones, it is the mean cost of the lines so far; until that is known, lines are sent one by
    one. An answer that is longer than estimated can exceed the limit.

    Args:
        limit: dollars; None for no limit.
        spent: dollars spent by earlier runs.
        core: supplies the router and the prices.
        tier: the service tier of all lines; None for the one that each requests.
    """

    def __init__(
        self, limit: Decimal | None, spent: Decimal, core: ClientCore, *, tier: str | None = None
    ) -> None:
        self.limit = limit
        self._tier = tier
        self.spent = spent
        self.unpriced = 0
        self._core = core
        self._reserved = Decimal(0)
        self._calls = 0
        self._paid = Decimal(0)
        self._answers = self._tokens = 0

    def estimate(self, request: Request) -> Decimal | None:
        """Return the estimated cost of a call in dollars; None if it is not known yet.

        Raises:
            ConfigurationError: there is a limit, but no price for the model.
        """
        if self.limit is None:
            return Decimal(0)
        router = self._core.pipeline.router
        try:
            routed = router.kind(request) == AUTO
            route = None if routed else router.decide(request)
            place = None if route is None else router.destinations.get(route.provider)
        except OpenAIError:  # the call raises it again, and costs nothing
            return Decimal(0)
        if route is not None and isinstance(place, Endpoint):
            return self._by_tokens(request, route.provider, route.model, place.price_provider)
        return self._paid / self._calls if self._calls else None

    def _by_tokens(self, request: Request, provider: str, model: str, listed: str | None) -> Decimal:
        given = {**request.params, **request.options.body}
        longest = next((given[name] for name in _LIMITS if isinstance(given.get(name), int)), None)
        if longest is None:
            longest = self._tokens // self._answers if self._answers else COMPLETION_TOKENS
        if request.operation == "embedding":
            longest = 0
        prompt = tokens.count_prompt(request, model).tokens
        prices = self._core.shared.prices
        cost = prices.predict(
            prompt,
            longest,
            provider,
            model,
            price_provider=listed,
            tier=self._tier or requested_tier(request),
        )
        if cost is None:
            route = f"{provider}/{model}"
            raise ConfigurationError(
                f"no price is known for {route}, so a limit of ${self.limit} cannot be enforced; set "
                f'[prices."{route}"] in specclient.toml, or omit the limit'
            )
        return cost

    def fits(self, estimate: Decimal | None, *, alone: bool) -> bool:
        """Return whether a call may be sent now.

        Args:
            estimate: the result of :meth:`estimate`.
            alone: whether no other call is in flight.

        Raises:
            BudgetExceededError: the call does not fit, and no call in flight can change that.
        """
        if self.limit is None:
            return True
        if self.spent + self._reserved + (estimate or 0) <= self.limit and self.spent < self.limit:
            return estimate is not None or alone
        if alone:
            more = f", and the next line may cost ${estimate:.6f}" if estimate else ""
            raise BudgetExceededError(
                f"the batch has spent ${self.spent:.6f} of ${self.limit}{more}; the remaining lines were "
                "not sent; to resume, run it again with a higher limit"
            )
        return False

    def reserve(self, estimate: Decimal | None) -> None:
        """Reserve the estimate of a call that is sent."""
        self._reserved += estimate or 0

    def settle(self, estimate: Decimal | None, call: Call | None) -> None:
        """Replace a reservation by the cost of the call.

        A call of unknown cost counts as its estimate; a failed call counts as 0.

        Args:
            estimate: the reserved amount.
            call: the record of the call; None if it failed.

        Raises:
            ConfigurationError: there is a limit, and neither cost nor estimate is known.
        """
        self._reserved -= estimate or 0
        if call is None:
            return
        if call.usage.completion is not None:
            self._answers, self._tokens = self._answers + 1, self._tokens + call.usage.completion
        cost = call.cost.total
        if cost is not None:
            self._calls, self._paid = self._calls + 1, self._paid + cost
            self.spent += cost
            return
        self.unpriced += 1
        if self.limit is not None:
            if estimate is None:
                raise ConfigurationError(
                    f"the cost of a call to {call.route.chosen} is unknown ({call.cost.source}), so a limit "
                    f"of ${self.limit} cannot be enforced; omit it"
                )
            self.spent += estimate
