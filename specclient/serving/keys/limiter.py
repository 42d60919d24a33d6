"""Permissions and rate limits of keys, applied to requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from specclient.openai_http.errors import ServingError, bad_request
from specclient.routing.choose.task_classifier import summarize_prompt
from specclient.routing.destinations import DestinationRegistry
from specclient.runtime.event_loop import cancel_shield, run_in_thread
from specclient.runtime.replaced import replaced
from specclient.serving.exchange import HTTPExchange
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.rate_limits import (
    LocalUsageMeter,
    UsageMeter,
    rate_limit_error,
    rate_limit_headers,
)
from specclient.serving.permits import ServerPermit, request_names
from specclient.types.call import Call
from specclient.types.request import Request

__all__ = ["KeyLimiter", "LimitTicket", "authorized_request", "check_route", "with_labels"]

#: Tokens reserved for an answer without a maximum length.
ASSUMED_TOKENS = 1024
#: Operations whose tokens count.
_COUNTED = frozenset({"chat", "completion", "response", "embedding", "moderation"})
_LIMITS = "x-ratelimit-"
#: Bytes of a prompt up to which counting its tokens takes no longer than starting a thread, about 0.1 ms.
_SHORT_BYTES = 2048
_MOST_MODELS = 1024
_FREE = nullcontext()


def authorized_request(
    request: Request, key: StoredKey | None, permit: ServerPermit, query: str = ""
) -> Request:
    """Check a key's permissions for a request, and add its permit and the key's tags.

    Args:
        request: the parsed request.
        key: the stored key; None permits every served model.
        permit: the permit of the key's models.
        query: the query string, if it is a part of the request's path.

    Returns:
        The request with the permit, which the pipeline checks for each attempt, and with the tags and
        aliases of the key. The key owns the stored answer.

    Raises:
        ServingError: 404 if the key may not use a model; 400 if a field names models that cannot be checked,
            or the model is missing; 403 for a response in the background if the key has a budget.
    """
    options = request.options
    if key is not None and key.model_aliases is not None:
        options = replace(options, aliases=key.model_aliases)
        request = replace(request, options=options)
    if not request.model and key is not None and key.confined:  # a stored prompt or a default would name it
        raise bad_request("model", "model is missing; this key has limits and needs the name of a model")
    permit.check_request(request, query)
    if key is None:
        same = options.permit is permit
        return request if same else replaced(request, options=replaced(options, permit=permit))
    if key.budget_nano is not None:
        _check_background(request)
    tags = {**options.tags, **key.labels}
    return replaced(request, options=replaced(options, permit=permit, tags=tags, owner=key.digest))


def _check_background(request: Request) -> None:
    """Refuse a response that is generated after its call has ended, because its cost cannot be counted."""
    if request.params.get("background") or request.options.body.get("background"):
        raise ServingError(
            403,
            "this key has a budget, and a response in the background cannot be counted; omit background, and "
            "use stream for long answers",
            "background",
            "not_permitted",
        )


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


def with_labels(request: Request, key: StoredKey | None) -> Request:
    """Return a request with the tags of a key, which are those of what its answer shows to be billed."""
    if key is None:
        return request
    return replaced(request, options=replaced(request.options, tags={**request.options.tags, **key.labels}))


@dataclass(frozen=True, slots=True)
class LimitTicket:
    """A reservation of a key's limits.

    Attributes:
        slot: the slot of the reservation in the meter; None if the key has no limits.
        tokens: the number of reserved tokens.
    """

    slot: int | None = None
    tokens: int = 0


class KeyLimiter:
    """Applies the rate limits of keys.

    Args:
        places: resolves the names of models.
        meter: counts the use; the default counts in this process only.
    """

    def __init__(self, places: DestinationRegistry, meter: UsageMeter | None = None) -> None:
        self._places, self._meter = places, meter or LocalUsageMeter()
        self._counted: set[str] = set()  # models whose tokenizer is loaded

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

    async def enter(self, exchange: HTTPExchange, request: Request) -> LimitTicket:
        """Reserve the use of one response of a WebSocket; pass the ticket to :meth:`leave` at its end.

        Raises:
            ServingError: 429, a limit is reached.
        """
        key = exchange.key
        if key is None or not key.paced:
            return LimitTicket()
        tokens = await self._tokens(key, request)
        decision = await self._meter.reserve(key, 1, tokens)
        if decision.slot is None:
            raise rate_limit_error(key, decision, 1, tokens)
        return LimitTicket(decision.slot, tokens)

    async def leave(self, exchange: HTTPExchange, ticket: LimitTicket, call: Call | None) -> None:
        """Replace the reserved tokens by those of the call.

        Args:
            exchange: the handshake of the WebSocket.
            ticket: the reservation.
            call: the call; None, which leaves the reservation as it is, if no finished call used it.
        """
        key = exchange.key
        if key is None or ticket.slot is None or key.tokens_per_minute is None or call is None:
            return
        if more := _used_tokens([call], ticket.tokens) - ticket.tokens:
            with cancel_shield():
                await self._meter.adjust(key, ticket.slot, more)

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
        model = request_names(request, self._places)[-1].partition("/")[2] or request.model
        if model in self._counted and _is_short(request):
            return _max_tokens(request, model, limit)
        tokens = await run_in_thread(lambda: _max_tokens(request, model, limit))
        if len(self._counted) < _MOST_MODELS:  # names come from requests
            self._counted.add(model)
        return tokens


def _is_short(request: Request) -> bool:
    """Return whether the tokens of a prompt are counted in less time than a thread takes to start."""
    summary = summarize_prompt(request)
    return summary.size <= _SHORT_BYTES and not summary.files


def _max_tokens(request: Request, model: str, limit: int) -> int:
    """Return the tokens of a prompt plus the maximum, or :data:`ASSUMED_TOKENS`, of its answer."""
    from specclient import tokens  # noqa: PLC0415 - used only for keys with a token limit
    from specclient.budgets.answers import answer_bound  # noqa: PLC0415

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
