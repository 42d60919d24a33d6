"""Answers of calls as the cache keeps them: encoded when they are complete, and decoded for a later call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from specclient.call.answer_fields import FAILED_EVENTS, LAST_EVENTS, type_of
from specclient.call.decode import name_model
from specclient.call.responses.ids import is_local, new_id
from specclient.call.result import CallResult
from specclient.providers import DIALECTS, dialect
from specclient.providers.encoding import json_of
from specclient.response_cache.answer import CachedAnswer
from specclient.types.as_sent import RECEIVED
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.usage import NANO
from specclient.types.wire import WireResponse

__all__ = ["StreamRecording", "chunks_of", "dollars", "result_of", "whole_answer"]

#: States of a response that is complete. An incomplete one has reached its limit of tokens.
_ENDED = frozenset({"completed", "incomplete"})


def whole_answer(request: Request, result: CallResult, made_ms: int) -> CachedAnswer | None:
    """Return a complete answer for the cache; None for one that did not end well."""
    value = result.value
    call: Call | None = getattr(value, "_meta", None)
    if result.error is not None or call is None or call.status != "ok" or not _ended_well(request, value):
        return None
    reply = result.reply
    if reply is None or request.strategy is not None:  # made by an engine, or put together here
        try:
            return CachedAnswer(parts=[json_bytes(value)], **_facts(call, made_ms))
        except (TypeError, ValueError):  # it has no JSON form
            return None
    return CachedAnswer(
        parts=[reply.content],
        dialect=_name_of(result.dialect),
        received=True,
        request_id=reply.request_id,
        **_facts(call, made_ms),
    )


def result_of(request: Request, answer: CachedAnswer) -> CallResult:
    """Return a kept answer as the result of a call.

    Raises:
        APIError: it cannot be decoded.
    """
    (content,) = answer.parts
    headers = {"content-type": "application/json"}
    if answer.request_id is not None:
        headers["x-request-id"] = answer.request_id
    reply = WireResponse(200, headers, content)
    used = dialect(answer.dialect)
    value = used.decode(request.method, reply)
    if answer.dialect != "openai":
        name_model(value, answer.model)
    if (attach := getattr(type(value), "attach_request_id", None)) is not None:
        attach(value, answer.request_id)
    if request.operation == "response" and is_local(getattr(value, "id", None)):
        value.id = new_id("resp")  # each stored response has an id of its own
        reply = replace(reply, content=json_bytes(value))
    return CallResult(value, reply if answer.received else None, None, used)


class StreamRecording:
    """Collects the chunks of a stream while a caller reads them.

    Args:
        request: the request.
        max_bytes: bytes from which on the stream is not kept.
    """

    __slots__ = ("_completes", "_is_over", "_max_bytes", "_parts", "_reasons", "_size")

    def __init__(self, request: Request, max_bytes: int) -> None:
        self._completes = request.operation in ("chat", "completion")
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._reasons: dict[int, str | None] = {}
        self._is_over = False

    def add(self, chunks: Sequence[Any]) -> None:
        """Add chunks as they are now; the caller may change them afterwards."""
        if self._size > self._max_bytes:
            return
        try:
            for chunk in chunks:
                received = chunk.__dict__.get(RECEIVED)
                part: bytes = json_bytes(chunk) if received is None else received
                self._parts.append(part)
                self._size += len(part)
                self._note(chunk)
        except (AttributeError, TypeError, ValueError):  # it has no JSON form; the caller gets it as it is
            self._size = self._max_bytes + 1
        if self._size > self._max_bytes:
            self._parts.clear()

    def answer(self, call: Call, made_ms: int) -> CachedAnswer | None:
        """Return the stream for the cache; None if it did not end well, or is too large."""
        if call.status != "ok" or self._size > self._max_bytes or not self._parts or not self._ended_well():
            return None
        return CachedAnswer(parts=self._parts, **_facts(call, made_ms))

    def _note(self, chunk: Any) -> None:
        if self._completes:
            for choice in chunk.choices:
                if choice.finish_reason is not None or choice.index not in self._reasons:
                    self._reasons[choice.index] = choice.finish_reason
            return
        kind = type_of(chunk)
        if kind in LAST_EVENTS:
            status = getattr(getattr(chunk, "response", None), "status", None)
            self._is_over = kind not in FAILED_EVENTS and status in _ENDED

    def _ended_well(self) -> bool:
        return _finished(self._reasons.values()) if self._completes else self._is_over


def chunks_of(request: Request, answer: CachedAnswer) -> list[Any]:
    """Return the chunks or events of a kept stream.

    Raises:
        APIError: one cannot be decoded.
    """
    read = dialect("openai").events(request.method)
    chunks: list[Any] = []
    for part in answer.parts:
        chunk = read(part, None)
        if request.options.keeps_received:
            if b"\n" in part:
                chunk.__dict__.pop(RECEIVED, None)
            else:
                chunk.__dict__[RECEIVED] = part
        chunks.append(chunk)
    if request.operation == "response":
        _give_new_id(chunks)
    return chunks


def dollars(nano: int | None) -> Decimal | None:
    """Return nano-dollars as dollars; None for None."""
    return None if nano is None else Decimal(nano) / NANO


def json_bytes(value: Any) -> bytes:
    """Return an object as JSON, with only the fields that are set."""
    serializer = getattr(value, "__pydantic_serializer__", None)
    if serializer is None:
        return json_of(value)
    content: bytes = serializer.to_json(value, exclude_unset=True, by_alias=True, warnings=False)
    return content


def _give_new_id(events: Sequence[Any]) -> None:
    """Give a response that was made here an id of its own, as it may be stored again."""
    identity = new_id("resp")
    for event in events:
        response = getattr(event, "response", None)
        if response is not None and is_local(getattr(response, "id", None)):
            response.id = identity


def _facts(call: Call, made_ms: int) -> Mapping[str, Any]:
    return {
        "made_ms": made_ms,
        "provider": call.route.provider,
        "model": call.route.model,
        "route": call.route.chosen,
        "served_model": call.served_model,
        "cost_nano": call.cost.nano,
        "counts": call.counts,
    }


def _ended_well(request: Request, value: Any) -> bool:
    if request.operation in ("chat", "completion"):
        return _finished([choice.finish_reason for choice in value.choices])
    if request.operation == "response":
        return getattr(value, "status", None) in _ENDED
    return bool(getattr(value, "data", None))


def _finished(reasons: Any) -> bool:
    """Return whether all choices have a finish reason; some routers report an error by one."""
    found = list(reasons)
    return bool(found) and all(reason is not None and reason != "error" for reason in found)


def _name_of(used: Any) -> str:
    return next(name for name in DIALECTS if dialect(name) is used)
