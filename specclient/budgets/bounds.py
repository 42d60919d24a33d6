"""The upper bound of a call, from its request: tokens, and dollars if a price is known.

The tokens of the prompt are counted; an estimated count is raised by a quarter. Parts that cannot be counted
(files, audio, earlier turns that the provider stores) count as the model's whole context. The length of the
answer is limited by the request: the largest of ``max_tokens`` and similar, for each of prompts × ``n`` ×
``best_of`` choices, plus the whole ``prediction``, whose rejected tokens are billed in addition. If the
request sets no limit, the bound of a choice is the longest of the route's newest answers plus a quarter, and
:data:`ANSWER_TOKENS` before the first answer. Images and speech are bounded by
:mod:`specclient.budgets.media`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING
from functools import partial
from typing import Any, Protocol

from specclient import tokens
from specclient.budgets.media import MEDIA_BOUNDS, count_of
from specclient.budgets.provider_work import provider_work
from specclient.budgets.tables import CallBound
from specclient.prices.billing import BillingContext, bill
from specclient.prices.prices import Prices
from specclient.prices.vertex import dearest_traffic
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import NANO, Usage

__all__ = ["ANSWER_TOKENS", "RouteHistory", "answer_bound", "bound_of"]

#: Bound of an answer, in tokens, for a request without a limit on a route without earlier answers.
ANSWER_TOKENS = 4096
_MARGIN = 1.25
#: Margin of a prompt with an image of unknown size, which counts as 1024 × 1024 pixels: the most tiles of an
#: image are twice as many.
_REMOTE_MARGIN = 2.5
_MAX = 10**17

#: Parameters that limit the answer, by operation counted in tokens of text.
_BOUNDS: Mapping[str, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "completion": ("max_tokens",),
    "response": ("max_output_tokens",),
}
_WITHOUT_ANSWER = ("embedding", "moderation")
#: Limits of some servers, which raise the bound but do not set one: other servers ignore them.
_OTHER_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "max_new_tokens", "n_predict")

#: Parameters whose tokens only the provider knows, and parts of messages and items of that kind.
_STORED = ("previous_response_id", "conversation", "prompt")
_UNCOUNTED_PARTS = frozenset({"file", "input_file", "document", "input_audio", "item_reference", "video_url"})
#: Blocks of Bedrock's Converse API of that kind, which have their name as the only field.
_UNCOUNTED_BLOCKS = ("audio", "document", "image", "searchResult", "toolResult", "video")
#: Fields of ``extra_body`` with a limit of the answer in a vendor's own form, and the limit's name.
_NESTED_LIMITS = (
    ("additionalModelRequestFields", "max_tokens"),  # Bedrock
    ("inferenceConfig", "maxTokens"),
    ("generationConfig", "maxOutputTokens"),  # Gemini
)
#: Fields that have a part of the prompt written to a cache: Anthropic's, OpenAI's, Bedrock's.
_CACHE_MARKS = ("cache_control", "prompt_cache_breakpoint", "cachePoint")
#: Parameters with a prediction, which is counted with the answer.
_PREDICTIONS = ("prediction", "speculation")


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


def bound_of(
    request: Request, route: Decision, prices: Prices, history: RouteHistory, price_provider: str | None
) -> CallBound:
    """Return the upper bound of a call. The first call may load a tokenizer: do not run it on an event loop.

    Args:
        history: limits answers that the request does not limit, and gives the pace of an engine.
        price_provider: as in :meth:`specclient.prices.prices.Prices.price`.
    """
    quote_for = partial(
        prices.quote,
        route.provider,
        route.model,
        price_provider=price_provider,
        traffic=_bedrock_tier(request) if price_provider == "aws" else dearest_traffic(request),
    )
    usage, bounded, unbounded = _most_used(request, route, history, price_provider)
    prompt, completion = usage.prompt or 0, usage.completion or 0
    without_cost = CallBound(None, prompt, completion, bounded=bounded, unbounded=unbounded)
    quote = quote_for(prompt=prompt)
    if quote is None:
        return replace(without_cost, priced=False)
    if quote.rates.input is None and not quote.rates.per_hour:  # the same for every call
        without_cost = replace(without_cost, unbounded=None)
    elif usage.prompt is None:
        return without_cost
    context = _billing_context(history, route.chosen, usage) if quote.rates.per_hour else BillingContext()
    dollars = bill(usage, quote, context).total
    if dollars is None:
        return without_cost
    return replace(without_cost, nano=min(int((dollars * NANO).to_integral_value(ROUND_CEILING)), _MAX))


def _most_used(
    request: Request, route: Decision, history: RouteHistory, price_provider: str | None
) -> tuple[Usage, bool, str | None]:
    """Return the most that a call may use, whether the request limits it, and why it has no bound."""
    operation, params = request.operation, {**request.params, **request.options.body}
    if operation == "realtime":
        return _most_of_realtime(params, route, history, price_provider)
    if operation not in _BOUNDS and operation not in _WITHOUT_ANSWER:
        find_usage = MEDIA_BOUNDS.get(operation)
        usage = None if find_usage is None else find_usage(params, route.model)
        if usage is None:
            return Usage(), True, f"what a call of {request.method.name} may take is not known in advance"
        return _capped(usage), True, None
    unbounded = provider_work(params)
    count = tokens.count_prompt(request, route.model)
    parts = list(_parts(operation, params))
    margin = _REMOTE_MARGIN if any(map(_is_remote_image, parts)) else _MARGIN
    prompt = math.ceil(count.tokens * margin) if count.estimated else count.tokens
    prompt += _extra_tokens(request.options.body, route.model)
    if (uncounted := _uncounted(operation, params, parts)) is not None:
        window = _context_window(price_provider, route.model)
        prompt = max(prompt, window or 0)
        if window is None and unbounded is None:
            unbounded = f"the tokens of {uncounted} cannot be counted, and the model's context is not known"
    bound = answer_bound(request, route.model)
    if bound is None:
        longest = history.longest(route.chosen)
        completion = math.ceil(longest * _MARGIN) if longest else ANSWER_TOKENS
        completion *= _choices(operation, params)
    else:
        completion = bound
    usage = Usage(prompt=prompt, completion=completion)
    modalities = params.get("modalities")
    if params.get("audio") or (isinstance(modalities, list | tuple) and "audio" in modalities):
        usage = replace(usage, audio_completion=completion)
    if uncounted == "input_audio":
        usage = replace(usage, audio_prompt=prompt)
    cached = [params.get(name) for name in ("messages", "tools", "system", "toolConfig")]
    if params.get("cache_control") or any(_mentions(cached, name) for name in _CACHE_MARKS):
        usage = replace(usage, cache_write=prompt, cache_write_1h=prompt)
    return _capped(usage), bound is not None, unbounded


def _most_of_realtime(
    params: Mapping[str, Any], route: Decision, history: RouteHistory, price_provider: str | None
) -> tuple[Usage, bool, str | None]:
    """Return the same as :func:`_most_used` for a response of a Realtime session.

    The provider holds the conversation, so the prompt counts as the model's whole context: all of it audio
    once the session has heard some, as audio has the higher price.
    """
    window = _context_window(price_provider, route.model)
    limit = count_of(params.get("max_output_tokens", params.get("max_response_output_tokens")))
    longest = history.longest(route.chosen)
    completion = limit or (math.ceil(longest * _MARGIN) if longest else ANSWER_TOKENS)
    usage = Usage(
        prompt=window or 0,
        completion=completion,
        audio_prompt=window if params.get("hears") else None,
        audio_completion=completion if params.get("speaks") else None,
    )
    unbounded = (
        None if window else "the session's tokens cannot be counted, and the model's context is not known"
    )
    return _capped(usage), bool(limit), unbounded


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


def answer_bound(request: Request, model: str) -> int | None:
    """Return the largest number of tokens of an answer in text, None if the request sets no limit."""
    operation = request.operation
    if operation in _WITHOUT_ANSWER:
        return 0
    params = {**request.params, **request.options.body}
    least = 0 if operation == "completion" else 1  # elsewhere servers take 0 as no limit
    own = [n for name in _BOUNDS[operation] if (n := count_of(params.get(name))) is not None and n >= least]
    if not own:
        return None
    others = [count_of(params.get(name)) or 0 for name in _OTHER_LIMITS]
    for field, name in _NESTED_LIMITS:
        if isinstance(nested := params.get(field), Mapping):
            others.append(count_of(nested.get(name)) or 0)
    bound = max(*own, *others)
    return bound * _choices(operation, params) + _prediction_tokens(params.get("prediction"), model)


def _bedrock_tier(request: Request) -> str | None:
    """Return the service tier that a request asks Bedrock for, whose price may differ; None by default."""
    own = request.options.body.get("serviceTier")
    tier = own.get("type") if isinstance(own, Mapping) else request.params.get("service_tier")
    return tier if isinstance(tier, str) and tier != "auto" else None


def _choices(operation: str, params: Mapping[str, Any]) -> int:
    """Return the number of answers that are generated: prompts × ``n`` × ``best_of``."""
    times = 1
    for name in ("n", "best_of"):
        times *= max(count_of(params.get(name)) or 1, 1)
    prompts = params.get("prompt") if operation == "completion" else None
    if isinstance(prompts, list | tuple) and not all(isinstance(each, int) for each in prompts):
        times *= len(prompts)
    return times


def _parts(operation: str, params: Mapping[str, Any]) -> Iterator[Mapping[Any, Any]]:
    """Yield the messages or items of a request, and their parts."""
    messages = params.get("input" if operation == "response" else "messages")
    for message in messages if isinstance(messages, list | tuple) else ():
        if isinstance(message, Mapping):
            yield message
            for name in ("content", "output"):
                content = message.get(name)
                if isinstance(content, list | tuple):
                    yield from (part for part in content if isinstance(part, Mapping))


def _uncounted(operation: str, params: Mapping[str, Any], parts: Iterable[Mapping[Any, Any]]) -> str | None:
    """Return the name of a parameter or part whose tokens cannot be counted; None if there is none."""
    if operation == "response" and (stored := next((n for n in _STORED if params.get(n)), None)):
        return stored
    for part in parts:
        kind = part.get("type")
        if isinstance(kind, str) and kind in _UNCOUNTED_PARTS:
            return kind
        if operation == "chat" and part.get("audio"):
            return "audio"
        if kind is None and (block := next((name for name in _UNCOUNTED_BLOCKS if name in part), None)):
            return block
    return None


def _is_remote_image(part: Mapping[Any, Any]) -> bool:
    """Return whether a part is an image whose size is not known here."""
    if part.get("type") not in ("image_url", "input_image", "image"):
        return False
    place = part.get("image_url") or part.get("source")
    if isinstance(place, Mapping):
        place = place.get("url") or place.get("data")
    return not isinstance(place, str) or place.startswith("http")


def _extra_tokens(body: Mapping[str, Any], model: str) -> int:
    """Return the tokens of the texts in fields outside the API, which may become part of the prompt."""
    left = [value for name, value in body.items() if name not in _PREDICTIONS]
    texts: list[str] = []
    while left:
        each = left.pop()
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, Mapping):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
    return math.ceil(tokens.count_text("\n".join(texts), model).tokens * _MARGIN) if texts else 0


def _context_window(price_provider: str | None, model: str) -> int | None:
    """Return a model's context in tokens; None where unknown."""
    if price_provider is None:
        return None
    from specclient.prices.catalogue import find_model  # noqa: PLC0415 - loads the catalogue

    found = find_model(price_provider, model)
    return None if found is None else found.model.context_window


def _mentions(value: Any, name: str) -> bool:
    """Return whether a mapping anywhere in a value has a key."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            if name in each:
                return True
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
    return False


def _prediction_tokens(prediction: Any, model: str) -> int:
    """Return the tokens of a prediction, all of which may be rejected."""
    if not isinstance(prediction, Mapping):
        return 0
    message = {"role": "assistant", "content": prediction.get("content")}
    return tokens.count_messages([message], model).tokens


def _billing_context(history: RouteHistory, route: str, usage: Usage) -> BillingContext:
    """Return the seconds that a call takes at the pace of the newest calls, by the tokens of its answer.

    Without an answer, as for embeddings, they are by the tokens of the prompt on which an engine works.
    """
    completion = usage.completion or 0
    pace = None if completion else history.prompt_pace(route)
    if pace is not None:
        return BillingContext(engine_s=pace * (usage.prompt or 0) * _MARGIN)
    forecast = history.predict(route)
    ratio = completion / max(forecast.completion_tokens, 1)
    engine_s, latency_s = forecast.engine_s, forecast.latency_s
    return BillingContext(
        engine_s=None if engine_s is None else engine_s * ratio,
        latency_s=None if latency_s is None else latency_s * ratio,
    )
