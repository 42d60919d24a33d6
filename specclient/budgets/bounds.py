"""The upper bound of a call, from its request: tokens, and dollars if a price is known.

The tokens of the prompt are counted; an estimated count is raised by a quarter. The length of the answer is
limited by the request (``max_tokens`` and similar, for each of ``n`` choices, plus the whole ``prediction``,
whose rejected tokens are billed in addition). If the request sets no limit, the bound is the longest of the
route's newest answers plus a quarter, and :data:`ANSWER_TOKENS` before the first answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING
from functools import partial
from typing import Any, Protocol

from specclient import tokens
from specclient.budgets.tables import CallBound
from specclient.prices.billing import BillingContext, bill
from specclient.prices.prices import Prices
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import NANO, Usage

__all__ = ["ANSWER_TOKENS", "RouteHistory", "answer_bound", "bound_of"]

#: Bound of an answer, in tokens, for a request without a limit on a route without earlier answers.
ANSWER_TOKENS = 4096
_MARGIN = 1.25
_MAX = 10**17

#: Parameters that limit the answer, by operation counted in tokens of text.
_BOUNDS: Mapping[str, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "completion": ("max_tokens",),
    "response": ("max_output_tokens",),
}
_WITHOUT_ANSWER = ("embedding", "moderation")


class ExpectedCall(Protocol):
    """The forecast of the next call on a route."""

    @property
    def completion_tokens(self) -> int:
        """Tokens of the answer."""
        ...

    @property
    def latency_s(self) -> float | None:
        """Seconds until it ends."""
        ...

    @property
    def engine_s(self) -> float | None:
        """Seconds of the local engine."""
        ...


class RouteHistory(Protocol):
    """The newest finished calls of each route."""

    def longest(self, route: str) -> int | None:
        """Return the tokens of the route's longest answer, None without any."""
        ...

    def predict(self, route: str, *, max_tokens: int | None = None) -> ExpectedCall:
        """Forecast the next call on a route."""
        ...


def bound_of(
    request: Request, route: Decision, prices: Prices, history: RouteHistory, price_provider: str | None
) -> CallBound:
    """Return the upper bound of a call. The first call may load a tokenizer: do not run it on an event loop.

    Args:
        history: limits answers that the request does not limit, and gives the pace of an engine.
        price_provider: as in :meth:`specclient.prices.prices.Prices.price`.
    """
    quote_for = partial(prices.quote, route.provider, route.model, price_provider=price_provider)
    if request.operation not in _BOUNDS and request.operation not in _WITHOUT_ANSWER:
        return CallBound(
            None, 0, 0, priced=quote_for() is not None
        )  # images and audio are not counted in tokens of text
    count = tokens.count_prompt(request, route.model)
    prompt = min(math.ceil(count.tokens * _MARGIN) if count.estimated else count.tokens, _MAX)
    bound = answer_bound(request, route.model)
    if bound is None:
        longest = history.longest(route.chosen)
        completion = math.ceil(longest * _MARGIN) if longest else ANSWER_TOKENS
    else:
        completion = min(bound, _MAX)
    without_cost = CallBound(None, prompt, completion, bounded=bound is not None)
    quote = quote_for(prompt=prompt)
    if quote is None:
        return replace(without_cost, priced=False)
    context = (
        _billing_context(history, route.chosen, completion) if quote.rates.per_hour else BillingContext()
    )
    dollars = bill(Usage(prompt=prompt, completion=completion), quote, context).total
    if dollars is None:
        return without_cost
    return replace(without_cost, nano=min(int((dollars * NANO).to_integral_value(ROUND_CEILING)), _MAX))


def answer_bound(request: Request, model: str) -> int | None:
    """Return the largest number of tokens of an answer in text, None if the request sets no limit."""
    if request.operation in _WITHOUT_ANSWER:
        return 0
    params = {**request.params, **request.options.body}
    bounds = [params.get(name) for name in _BOUNDS[request.operation]]
    bound = next((b for b in bounds if isinstance(b, int) and b >= 0), None)
    if bound is None:
        return None
    choices = [params.get(name) for name in ("n", "best_of")]
    times = max([1, *(c for c in choices if isinstance(c, int))])
    return bound * times + _prediction_tokens(params.get("prediction"), model)


def _prediction_tokens(prediction: Any, model: str) -> int:
    """Return the tokens of a prediction, all of which may be rejected."""
    if not isinstance(prediction, Mapping):
        return 0
    message = {"role": "assistant", "content": prediction.get("content")}
    return tokens.count_messages([message], model).tokens


def _billing_context(history: RouteHistory, route: str, completion: int) -> BillingContext:
    """Return the seconds that an answer of ``completion`` tokens takes at the pace of the newest calls."""
    forecast = history.predict(route)
    ratio = completion / max(forecast.completion_tokens, 1)
    engine_s, latency_s = forecast.engine_s, forecast.latency_s
    return BillingContext(
        engine_s=None if engine_s is None else engine_s * ratio,
        latency_s=None if latency_s is None else latency_s * ratio,
    )
