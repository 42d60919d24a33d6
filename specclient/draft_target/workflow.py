"""The draft-target workflow: a draft model answers in short, then a target model answers with that draft.

This is not exact speculative decoding: no token is verified against the target's distribution, unless the
target's endpoint honours predictions and verifies them itself. The output is the target's own text, written
after it has seen a draft, and may differ from its answer without one. Exact alternatives are
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
from specclient.call.answer_fields import answer_text
from specclient.call.request_params import (
    capabilities_of,
    draft_request,
    request_param,
    with_remaining_deadline,
)
from specclient.client.async_client import AsyncOpenAI
from specclient.client.bridge import Bridge
from specclient.client.core import ClientCore
from specclient.client.sync_client import OpenAI
from specclient.draft_target.presets import (
    DepthTokens,
    DraftLength,
    ModelPair,
    Task,
    draft_length_of,
    pair_of,
)
from specclient.draft_target.result import DraftHandover, DraftTargetResult, StageResult
from specclient.errors import ConfigurationError, OpenAIError
from specclient.providers.endpoint import Endpoint
from specclient.providers.openai.quirks import NO_QUIRKS
from specclient.providers.predictions import conflicting_params
from specclient.resources.base import build_request
from specclient.routing.router import AUTO
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request

PromptInput = str | Iterable[Mapping[str, Any] | BaseModel]
Clock = Callable[[], float]

#: The user's turn that follows the draft, where the target receives it in the conversation.
VERIFY_PROMPT = (
    "The last answer is a quick draft, and may break off. Check it. Keep what is right word for word, "
    "correct what is wrong, continue where it breaks off, and give the whole answer, not naming the draft."
)
#: The share of a deadline that the draft may take; the rest is for the target.
_DRAFT_DEADLINE_SHARE = 0.5
#: Parameters that the workflow sets itself.
_RESERVED_PARAMS = frozenset({"model", "messages", "stream", "strategy", "prediction"})


async def aspeculative_decode(
    prompt: PromptInput,
    *,
    draft: str | None = None,
    target: str | None = None,
    pair: str = "balanced",
    task: Task = "chat",
    depth: int | None = None,
    depth_tokens: DepthTokens | None = None,
    client: AsyncOpenAI | None = None,
    **params: Any,
) -> DraftTargetResult:
    """Answer a prompt with a target model that sees a draft model's short answer first.

    Makes two plain chat calls. The draft is sent to the target as a ``prediction`` if its endpoint is known
    to honour predictions for this model, and no other parameter conflicts with one. Otherwise the draft
    becomes the assistant's last turn, and the target is asked to check, correct and continue it. If the draft
    fails, the target answers the prompt alone. **This is not exact speculative decoding**: the output is the
    target's own text after it has seen a draft. A draft in the conversation by itself saves neither time nor
    money, because the target generates every token again; it pays if the draft improves the target's answer,
    or if predictions are verified.

    Args:
        prompt: a user's text, or the messages of a conversation.
        draft, target: models, ``provider/model``, that replace the pair's.
        pair: ``cost``, ``quality``, ``balanced``, or a ``[pairs.NAME]`` table of the configuration.
        task: ``chat``, ``documents``, ``code`` or ``long_context``: sets the depth where none is given.
        depth: the length of the draft, in segments of 32 tokens (its ``max_tokens`` is ``32 * depth``).
        depth_tokens: the length of the draft in tokens (its ``max_tokens``), which tutorials call
            ``speculation_depth``; ``"task"`` is the task's preset in tokens, 3 to 6. Not together with
            ``depth``.
        client: provides connections, configuration and ledger; None creates one for this call.
        params: of ``chat.completions.create``. The draft uses the same ``temperature``, ``top_p``, ``seed``
            and ``stop``, and at most half of ``deadline_s``.

    Returns:
        Both texts with tokens, seconds and cost, and how much of the draft is in the answer.

    Raises:
        OpenAIError: the target failed; see :mod:`specclient.errors`.
        ConfigurationError: an unknown pair or task, an invalid depth, or both depths.
        TypeError: an unknown parameter, or one that the workflow sets itself.
    """
    async with AsyncOpenAI() if client is None else nullcontext(client) as own:
        plan = _plan(own.core, (draft, target, pair), draft_length_of(task, depth, depth_tokens), params)
        return _checked(await _decode(plan, prompt))


def speculative_decode(
    prompt: PromptInput,
    *,
    draft: str | None = None,
    target: str | None = None,
    pair: str = "balanced",
    task: Task = "chat",
    depth: int | None = None,
    depth_tokens: DepthTokens | None = None,
    client: OpenAI | None = None,
    **params: Any,
) -> DraftTargetResult:
    """Answer a prompt with a draft and a target model; see :func:`aspeculative_decode`."""
    with OpenAI() if client is None else nullcontext(client) as own:
        plan = _plan(own.core, (draft, target, pair), draft_length_of(task, depth, depth_tokens), params)
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
    depth_tokens: DepthTokens | None = None,
    client: AsyncOpenAI | None = None,
    **params: Any,
) -> list[DraftTargetResult]:
    """Answer several prompts concurrently.

    Args:
        prompts: see ``prompt`` of :func:`aspeculative_decode`, which also describes the other arguments.
        concurrency: prompts that are answered at the same time.

    Returns:
        One result per prompt, in order. If a target fails, its result holds the ``error``; the other prompts
        are not affected.

    Raises:
        ConfigurationError, TypeError: invalid arguments.
    """
    async with AsyncOpenAI() if client is None else nullcontext(client) as own:
        plan = _plan(own.core, (draft, target, pair), draft_length_of(task, depth, depth_tokens), params)
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
    depth_tokens: DepthTokens | None = None,
    client: OpenAI | None = None,
    **params: Any,
) -> list[DraftTargetResult]:
    """Answer several prompts concurrently; see :func:`aspeculative_decode_many`."""
    with OpenAI() if client is None else nullcontext(client) as own:
        plan = _plan(own.core, (draft, target, pair), draft_length_of(task, depth, depth_tokens), params)
        return Bridge().run(_decode_many, plan, prompts, _checked_concurrency(concurrency))


@dataclass(frozen=True, slots=True)
class _DecodePlan:
    """The settings that all prompts of one call share."""

    core: ClientCore
    pair: ModelPair
    length: DraftLength
    params: Mapping[str, Any]
    clock: Clock = time.perf_counter


def _plan(
    core: ClientCore,
    models: tuple[str | None, str | None, str],
    length: DraftLength,
    params: Mapping[str, Any],
) -> _DecodePlan:
    """Check the arguments that all prompts share; ``models`` are draft, target and pair."""
    for name in params:
        if name in _RESERVED_PARAMS:
            raise TypeError(f"speculative_decode() sets {name!r} itself; leave it out")
    draft, target, pair = models
    plan = _DecodePlan(core, pair_of(core.settings, pair, draft, target), length, params)
    _request(plan, [])  # raises for an unknown parameter before anything is sent
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
    """Make both calls; their errors are part of the result."""
    started_s = plan.clock()
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    request = _request(plan, messages)
    draft = await _run_stage(plan, plan.pair.draft, _draft_stage_request(plan, request))
    sent, reason = request, ""
    handed: DraftHandover = "nothing"
    try:
        sent, handed, reason = await _with_draft(plan, request, draft)
        sent = with_remaining_deadline(sent, plan.clock() - started_s, spent_on="the draft")
    except OpenAIError as error:
        target = StageResult(model=plan.pair.target, error=error)
    else:
        target = await _run_stage(plan, plan.pair.target, sent)
    return DraftTargetResult(
        draft=draft,
        target=target,
        depth=plan.length.segments,
        depth_tokens=plan.length.tokens,
        handed=handed,
        reason=reason,
        latency_s=plan.clock() - started_s,
        alone_cost=_alone_cost(plan, target.call, request, sent, handed),
        alone_latency_s=None if handed == "prediction" else target.latency_s,
    )


def _request(plan: _DecodePlan, messages: Sequence[Any]) -> Request:
    """Return the target's request without a draft."""
    return build_request(CHAT, {"model": plan.pair.target, "messages": messages, **plan.params})


def _draft_stage_request(plan: _DecodePlan, request: Request) -> Request:
    """Return the draft's request: the same conversation, with a short answer and half of the deadline."""
    params = {name: request_param(request, name) for name in ("max_completion_tokens", "max_tokens")}
    limits = {name: limit for name, limit in params.items() if isinstance(limit, int)}
    draft = draft_request(request, plan.pair.draft)
    params = {name: value for name, value in draft.params.items() if name != "max_tokens"}
    params[next(iter(limits), "max_tokens")] = min([plan.length.tokens, *limits.values()])
    options, deadline_s = draft.options, request.options.deadline_s
    if deadline_s is not None:
        options = replace(options, deadline_s=deadline_s * _DRAFT_DEADLINE_SHARE)
    return replace(draft, params=params, options=options)


async def _run_stage(plan: _DecodePlan, model: str, request: Request) -> StageResult:
    try:
        answer = await plan.core.pipeline.call(request)
    except OpenAIError as error:
        return StageResult(model=model, error=error)
    return StageResult(model=model, output=answer_text(answer), call=answer.meta)


async def _with_draft(
    plan: _DecodePlan, request: Request, draft: StageResult
) -> tuple[Request, DraftHandover, str]:
    """Return the target's request with the draft, how it contains the draft, and why.

    Raises:
        OpenAIError: the target's provider is unknown.
    """
    if draft.error is not None:
        return request, "nothing", f"the draft failed: {type(draft.error).__name__}"
    if not (draft.output or "").strip():
        return request, "nothing", "the draft returned no text"
    obstacle = await _prediction_obstacle(plan, request)
    if obstacle is None:
        params = {**request.params, "prediction": {"type": "content", "content": draft.output}}
        return replace(request, params=params), "prediction", "the target's endpoint verifies predictions"
    turns = [{"role": "assistant", "content": draft.output}, {"role": "user", "content": VERIFY_PROMPT}]
    params = {**request.params, "messages": [*request.params["messages"], *turns]}
    return replace(request, params=params), "conversation", obstacle


async def _prediction_obstacle(plan: _DecodePlan, request: Request) -> str | None:
    """Return why a prediction cannot be sent; None where it can."""
    pipeline = plan.core.pipeline
    router = pipeline.router
    kind = router.kind(request)
    if kind == AUTO:
        return "a policy chooses the target, so it is not known whether it honours predictions"
    await pipeline.ensure_ready(kind)
    route = router.decide(request)
    destination = router.destinations.of_model(route.provider, route.model)
    capabilities = capabilities_of(destination, route.model)
    models = capabilities.prediction_models
    if not capabilities.prediction or (models and not route.model.startswith(models)):
        return f"{route.chosen} is not known to verify predictions"
    quirks = destination.quirks if isinstance(destination, Endpoint) else NO_QUIRKS
    conflicts = conflicting_params(request, capabilities.prediction_conflicts, quirks)
    if conflicts:
        return f"{route.chosen} refuses a prediction together with {', '.join(conflicts)}"
    return None


def _alone_cost(
    plan: _DecodePlan, call: Call | None, request: Request, sent: Request, handed: DraftHandover
) -> Decimal | None:
    """Estimate the target's cost in dollars without a draft, for an answer of the same length."""
    if call is None:
        return None
    if handed == "nothing":
        return call.cost.total
    endpoint = plan.core.pipeline.destinations.get(call.route.provider)
    prompt, completion = call.usage.prompt, call.usage.completion
    if prompt is None or completion is None or not isinstance(endpoint, Endpoint):
        return None
    model = call.route.model
    added = tokens.count_prompt(sent, model).tokens - tokens.count_prompt(request, model).tokens
    return plan.core.shared.prices.predict(
        max(prompt - added, 0),
        max(completion - (call.usage.rejected_prediction or 0), 0),
        call.route.provider,
        model,
        price_provider=endpoint.price_provider,
    )
