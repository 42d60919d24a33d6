"""Strategy ``remote``: speculative decoding with a draft model and a remote target that scores prompts.

:mod:`.loop` produces the verified text; here it becomes a completion or a chat completion.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from specclient.call.request_params import request_param
from specclient.call.strategies.context import StrategyContext, unsupported_parameter
from specclient.call.strategies.remote.draft_client import TargetFallbackError
from specclient.call.strategies.remote.eligibility import ineligibility
from specclient.call.strategies.remote.loop import RemoteSpeculation
from specclient.call.strategies.remote.rendered_chat import render_chat


async def complete(context: StrategyContext) -> Any:
    """Return the complete, verified answer.

    Raises:
        ConfigurationError: the chat template that the provider names cannot be used.
        UnsupportedParameterError, BadRequestError: the request cannot be verified exactly, or rendered.
    """
    try:
        speculation = await _speculation(context)
        texts = [text async for text in speculation.texts()]
    except TargetFallbackError as fallback:
        _pass_on(context, fallback)
        return await context.target.complete(context.request)
    return speculation.answer("".join(texts))


async def stream(context: StrategyContext) -> AsyncGenerator[list[Any], None]:
    """Yield the answer's chunks as they are verified; see :func:`complete`."""
    try:
        speculation = await _speculation(context)
        async with aclosing(_chunks(context, speculation)) as batches:
            async for batch in batches:
                yield batch
    except TargetFallbackError as fallback:
        _pass_on(context, fallback)
        chunks = await context.target.stream(context.request)
        context.outcome.http, context.outcome.dialect = chunks.http, chunks.dialect
        async with chunks:
            async for chunk in chunks:
                yield [chunk]


async def _speculation(context: StrategyContext) -> RemoteSpeculation:
    ineligible = ineligibility(context)
    if ineligible is not None:
        reason, param = ineligible
        raise unsupported_parameter(
            f"strategy 'remote' cannot be used: {reason}; or leave the strategy out", param
        )
    chat = None if context.request.operation == "completion" else await render_chat(context)
    return RemoteSpeculation(context, chat)


def _pass_on(context: StrategyContext, fallback: TargetFallbackError) -> None:
    """Note that the target answers the chat itself; no text has been shown yet."""
    context.note(f"decoded by the target alone: {fallback}")
    context.outcome.passed_through = True


async def _chunks(
    context: StrategyContext, speculation: RemoteSpeculation
) -> AsyncGenerator[list[Any], None]:
    builder = speculation.builder
    sent = 0
    async with aclosing(speculation.texts()) as texts:
        async for text in texts:
            if chunks := builder.chunks(text, speculation.ids[sent:]):
                yield list(chunks)
            sent = len(speculation.ids)
    yield list(builder.chunks("", speculation.ids[sent:], speculation.finish_reason))
    options = request_param(context.request, "stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        yield [builder.usage_chunk(speculation.usage())]
