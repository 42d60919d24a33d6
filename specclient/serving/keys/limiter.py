"""Turn what a key asks for into a request that it may make, counted against its limits, or a refusal."""

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

#: Tokens that an answer without a bound is taken for while it is made.
ASSUMED_TOKENS = 1024
#: Operations that are counted in tokens of text.
_COUNTED = frozenset({"chat", "completion", "response", "embedding", "moderation"})
#: Fields by which some providers take further models for a request than the one that is checked.
_MORE_MODELS = ("models", "fallbacks")
_LIMITS = "x-ratelimit-"
_FREE = nullcontext()


def authorized_request(request: Request, key: StoredKey | None, places: DestinationRegistry) -> Request:
    """Return a request as a key may make it, with its labels.

    Raises:
        ProblemError: 404 for a model that it may not use, 400 for what would let it use others.
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
        raise ServingError(400, f"{more[0]} names further models, and this key has its own", more[0])
    options = request.options
    return replace(request, options=replace(options, tags={**options.tags, **key.labels}))


def names_of(model: str, places: DestinationRegistry) -> Sequence[str]:
    """Return the names that a model goes by: with its provider, and by itself where that is the default."""
    if model == AUTO:
        return [AUTO]
    try:
        head, inner = places.split(model)
    except NotFoundError:
        return [model]
    return [f"{head}/{inner}", inner] if head == places.default else [f"{head}/{inner}"]


def check_route(key: StoredKey | None, route: str) -> None:
    """Refuse routes on which no model works to a key whose models or spending are limited.

    What they start (a batch, a fine-tuning job) is neither checked nor counted, and what they show is not the
    key's alone.
    """
    if key is not None and key.confined:
        raise ServingError(
            403, f"{route} is not for this key: its models or its spending are limited", code="not_permitted"
        )


class KeyLimiter:
    """Counts what paced keys ask for.

    Args:
        places: tell the models' names apart.
        meter: where it is counted.
    """

    def __init__(self, places: DestinationRegistry, meter: UsageMeter | None = None) -> None:
        self._places, self._meter = places, meter or LocalUsageMeter()

    def paced(self, talk: HTTPExchange, request: Request) -> AbstractAsyncContextManager[None]:
        """Return a context that counts a request against the limits of its key, and its tokens as they were.

        Raises (on entry):
            ProblemError: 429, a limit is reached.
        """
        key = talk.key
        return _FREE if key is None or not key.paced else self._counted(talk, key, request)

    @asynccontextmanager
    async def _counted(
        self, talk: HTTPExchange, key: StoredKey, request: Request
    ) -> AsyncGenerator[None, None]:
        tokens = await self._tokens(key, request)
        talk.taken = taken = await self._meter.take(key, 1, tokens)
        if taken.slot is None:
            raise rate_limit_error(key, taken, 1, tokens)
        try:
            yield
        finally:
            if tokens and (more := _used(talk.entry.calls, tokens) - tokens):
                with cancel_shield():
                    await self._meter.correct(key, taken.slot, more)

    async def limited(self, talk: HTTPExchange, key: StoredKey, lines: dict[str, str]) -> dict[str, str]:
        """Return an answer's headers with how the limits of a key stand, and nothing of an upstream's."""
        if not key.paced:
            return lines
        told = rate_limit_headers(talk.taken or await self._meter.take(key, 0, 0))
        return {name: text for name, text in lines.items() if not name.startswith(_LIMITS)} | told

    async def close(self) -> None:
        """Close what counts."""
        await self._meter.close()

    async def _tokens(self, key: StoredKey, request: Request) -> int:
        """Return the most that a request may come to, in tokens, as far as its limit needs to know."""
        limit = key.tokens_per_minute
        if limit is None or request.operation not in _COUNTED or request.content is not None:
            return 0
        model = names_of(request.model, self._places)[-1].partition("/")[2] or request.model
        return await run_in_thread(lambda: _most(request, model, limit))


def _most(request: Request, model: str, limit: int) -> int:
    from specclient import tokens  # noqa: PLC0415 - only for keys whose tokens are counted
    from specclient.budgets.bounds import answer_bound  # noqa: PLC0415

    prompt = tokens.count_prompt(request, model).tokens
    bound = answer_bound(request, model)
    return prompt + (min(ASSUMED_TOKENS, max(limit - prompt, 0)) if bound is None else bound)


def _used(calls: Iterable[Call], most: int) -> int:
    """Return the tokens of a request's calls; the most they may be where one left without telling."""
    used = 0
    for call in calls:
        usage = call.usage
        if usage.prompt is None and usage.completion is None and call.cost.total is None:
            return most
        used += (usage.prompt or 0) + (usage.completion or 0)
    return used
