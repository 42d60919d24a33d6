"""Permissions and rate limits of keys, applied to requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace

from specclient.errors import NotFoundError
from specclient.routing.destinations import DestinationRegistry
from specclient.routing.router import AUTO
from specclient.runtime.event_loop import cancel_shield, run_in_thread
from specclient.serving.errors import ServingError
from specclient.serving.exchange import HTTPExchange
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.rate_limits import (
    LocalUsageMeter,
    UsageMeter,
    rate_limit_error,
    rate_limit_headers,
)
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.strategy import Strategy

__all__ = ["KeyLimiter", "authorized_request", "check_route"]

#: Tokens reserved for an answer without a maximum length.
ASSUMED_TOKENS = 1024
#: Operations whose tokens count.
_COUNTED = frozenset({"chat", "completion", "response", "embedding", "moderation"})
#: Fields with further models of a request, which some providers support and which are not checked.
_MORE_MODELS = ("models", "fallbacks")
_LIMITS = "x-ratelimit-"
_FREE = nullcontext()


def authorized_request(request: Request, key: StoredKey | None, places: DestinationRegistry) -> Request:
    """Check a key's permissions for a request, and add the key's tags.

    Args:
        request: the parsed request.
        key: the stored key; None permits everything.
        places: resolves the names of models.

    Returns:
        The request with the tags of the key.

    Raises:
        ServingError: 404 if the key may not use the model, 400 if a field names further models.
    """
    if key is None:
        return request
    named = {"model": request.model}
    if isinstance(request.strategy, Strategy) and request.strategy.draft:
        named["specclient.draft"] = request.strategy.draft
    for param, model in named.items():
        if not key.allows(names_of(model, places)):
            raise ServingError(
                404, f"model {model!r} does not exist, or this key may not use it", param, "model_not_found"
            )
    sent = {**request.params, **request.options.body}
    if key.models and (more := [name for name in _MORE_MODELS if name in sent]):
        raise ServingError(
            400, f"{more[0]} names further models, which a key with limited models may not use", more[0]
        )
    options = request.options
    return replace(request, options=replace(options, tags={**options.tags, **key.labels}))


def names_of(model: str, places: DestinationRegistry) -> Sequence[str]:
    """Return all names of a model: with its provider, and without it for the default provider."""
    if model == AUTO:
        return [AUTO]
    try:
        head, inner = places.split(model)
    except NotFoundError:
        return [model]
    return [f"{head}/{inner}", inner] if head == places.default else [f"{head}/{inner}"]


def check_route(key: StoredKey | None, route: str) -> None:
    """Refuse a route that calls no model to a key whose models or spending are limited.

    Jobs started by such routes (a batch, fine-tuning) are neither checked nor counted, and their data
    belong to all keys.

    Raises:
        ServingError: 403, the key is limited.
    """
    if key is not None and key.confined:
        raise ServingError(
            403,
            f"this key may not use {route}, because its models or its spending are limited",
            code="not_permitted",
        )


class KeyLimiter:
    """Applies the rate limits of keys.

    Args:
        places: resolves the names of models.
        meter: counts the use; the default counts in this process only.
    """

    def __init__(self, places: DestinationRegistry, meter: UsageMeter | None = None) -> None:
        self._places, self._meter = places, meter or LocalUsageMeter()

    def limit(self, exchange: HTTPExchange, request: Request) -> AbstractAsyncContextManager[None]:
        """Return a context that reserves a request's use of its key's limits, and corrects it at the end.

        Raises (on entry):
            ServingError: 429, a limit is reached.
        """
        key = exchange.key
        return _FREE if key is None or not key.paced else self._limit(exchange, key, request)

    @asynccontextmanager
    async def _limit(
        self, exchange: HTTPExchange, key: StoredKey, request: Request
    ) -> AsyncGenerator[None, None]:
        tokens = await self._tokens(key, request)
        exchange.limit_decision = decision = await self._meter.reserve(key, 1, tokens)
        if decision.slot is None:
            raise rate_limit_error(key, decision, 1, tokens)
        try:
            yield
        finally:
            if tokens and (more := _used_tokens(exchange.entry.calls, tokens) - tokens):
                with cancel_shield():
                    await self._meter.adjust(key, decision.slot, more)

    async def limit_headers(
        self, exchange: HTTPExchange, key: StoredKey, headers: dict[str, str]
    ) -> dict[str, str]:
        """Return response headers with the limits of a key instead of an upstream's limits."""
        if not key.paced:
            return headers
        own = rate_limit_headers(exchange.limit_decision or await self._meter.reserve(key, 0, 0))
        return {name: text for name, text in headers.items() if not name.startswith(_LIMITS)} | own

    async def close(self) -> None:
        """Close the meter."""
        await self._meter.close()

    async def _tokens(self, key: StoredKey, request: Request) -> int:
        """Return the maximum tokens of a request; 0 if they do not count."""
        limit = key.tokens_per_minute
        if limit is None or request.operation not in _COUNTED or request.content is not None:
            return 0
        model = names_of(request.model, self._places)[-1].partition("/")[2] or request.model
        return await run_in_thread(lambda: _max_tokens(request, model, limit))


def _max_tokens(request: Request, model: str, limit: int) -> int:
    from specclient import tokens  # noqa: PLC0415 - used only for keys with a token limit
    from specclient.budgets.bounds import answer_bound  # noqa: PLC0415

    prompt = tokens.count_prompt(request, model).tokens
    bound = answer_bound(request, model)
    return prompt + (min(ASSUMED_TOKENS, max(limit - prompt, 0)) if bound is None else bound)


def _used_tokens(calls: Iterable[Call], most: int) -> int:
    """Return the tokens of a request's calls; ``most`` if the usage of a call is unknown."""
    used = 0
    for call in calls:
        usage = call.usage
        if usage.prompt is None and usage.completion is None and call.cost.total is None:
            return most
        used += (usage.prompt or 0) + (usage.completion or 0)
    return used
