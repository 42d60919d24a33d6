"""Translation of calls: a request of the Responses API to a chat completion, and its answer back.

Used at destinations that serve only chat completions; see :func:`specclient.call.over_chat.is_over_chat`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from specclient.call.large_values import run_on_value
from specclient.call.responses.events import ResponseEventBuilder
from specclient.call.responses.request import chat_request_of
from specclient.call.responses.response import response_of
from specclient.call.result import CallResult
from specclient.errors import APIResponseValidationError
from specclient.providers import dialect
from specclient.providers.encoding import decoded, json_of
from specclient.types.named import named, reader
from specclient.types.request import Request
from specclient.types.route import Decision

__all__ = ["result_of", "served_request", "streamed_events", "typed_event"]

_RESPONSE, _EVENT = "responses.Response", "responses.ResponseStreamEvent"


async def served_request(request: Request) -> Request:
    """Return the chat completion for a request, whose parameters may be mappings or the API's objects.

    Raises:
        BadRequestError: see :func:`chat_request_of`.
    """

    def translated() -> Request:
        return chat_request_of(replace(request, params=decoded(request.params)))

    return await run_on_value(dict(request.params), translated)


def result_of(request: Request, decision: Decision, result: CallResult) -> CallResult:
    """Return the result of a chat completion as the result of a Responses API request.

    Raises:
        APIResponseValidationError: the chat completion has no choice.
    """
    if result.error is not None:
        return result
    if not result.value.choices:
        raise APIResponseValidationError(message="the chat completion behind this response has no choice")
    content = json_of(response_of(_named_request(request, decision), result.value))
    value = named(_RESPONSE).received(content)
    reply = result.reply
    if reply is None:
        return replace(result, value=value)
    value.attach_request_id(reply.request_id)
    return replace(result, value=value, reply=replace(reply, content=content), dialect=dialect("openai"))


async def streamed_events(
    request: Request, decision: Decision, batches: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
    """Yield the start of a stream, then its chunks as events of a response.

    Args:
        request: the request of the Responses API.
        decision: its route.
        batches: the start of the stream, then lists of chunks.
    """
    builder = ResponseEventBuilder(_named_request(request, decision))
    async with aclosing(batches):
        yield await anext(batches)
        yield _typed(builder.begin())
        async for batch in batches:
            if events := _typed(event for chunk in batch for event in builder.of(chunk)):
                yield events
    yield _typed(builder.end())


def typed_event(event: dict[str, Any]) -> Any:
    """Return an event as its type."""
    return reader(_EVENT)(json.dumps(event).encode())


def _named_request(request: Request, decision: Decision) -> Request:
    """Return the request with the model that its response names; a policy's choice replaces ``auto``."""
    return request if decision.policy is None else replace(request, model=decision.chosen)


def _typed(events: Iterable[dict[str, Any]]) -> list[Any]:
    return [typed_event(event) for event in events]
