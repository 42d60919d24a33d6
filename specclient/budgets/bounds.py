"""The upper bound of a call, from its request: tokens, and dollars if a price is known.

The tokens of the prompt are counted. An estimated count is raised by a quarter. For budgets that must hold
for adversarial prompts, it is replaced by the number of bytes, of which every token has at least one. Parts
that cannot be counted (files, audio, earlier turns that the provider stores) count as the model's whole
context. The answer is bounded by :mod:`specclient.budgets.answers`, images and speech by
:mod:`specclient.budgets.media`, and engine time by the pace of the route's newest answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING
from functools import partial
from typing import Any, NamedTuple, Protocol

from specclient.budgets.accounts import CallBound
from specclient.budgets.answers import (
    LIMITS,
    WITHOUT_ANSWER,
    answer_bound,
    assumed_limit,
    choices_of,
    fields_in,
    other_limit,
)
from specclient.budgets.media import MEDIA_BOUNDS, count_of
from specclient.budgets.prompts import most_of_prompt, prompt_parts, uncounted_part
from specclient.budgets.provider_work import provider_work, searching_model, stored_field
from specclient.prices import vertex
from specclient.prices.billing import BillingContext, bill
from specclient.prices.prices import Prices
from specclient.prices.service_tiers import dearer_tier
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import NANO, Usage

__all__ = ["EngineContext", "RouteHistory", "bound_of"]

_MARGIN = 1.25
_MAX = 10**17
#: Assumed seconds per answer token and per prompt token of an engine that has not answered yet: those of a
#: model of 8 billion parameters on a few processor cores.
_ANSWER_TOKEN_S, _PROMPT_TOKEN_S = 0.25, 0.025


#: Fields by which a part of the prompt is written to a cache: Anthropic's, OpenAI's, Bedrock's.
_CACHE_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint", "cachePoint"})

EngineContext = Callable[[], int | None]
"""Returns the context of an engine's model, in tokens; None where unknown. It may read a file."""


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

    def prompt_pace(self, route: str) -> float | None:
        """Return an engine's seconds per prompt token in calls without an answer, None without any."""
        ...

    def predict(self, route: str, *, max_tokens: int | None = None) -> ExpectedCall:
        """Forecast the next call on a route."""
        ...


class _Most(NamedTuple):
    """The most that a call may use.

    Attributes:
        usage: the tokens.
        limit: of one answer, None if the request limits its answers.
        unbounded: why the call may use more, None if it may not.
    """

    usage: Usage
    limit: int | None = None
    unbounded: str | None = None


def bound_of(
    request: Request,
    route: Decision,
    prices: Prices,
    history: RouteHistory,
    price_provider: str | None,
    *,
    engine_context: EngineContext | None = None,
    strict: bool = False,
    tier: str | None = None,
) -> CallBound:
    """Return the upper bound of a call. The first call may load a tokenizer: do not run it on an event loop.

    Args:
        history: earlier answers, for requests without a limit, and for the pace of an engine.
        price_provider: as in :meth:`specclient.prices.prices.Prices.price`.
        engine_context: of the engine that serves the call; None for a hosted provider.
        strict: whether an estimated prompt counts as its bytes.
        tier: the service tier that will serve the call; the standard price counts if it has none. None for
            the dearest one that may serve it.
    """
    quote_for = partial(prices.quote, route.provider, route.model, price_provider=price_provider)
    is_text = request.operation in LIMITS or request.operation in WITHOUT_ANSWER
    if request.operation == "realtime":
        most = _most_of_realtime(request.params, route, prices.context_window(price_provider, route.model))
    elif is_text:
        window = (
            prices.context_window(price_provider, route.model) if engine_context is None else engine_context()
        )
        longest = history.longest(route.chosen)
        most = _most_of_text(
            request, route.model, longest, window, in_engine=engine_context is not None, strict=strict
        )
    else:
        most = _most_of_media(request, route)
    usage = _capped(most.usage)
    prompt, completion = usage.prompt or 0, usage.completion or 0
    without_cost = CallBound(None, prompt, completion, limit=most.limit, unbounded=most.unbounded)
    quote = quote_for(prompt=prompt, traffic=tier or _dearest_tier(request, price_provider))
    if quote is None and tier is not None:
        quote = quote_for(prompt=prompt)
    if quote is None or (quote.for_units_alone and is_text):
        return replace(without_cost, priced=False)
    if quote.rates.input is None and not quote.rates.per_hour and not quote.rates.by_units_alone:
        without_cost = replace(without_cost, unbounded=None)  # the same for every call
    elif usage.prompt is None:
        return without_cost
    context = _billing_context(history, route.chosen, usage) if quote.rates.per_hour else BillingContext()
    dollars = bill(usage, quote, context).total
    if dollars is None:
        why = f"the maximum cost of a call of {request.method.name} is not known in advance"
        return replace(without_cost, unbounded=without_cost.unbounded or why)
    return replace(without_cost, nano=min(int((dollars * NANO).to_integral_value(ROUND_CEILING)), _MAX))


def _most_of_media(request: Request, route: Decision) -> _Most:
    params = {**request.params, **request.options.body}
    find_usage = MEDIA_BOUNDS.get(request.operation)
    usage = None if find_usage is None else find_usage(params, route.model)
    if usage is None:
        return _Most(
            Usage(), unbounded=f"the maximum cost of a call of {request.method.name} is not known in advance"
        )
    return _Most(usage, unbounded=provider_work(params))


def _most_of_text(
    request: Request, model: str, longest: int | None, window: int | None, *, in_engine: bool, strict: bool
) -> _Most:
    """Return the most that a call with an answer in text may use.

    An engine's answer without a limit may fill the context, and counts as such: its limit is unknown until
    the prompt is tokenised.

    Args:
        longest: tokens of the route's longest answer; None before the first.
        window: tokens of the model's context; None where unknown.
    """
    operation, params = request.operation, {**request.params, **request.options.body}
    unbounded = provider_work(params) or searching_model(model)
    parts = list(prompt_parts(operation, params))
    counted, prompt = most_of_prompt(request, parts, model, strict=strict)
    if window is not None:
        prompt = min(prompt, window)  # a longer one is refused by the provider
    if (
        uncounted := uncounted_part(operation, params, parts) or stored_field(request.options.body)
    ) is not None:
        prompt = max(prompt, window or 0)
        if window is None and unbounded is None:
            unbounded = f"the tokens of {uncounted} cannot be counted, and the model's context is not known"
    limit, completion = None, answer_bound(request, model)
    if completion is None and in_engine and window is not None and operation == "chat":
        completion = window * choices_of(request)
    elif completion is None:
        room = None if window is None else window - counted
        limit = assumed_limit(operation, model, longest, room)
        completion = max(limit, other_limit(request)) * choices_of(request)
    usage = Usage(prompt=prompt, completion=completion)
    modalities = params.get("modalities")
    if params.get("audio") or (isinstance(modalities, list | tuple) and "audio" in modalities):
        usage = replace(usage, audio_completion=completion)
    if uncounted == "input_audio":
        usage = replace(usage, audio_prompt=prompt)
    cached = [params.get(name) for name in ("messages", "tools", "system", "toolConfig")]
    if params.get("cache_control") or _mentions(cached, _CACHE_MARKS):
        usage = replace(usage, cache_write=prompt, cache_write_1h=prompt)
    return _Most(usage, limit, unbounded)


def _most_of_realtime(params: Mapping[str, Any], route: Decision, window: int | None) -> _Most:
    """Return the most that a response of a Realtime session may use.

    The provider holds the conversation, so the prompt counts as the model's whole context; once the session
    has received audio, all of it counts as audio, which has the higher price.
    """
    stated = max((count_of(params.get(name)) or 0 for name in LIMITS["realtime"]), default=0)
    session = count_of(params.get("session_limit")) or 0
    assumed = session if session > 0 else assumed_limit("realtime", route.model, None, None)
    limit = None if stated > 0 else assumed
    completion = stated if limit is None else limit
    usage = Usage(
        prompt=window or 0,
        completion=completion,
        audio_prompt=window if params.get("hears") else None,
        audio_completion=completion if params.get("speaks") else None,
    )
    unbounded = (
        None if window else "the session's tokens cannot be counted, and the model's context is not known"
    )
    return _Most(usage, limit, unbounded)


def _capped(usage: Usage) -> Usage:
    """Return a usage whose counts fit into the database."""
    counts = {name: value for name in _COUNTS if (value := getattr(usage, name)) is not None}
    if all(value <= _MAX for value in counts.values()):
        return usage
    capped: dict[str, Any] = {name: min(value, _MAX) for name, value in counts.items()}
    return replace(usage, **capped)


_COUNTS = (
    "prompt", "completion", "cache_write", "cache_write_1h", "audio_prompt", "image_prompt",
    "audio_completion", "image_completion",
)  # fmt: skip


def _dearest_tier(request: Request, price_provider: str | None) -> str | None:
    """Return the most expensive service tier by which a request may be served; None for the standard one."""
    if price_provider == "aws":
        return _bedrock_tier(request)
    return vertex.dearest_traffic(request) if price_provider in vertex.IDS else dearer_tier(request)


def _bedrock_tier(request: Request) -> str | None:
    """Return the service tier of a Bedrock request, which may have its own price; None by default."""
    own = request.options.body.get("serviceTier")
    tier = own.get("type") if isinstance(own, Mapping) else request.params.get("service_tier")
    return tier if isinstance(tier, str) and tier != "auto" else None


def _mentions(value: Any, names: frozenset[str]) -> bool:
    """Return whether a mapping anywhere in a value has one of the keys."""
    return any(key in names for key, _ in fields_in(value))


def _billing_context(history: RouteHistory, route: str, usage: Usage) -> BillingContext:
    """Return the seconds of a call at the pace of the route's newest calls, or at an assumed slow pace.

    For calls without an answer, such as embeddings, an engine's time follows from the tokens of the prompt.
    """
    completion = usage.completion or 0
    pace = None if completion else history.prompt_pace(route)
    if pace is not None:
        return BillingContext(engine_s=pace * (usage.prompt or 0) * _MARGIN)
    forecast = history.predict(route)
    ratio = completion / max(forecast.completion_tokens, 1)
    engine_s, latency_s = forecast.engine_s, forecast.latency_s
    if engine_s is None and latency_s is None:
        engine_s, ratio = completion * _ANSWER_TOKEN_S + (usage.prompt or 0) * _PROMPT_TOKEN_S, 1.0
    return BillingContext(
        engine_s=None if engine_s is None else engine_s * ratio,
        latency_s=None if latency_s is None else latency_s * ratio,
    )
