"""Turn a request into what the place that serves it takes, and what no place can do into why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specclient.call.recorder import CallRecorder
from specclient.errors import APIConnectionError, NotFoundError, UnsupportedParameterError
from specclient.providers import Dialect, Endpoint, dialect, dialect_of, usage_requested
from specclient.routing.destinations import Destination
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.wire import WireRequest

#: What tells an engine how to draft, or forbids that anything but the request decides it.
_OWN_DRAFTING = frozenset({"draft_length", "draft_tree", "method", "prediction", "seed"})


def encode_request(
    request: Request, decision: Decision, place: Endpoint, record: CallRecorder
) -> WireRequest:
    """Return a request as its endpoint takes it, whose record is told of tries that come to nothing."""
    wire = dialect_of(place).encode(_to_depth(request, decision, place), place, decision.model)
    headers = wire.headers if record.span is None else record.span.carried(wire.headers)
    return replace(wire, headers=headers, on_failed_attempt=record.note_failed_try)


def _to_depth(request: Request, decision: Decision, place: Endpoint) -> Request:
    """Return a request with the depth that its route was chosen with, where requests can say it there.

    A caller's own field goes before it. A depth of 0 is not sent: each server takes that otherwise.
    """
    depth = None if decision.taken is None else decision.taken.depth
    if not depth or request.operation not in ("chat", "completion"):
        return request
    field = place.capabilities_of(decision.model).draft_length
    if field is None:
        return request
    top, _, nested = field.partition(".")
    body = request.options.body
    given = body.get(top, request.params.get(top))
    if given is not None and not (nested and isinstance(given, Mapping) and nested not in given):
        return request
    value = {**(given or {}), nested: depth} if nested else depth
    return replace(request, options=replace(request.options, body={**body, top: value}))


def without_added_fields(place: Endpoint, request: Request) -> Endpoint:
    """Return an endpoint of which nothing is asked but what the caller asks for."""
    return replace(
        place,
        stream_usage=place.stream_usage and usage_requested(request),
        capabilities=replace(place.capabilities, telemetry_flags={}),
    )


def is_for_caller(chunk: Any, request: Request, *, usage: bool) -> bool:
    """Tell whether a chunk without choices is for the caller, and not there because we have asked for it.

    We ask for usage, and our own server for what it tells of a call.
    """
    if chunk.usage is not None:
        return usage
    return "specclient" not in (chunk.__pydantic_extra__ or {}) or "specclient" in request.options.body


def truncated_stream_error(place: Endpoint) -> APIConnectionError:
    """Return the error for a stream that ended amid its answer."""
    return APIConnectionError(
        message=f"Connection error. The stream of {place.name!r} ended before the answer did: it brought "
        "neither a finish_reason nor [DONE]."
    )


def not_served_in_process(name: str) -> NotFoundError:
    """Return the error for a method that an engine in this process does not serve."""
    return NotFoundError(
        f"{name!r} is an engine in this process and serves chat.completions.create and completions.create "
        "alone; name a hosted provider's model for anything else"
    )


def strategy_bytes_error() -> UnsupportedParameterError:
    """Return the error for a strategy whose answer is wanted as a server's own bytes."""
    error = UnsupportedParameterError(
        "with_streaming_response hands on a server's own bytes, and a strategy may need several answers for "
        "one: leave the strategy out, or use with_raw_response or stream=True"
    )
    error.param = "strategy"
    return error


def dialect_for(place: Destination) -> Dialect:
    """Return the dialect of a destination. Responses of engines have OpenAI's shape."""
    return dialect_of(place) if isinstance(place, Endpoint) else dialect("openai")


def engine_request(request: Request, decision: Decision) -> Request:
    """Return a request as engines take it: ``extra_body`` merged, usage always asked for.

    Where drafting was found to lose it is switched off, unless the request says itself how it drafts, or is
    seeded, for then the same seed is to draw the same whatever the load. Otherwise the engine, which measures
    every round, adapts the depth by itself.

    Raises:
        NotFoundError: for a method that no engine serves.
    """
    if request.operation not in ("chat", "completion"):
        raise not_served_in_process(decision.provider)
    params = {**request.params, **request.options.body}
    if decision.taken is not None and decision.taken.depth == 0:
        own = params.get("specclient") or {}
        if isinstance(own, Mapping) and _OWN_DRAFTING.isdisjoint((*params, *own)):
            params["specclient"] = {**own, "draft_length": 0}
    if request.stream:
        params["stream_options"] = {**(params.get("stream_options") or {}), "include_usage": True}
    return replace(request, params=params)
