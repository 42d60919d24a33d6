"""Turn a request into the most that its call may come to: tokens, and dollars where a price is known.

The prompt is counted, with a quarter added where the count is an estimate. The answer is bounded by what the
request allows (``max_tokens`` and its kin, for each of ``n`` choices, and the whole ``prediction``, of which
rejected tokens are billed beside). A request that sets no bound counts as the longest answer of the route's
newest calls and a quarter, and as :data:`ANSWER_TOKENS` before the first.
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

#: Tokens of an answer that nothing bounds, on a route that has not answered yet.
ANSWER_TOKENS = 4096
_MARGIN = 1.25
_MOST = 10**17

#: What bounds the answers of each operation that is counted in tokens of text.
_BOUNDS: Mapping[str, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "completion": ("max_tokens",),
    "response": ("max_output_tokens",),
}
_WITHOUT_ANSWER = ("embedding", "moderation")


class ExpectedCall(Protocol):
    """What the next call on a route is expected to take."""

    @property
    def completion_tokens(self) -> int:
        """Length of its answer."""
        ...

    @property
    def latency_s(self) -> float | None:
        """Seconds to its end."""
        ...

    @property
    def engine_s(self) -> float | None:
        """Seconds of the local engine."""
        ...


class RouteHistory(Protocol):
    """The newest finished calls of each route."""

    def longest(self, route: str) -> int | None:
        """Return the tokens of the longest answer among them, None without any."""
        ...

    def predict(self, route: str, *, max_tokens: int | None = None) -> ExpectedCall:
        """Forecast the next call on a route."""
        ...


def bound_of(
    request: Request, route: Decision, prices: Prices, past: RouteHistory, price_provider: str | None
) -> CallBound:
    """Return the most that a call may come to; takes a while at first, so not on an event loop.

    Args:
        past: bounds answers that the request does not, and tells how long an engine works on them.
        price_provider: as in :meth:`specclient.prices.prices.Prices.price`.
    """
    quoted = partial(prices.quote, route.provider, route.model, price_provider=price_provider)
    if request.operation not in _BOUNDS and request.operation not in _WITHOUT_ANSWER:
        return CallBound(None, 0, 0, priced=quoted() is not None)  # images, sound: not counted in text
    count = tokens.count_prompt(request, route.model)
    prompt = min(math.ceil(count.tokens * _MARGIN) if count.estimated else count.tokens, _MOST)
    bound = answer_bound(request, route.model)
    if bound is None:
        longest = past.longest(route.chosen)
        completion = math.ceil(longest * _MARGIN) if longest else ANSWER_TOKENS
    else:
        completion = min(bound, _MOST)
    size = CallBound(None, prompt, completion, bounded=bound is not None)
    quote = quoted(prompt=prompt)
    if quote is None:
        return replace(size, priced=False)
    work = _work(past, route.chosen, completion) if quote.rates.per_hour else BillingContext()
    dollars = bill(Usage(prompt=prompt, completion=completion), quote, work).total
    if dollars is None:
        return size
    return replace(size, nano=min(int((dollars * NANO).to_integral_value(ROUND_CEILING)), _MOST))


def answer_bound(request: Request, model: str) -> int | None:
    """Return the most tokens that an answer in text may have, None where the request does not say."""
    if request.operation in _WITHOUT_ANSWER:
        return 0
    given = {**request.params, **request.options.body}
    bounds = [given.get(name) for name in _BOUNDS[request.operation]]
    bound = next((b for b in bounds if isinstance(b, int) and b >= 0), None)
    if bound is None:
        return None
    choices = [given.get(name) for name in ("n", "best_of")]
    times = max([1, *(c for c in choices if isinstance(c, int))])
    return bound * times + _predicted(given.get("prediction"), model)


def _predicted(prediction: Any, model: str) -> int:
    """Return the tokens of a prediction, all of which may be rejected."""
    if not isinstance(prediction, Mapping):
        return 0
    message = {"role": "assistant", "content": prediction.get("content")}
    return tokens.count_messages([message], model).tokens


def _work(past: RouteHistory, route: str, completion: int) -> BillingContext:
    """Return how long an answer of so many tokens takes, by the pace of the route's newest calls."""
    likely = past.predict(route)
    longer = completion / max(likely.completion_tokens, 1)
    engine_s, latency_s = likely.engine_s, likely.latency_s
    return BillingContext(
        engine_s=None if engine_s is None else engine_s * longer,
        latency_s=None if latency_s is None else latency_s * longer,
    )
