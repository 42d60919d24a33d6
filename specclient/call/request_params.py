"""Reading and changing a request's parameters, for failover, strategies and the draft-target workflow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specclient.errors import DeadlineExceededError
from specclient.providers.endpoint import Endpoint
from specclient.routing.destinations import Destination
from specclient.types.capabilities import Capabilities
from specclient.types.request import PerCallOptions, Request

#: The capabilities of an engine in this process: ``prediction`` for chats and completions, completions that
#: continue a text, and scored prompts in vLLM's format.
LOCAL_ENGINE_CAPABILITIES = Capabilities(
    prediction=True, rejected_billed=False, prefill="completions", verification="prompt_logprobs"
)

#: The parameters that a draft model shares with the target; others only affect the form of an answer.
_DRAFT_PARAMS = ("messages", "prompt", "temperature", "top_p", "seed", "stop", "max_tokens")

#: Tokens of a completion without ``max_tokens``: the API's default.
DEFAULT_COMPLETION_TOKENS = 16


def capabilities_of(destination: Destination, model: str) -> Capabilities:
    """Return what is known of a model at an endpoint or in an engine."""
    if isinstance(destination, Endpoint):
        return destination.capabilities_of(model)
    return LOCAL_ENGINE_CAPABILITIES


def request_param(request: Request, name: str) -> Any:
    """Return a parameter as the body will hold it: ``extra_body`` first; None where it is absent."""
    body = request.options.body
    return body[name] if name in body else request.params.get(name)


def without_idempotency_key(options: PerCallOptions) -> PerCallOptions:
    """Return options without the idempotency key, which belongs to one request to one server."""
    headers = options.headers
    if not any(name.lower() == "idempotency-key" for name in headers):
        return options
    kept = {name: value for name, value in headers.items() if name.lower() != "idempotency-key"}
    return replace(options, headers=kept)


def with_remaining_deadline(request: Request, elapsed_s: float, *, spent_on: str) -> Request:
    """Return a request whose deadline is reduced by the time already spent.

    Args:
        elapsed_s: seconds since the deadline began.
        spent_on: the work that took this time, for the error message.

    Raises:
        DeadlineExceededError: no time is left.
    """
    deadline_s = request.options.deadline_s
    if deadline_s is None:
        return request
    if elapsed_s >= deadline_s:
        raise DeadlineExceededError(message=f"deadline_s={deadline_s} is over; {spent_on} took all of it")
    return replace(request, options=replace(request.options, deadline_s=deadline_s - elapsed_s))


def draft_request(request: Request, draft: str, **changes: Any) -> Request:
    """Return a complete, unstreamed request to a draft model for the same conversation.

    Args:
        draft: the draft model.
        changes: parameters to add or replace.
    """
    params = {name: request.params[name] for name in _DRAFT_PARAMS if request.params.get(name) is not None}
    limit = request_param(request, "max_completion_tokens")
    if limit is not None:
        params["max_tokens"] = limit
    own = request.options
    options = PerCallOptions(
        timeout=own.timeout,
        deadline_s=own.deadline_s,
        drop_params=True,
        tags=own.tags,
        session=own.session,
        by_judge=own.by_judge,
    )
    return Request(request.method, draft, {**params, **changes}, options=options)
