"""Turn a prompt into a draft model's short answer, and both into the answer of a target model.

This is not speculative decoding proper: no token is verified against the target's distribution (but where the
target honours predictions, and verifies them itself). The output is the target's own text, written after it
has seen a draft, and may differ from what it would have said alone. Exact ways are
``strategy=Strategy(kind="remote")`` and the engine of ``local/…`` models.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from specclient import tokens
from specclient.call.strategies.context import LOCAL_ENGINE_CAPABILITIES, answer_text, request_param
from specclient.call.strategies.prediction import draft_request
from specclient.client.async_client import AsyncOpenAI
from specclient.client.bridge import Bridge
from specclient.client.core import ClientCore
from specclient.client.sync_client import OpenAI
from specclient.draft_target.presets import SEGMENT_TOKENS, ModelPair, Task, depth_of, pair_of
from specclient.draft_target.result import DraftHandover, DraftTargetResult, StageResult
from specclient.errors import ConfigurationError, DeadlineExceededError, OpenAIError
from specclient.providers.endpoint import Endpoint
from specclient.providers.predictions import conflicting_params
from specclient.resources.base import build_request
from specclient.routing.router import AUTO
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request

PromptInput = str | Iterable[Mapping[str, Any] | BaseModel]
Clock = Callable[[], float]

#: What a target is asked that has the draft as the turn before.
VERIFY_PROMPT = (
    "The last answer is a quick draft, and may break off. Check it. Keep what is right word for word, "
    "correct what is wrong, continue where it breaks off, and give the whole answer, not naming the draft."
)
#: The share of a deadline that the draft may take; the rest is the target's.
_DRAFTS_SHARE = 0.5
_SET_HERE = frozenset({"model", "messages", "stream", "strategy", "prediction"})


async def aspeculative_decode(
    prompt: PromptInput,
    *,
    draft: str | None = None,
    target: str | None = None,
    pair: str = "balanced",
    task: Task = "chat",
    depth: int | None = None,
    client: AsyncOpenAI | None = None,
    **params: Any,
) -> DraftTargetResult:
    """Answer a prompt by a target model that has a draft model's short answer before it.

    Two plain chat calls. The draft goes to the target as ``prediction`` where its endpoint is known to honour
    that for this model, and nothing stands against it; else it becomes the assistant's last turn, and the
    target is asked to check, correct and continue it. A draft that fails leaves the target alone with the
    prompt. **This is not exact speculative decoding**: the output is the target's own words after having seen
    a draft. In the conversation that saves neither time nor money by itself, since the target writes every
    token again; it pays where a draft changes what a target says, or where predictions are verified.

    Args:
        prompt: a user's text, or the messages of a conversation.
        draft, target: models, ``provider/model``; in place of the pair's.
        pair: ``cost``, ``quality``, ``balanced``, or a ``[pairs.NAME]`` table of the configuration.
        task: ``chat``, ``documents``, ``code`` or ``long_context``: sets the depth where none is given.
        depth: the length of the draft, in segments of 32 tokens (its ``max_tokens`` is ``32 * depth``).
        client: whose connections, configuration and ledger are used; None makes one for this call.
        params: of ``chat.completions.create``. The draft shares ``temperature``, ``top_p``, ``seed`` and
            ``stop``, and takes half of ``deadline_s`` at most.

    Returns:
        Both texts with tokens, seconds and cost, and how much of the draft stands in the answer.

    Raises:
        OpenAIError: what the target failed with; see the tree in :mod:`specclient.errors`.
        ConfigurationError: an unknown pair, task, or depth.
        TypeError: an unknown parameter, or one that is set here.
    """
    async with AsyncOpenAI() if client is None else nullcontext(client) as own:
        plan = _plan(own.core, (draft, target, pair), depth_of(task, depth), params)
        return _checked(await _decode(plan, prompt))


def speculative_decode(
    prompt: PromptInput,
    *,
    draft: str | None = None,
    target: str | None = None,
    pair: str = "balanced",
    task: Task = "chat",
    depth: int | None = None,
    client: OpenAI | None = None,
    **params: Any,
) -> DraftTargetResult:
    """Answer a prompt by a target that has a draft before it; see :func:`aspeculative_decode`."""
    with OpenAI() if client is None else nullcontext(client) as own:
        plan = _plan(own.core, (draft, target, pair), depth_of(task, depth), params)
        return _checked(Bridge().run(_decode, plan, prompt))


async def aspeculative_decode_many(
    prompts: Iterable[PromptInput],
    *,
    concurrency: int = 8,
    draft: str | None = None,
    target: str | None = None,
    pair: str = "balanced",
    task: Task = "chat",
    depth: int | None = None,
    client: AsyncOpenAI | None = None,
    **params: Any,
) -> list[DraftTargetResult]:
    """Answer several prompts, so many at a time; arguments as :func:`aspeculative_decode`'s.

    Returns:
        One result a prompt, in their order. One whose target failed holds the ``error``, and costs the others
        nothing.

    Raises:
        ConfigurationError, TypeError: for arguments that no prompt could be served with.
    """
    async with AsyncOpenAI() if client is None else nullcontext(client) as own:
        plan = _plan(own.core, (draft, target, pair), depth_of(task, depth), params)
        return await _decode_many(plan, prompts, _checked_concurrency(concurrency))


def speculative_decode_many(
    prompts: Iterable[PromptInput],
    *,
    concurrency: int = 8,
    draft: str | None = None,
    target: str | None = None,
    pair: str = "balanced",
    task: Task = "chat",
    depth: int | None = None,
    client: OpenAI | None = None,
    **params: Any,
) -> list[DraftTargetResult]:
    """Answer several prompts, so many at a time; see :func:`aspeculative_decode_many`."""
    with OpenAI() if client is None else nullcontext(client) as own:
        plan = _plan(own.core, (draft, target, pair), depth_of(task, depth), params)
        return Bridge().run(_decode_many, plan, prompts, _checked_concurrency(concurrency))


@dataclass(frozen=True, slots=True)
class _DecodePlan:
    """What all prompts of a call have in common."""

    core: ClientCore
    pair: ModelPair
    depth: int
    params: Mapping[str, Any]
    clock: Clock = time.perf_counter


def _plan(
    core: ClientCore, models: tuple[str | None, str | None, str], depth: int, params: Mapping[str, Any]
) -> _DecodePlan:
    """Check what all prompts have in common; ``models`` are draft, target and pair as given."""
    for name in params:
        if name in _SET_HERE:
            raise TypeError(f"speculative_decode() sets {name!r} itself; leave it out")
    draft, target, pair = models
    plan = _DecodePlan(core, pair_of(core.settings, pair, draft, target), depth, params)
    _request(plan, [])  # an unknown parameter is told before anything is sent
    return plan


def _checked_concurrency(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"concurrency is {value!r}; it must be a whole number, 1 or more")
    return value


def _checked(result: DraftTargetResult) -> DraftTargetResult:
    if result.error is not None:
        raise result.error
    return result


async def _decode_many(
    plan: _DecodePlan, prompts: Iterable[PromptInput], concurrency: int
) -> list[DraftTargetResult]:
    waiting = enumerate(prompts)
    done: dict[int, DraftTargetResult] = {}

    async def work() -> None:
        for i, prompt in waiting:
            done[i] = await _decode(plan, prompt)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return [done[i] for i in sorted(done)]


async def _decode(plan: _DecodePlan, prompt: PromptInput) -> DraftTargetResult:
    """Make both calls; what refuses or ends one of them is in the result."""
    begun = plan.clock()
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    request = _request(plan, messages)
    draft = await _serve(plan, plan.pair.draft, _drafting(plan, request))
    sent, reason = request, ""
    handed: DraftHandover = "nothing"
    try:
        sent, handed, reason = await _handed(plan, request, draft)
        sent = _timed(sent, plan.clock() - begun)
    except OpenAIError as error:
        target = StageResult(model=plan.pair.target, error=error)
    else:
        target = await _serve(plan, plan.pair.target, sent)
    return DraftTargetResult(
        draft=draft,
        target=target,
        depth=plan.depth,
        handed=handed,
        reason=reason,
        latency_s=plan.clock() - begun,
        alone_cost=_alone_cost(plan, target.call, request, sent, handed),
        alone_latency_s=None if handed == "prediction" else target.latency_s,
    )


def _request(plan: _DecodePlan, messages: Sequence[Any]) -> Request:
    """Return what the target would be asked alone."""
    return build_request(CHAT, {"model": plan.pair.target, "messages": messages, **plan.params})


def _drafting(plan: _DecodePlan, request: Request) -> Request:
    """Return what the draft is asked: the same, with a short answer, and half of the time."""
    limits = {name: request_param(request, name) for name in ("max_completion_tokens", "max_tokens")}
    own = {name: limit for name, limit in limits.items() if isinstance(limit, int)}
    asked = draft_request(request, plan.pair.draft)
    params = {name: value for name, value in asked.params.items() if name != "max_tokens"}
    params[next(iter(own), "max_tokens")] = min([plan.depth * SEGMENT_TOKENS, *own.values()])
    deadline = request.options.deadline_s
    options = (
        asked.options if deadline is None else replace(asked.options, deadline_s=deadline * _DRAFTS_SHARE)
    )
    return replace(asked, params=params, options=options)


async def _serve(plan: _DecodePlan, model: str, request: Request) -> StageResult:
    try:
        answer = await plan.core.pipeline.call(request)
    except OpenAIError as error:
        return StageResult(model=model, error=error)
    return StageResult(model=model, output=answer_text(answer), call=answer.meta)


async def _handed(
    plan: _DecodePlan, request: Request, draft: StageResult
) -> tuple[Request, DraftHandover, str]:
    """Return the target's request with the draft in it, how it is there, and why so.

    Raises:
        OpenAIError: the target is nowhere to be found.
    """
    if draft.error is not None:
        return request, "nothing", f"the draft failed: {type(draft.error).__name__}"
    if not (draft.output or "").strip():
        return request, "nothing", "the draft said nothing"
    hindrance = await _hindrance(plan, request)
    if hindrance is None:
        params = {**request.params, "prediction": {"type": "content", "content": draft.output}}
        return replace(request, params=params), "prediction", "the target's endpoint verifies predictions"
    turns = [{"role": "assistant", "content": draft.output}, {"role": "user", "content": VERIFY_PROMPT}]
    params = {**request.params, "messages": [*request.params["messages"], *turns]}
    return replace(request, params=params), "conversation", hindrance


async def _hindrance(plan: _DecodePlan, request: Request) -> str | None:
    """Return what stands against sending a prediction, None where nothing does."""
    pipeline = plan.core.pipeline
    router = pipeline.router
    kind = router.kind(request)
    if kind == AUTO:
        return "a policy chooses the target, so what it honours is not known beforehand"
    await pipeline.ensure_ready(kind)
    route = router.decide(request)
    place = router.destinations.get(route.provider)
    known = place.capabilities_of(route.model) if isinstance(place, Endpoint) else LOCAL_ENGINE_CAPABILITIES
    unlike = known.prediction_models and not route.model.startswith(known.prediction_models)
    if not known.prediction or unlike:
        return f"{route.chosen} is not known to verify predictions"
    found = conflicting_params(request, known.prediction_conflicts)
    return f"{route.chosen} refuses a prediction beside {', '.join(found)}" if found else None


def _timed(request: Request, passed_s: float) -> Request:
    """Return a request with what is left of its deadline.

    Raises:
        DeadlineExceededError: nothing is.
    """
    limit = request.options.deadline_s
    if limit is None:
        return request
    if passed_s >= limit:
        raise DeadlineExceededError(message=f"deadline_s={limit} is over; the draft took it all")
    return replace(request, options=replace(request.options, deadline_s=limit - passed_s))


def _alone_cost(
    plan: _DecodePlan, call: Call | None, request: Request, sent: Request, handed: DraftHandover
) -> Decimal | None:
    """Estimate what the target would have cost without a draft, for an answer of the same length."""
    if call is None:
        return None
    if handed == "nothing":
        return call.cost.total
    place = plan.core.pipeline.destinations.get(call.route.provider)
    prompt, completion = call.usage.prompt, call.usage.completion
    if prompt is None or completion is None or not isinstance(place, Endpoint):
        return None
    model = call.route.model
    more = tokens.count_prompt(sent, model).tokens - tokens.count_prompt(request, model).tokens
    return plan.core.shared.prices.predict(
        max(prompt - more, 0),
        max(completion - (call.usage.rejected_prediction or 0), 0),
        call.route.provider,
        model,
        price_provider=place.price_provider,
    )
