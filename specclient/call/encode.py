"""Encoding of requests: as HTTP for an endpoint, as parameters for an engine in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from specclient.call.errors import not_served_in_process
from specclient.call.large_values import run_on_value
from specclient.call.recorder import CallRecorder
from specclient.providers import Endpoint, dialect_of, usage_requested
from specclient.runtime.replaced import replaced
from specclient.types.model_kind import ENGINE_OPERATIONS
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.wire import WireRequest

#: Parameters that configure drafting, or that make the output depend on it (``seed``).
_DRAFTING_PARAMS = frozenset({"draft_length", "draft_tree", "method", "prediction", "seed"})


def encode_request(
    request: Request, decision: Decision, endpoint: Endpoint, record: CallRecorder
) -> WireRequest:
    """Return the HTTP request for an endpoint; attempts that fail and are retried are noted in the record."""
    origin = request.options.origin
    if origin is not None and origin.provider == endpoint.name:
        own = request.options.headers
        headers = {**own, **origin.headers} if own else origin.headers
        request = replaced(request, options=replaced(request.options, headers=headers))
    else:
        origin = None
    wire = dialect_of(endpoint).encode(
        _with_draft_length(request, decision, endpoint), endpoint, endpoint.served_model or decision.model
    )
    changes: dict[str, Any] = {"on_failed_attempt": record.note_failed_try}
    if record.span is not None:
        changes["headers"] = record.span.inject_headers(wire.headers)
    if endpoint.server is not None:
        changes["deployment"] = f"{endpoint.name}/{decision.model}"
        changes["authorize"] = endpoint.server.authorize(endpoint)
        changes["others_serve"] = endpoint.server.others_serve
    if origin is not None:
        changes["deployment"] = f"{endpoint.name}/{decision.model}{origin.account}"
    return replaced(wire, **changes)


async def encoded_off_loop(
    request: Request, decision: Decision, endpoint: Endpoint, record: CallRecorder
) -> WireRequest:
    """Return :func:`encode_request`, from a thread if the request is large."""
    encode = partial(encode_request, request, decision, endpoint, record)
    values = [*request.params.values(), *request.options.body.values()]
    return await run_on_value(values, encode)


def _with_draft_length(request: Request, decision: Decision, endpoint: Endpoint) -> Request:
    """Return the request with the draft length of the routing decision.

    It is only added for models with a field for it. A value that the caller set in this field is kept. A
    length of 0 is not sent, because servers disagree about its meaning.
    """
    draft_length = None if decision.taken is None else decision.taken.depth
    if not draft_length or request.operation not in ("chat", "completion"):
        return request
    field = endpoint.capabilities_of(decision.model).draft_length
    if field is None:
        return request
    name, _, nested = field.partition(".")
    body = request.options.body
    current = body.get(name, request.params.get(name))
    if current is not None and not (nested and isinstance(current, Mapping) and nested not in current):
        return request
    value = {**(current or {}), nested: draft_length} if nested else draft_length
    return replace(request, options=replace(request.options, body={**body, name: value}))


def without_added_fields(endpoint: Endpoint, request: Request) -> Endpoint:
    """Return an endpoint whose encoder adds no fields of its own: no usage or telemetry request.

    It serves callers that read the response's bytes, which must be exactly those that they requested.
    """
    return replace(
        endpoint,
        requests_usage=endpoint.requests_usage and usage_requested(request),
        capabilities=replace(endpoint.capabilities, telemetry_flags={}),
    )


def engine_request(request: Request, decision: Decision) -> Request:
    """Return the request for an engine in this process: ``extra_body`` merged, usage always included.

    A routing decision with draft length 0 turns drafting off, unless the request configures drafting itself
    or has a seed: a seeded request must give the same output whatever the load. Otherwise the engine, which
    measures every round, adapts the draft length itself.

    Raises:
        NotFoundError: engines do not serve this method.
    """
    if request.operation not in ENGINE_OPERATIONS:
        raise not_served_in_process(decision.provider)
    params = {**request.params, **request.options.body}
    if request.operation == "embedding":
        return replace(request, params=params)
    if decision.taken is not None and decision.taken.depth == 0:
        extension = params.get("specclient") or {}
        if isinstance(extension, Mapping) and _DRAFTING_PARAMS.isdisjoint((*params, *extension)):
            params["specclient"] = {**extension, "draft_length": 0}
    if request.stream:
        params["stream_options"] = {**(params.get("stream_options") or {}), "include_usage": True}
    return replace(request, params=params)
