"""The lines of a vendor's batch outputs, as records of calls.

Two formats: OpenAI's and its relatives', ``{"id", "custom_id", "response": {"status_code", "request_id",
"body"}, "error"}`` (OpenAI, "Batch API", output file), and Anthropic's, ``{"custom_id", "result": {"type",
"message" or "error"}}`` (Anthropic, "Batch processing", results).

Each line has one id in the ledger, which follows from the line alone, so a line that is read again, in
another process or after a restart, is the same row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from pydantic_core import from_json, to_json

from specclient.call.answer_counts import AnswerCounter
from specclient.call.answer_fields import model_of
from specclient.call.decode import usage_reader
from specclient.errors import APIError
from specclient.prices.prices import Prices
from specclient.prices.tier_rates import BATCH
from specclient.providers import Endpoint, dialect_of
from specclient.types.api_method import ApiMethod
from specclient.types.call import Call
from specclient.types.chat import ChatCompletion
from specclient.types.completion import Completion
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, RESPONSE
from specclient.types.route import Decision
from specclient.types.usage import Cost, Usage
from specclient.types.wire import WireResponse

__all__ = ["BATCH_TAG", "BatchOutput", "decoded_answer", "parse_output", "record_of"]

#: The tag that names the job, or the file that its lines were read from.
BATCH_TAG: Final = "batch"

#: Methods by the ``object`` of the answers.
_METHODS: Final[Mapping[str, ApiMethod]] = MappingProxyType(
    {"chat.completion": CHAT, "text_completion": COMPLETION, "response": RESPONSE, "list": EMBEDDING}
)
_LONGEST = 256
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """One line of a batch's output.

    Attributes:
        identity: names the line among all lines of its file or job.
        custom_id: as the request named it.
        body: the answer; None if the request failed.
        status: the HTTP status; None if there was no response.
        error: the code or type of the error; None for an answer.
        request_id: the provider's id of the request.
    """

    identity: str
    custom_id: str
    body: Mapping[str, Any] | None = None
    status: int | None = None
    error: str | None = None
    request_id: str | None = None


def parse_output(raw: bytes) -> BatchOutput | None:
    """Parse a line of an output; None if it is not one, or is cut short."""
    try:
        given = from_json(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not isinstance(custom_id := given.get("custom_id"), str):
        return None
    result, response, error = given.get("result"), given.get("response"), given.get("error")
    if isinstance(result, dict):
        return _anthropic(custom_id, result)
    if "response" not in given or not isinstance(response, dict | None):
        return None
    identity = f"{_text(given.get('id')) or ''}\0{custom_id}"
    if response is None:
        return BatchOutput(identity, custom_id, error=_reason(error)) if error is not None else None
    status = response.get("status_code")
    body, request_id = response.get("body"), _text(response.get("request_id"))
    answered = error is None and (type(status) is not int or 200 <= status < 300)
    if answered and isinstance(body, dict):
        return BatchOutput(identity, custom_id, body, 200 if status is None else status, None, request_id)
    failure = error if error is not None else body.get("error") if isinstance(body, dict) else None
    known = status if type(status) is int else None
    return BatchOutput(identity, custom_id, None, known, _reason(failure), request_id)


def _anthropic(custom_id: str, result: Mapping[str, Any]) -> BatchOutput | None:
    message, kind = result.get("message"), _text(result.get("type"))
    if kind == "succeeded":
        return BatchOutput(custom_id, custom_id, message, 200) if isinstance(message, dict) else None
    error = result.get("error")
    inner = error.get("error") if isinstance(error, dict) else None  # {"type": "error", "error": {"type": …}}
    return BatchOutput(custom_id, custom_id, error=_reason(inner if isinstance(inner, dict) else kind))


def record_of(
    line: BatchOutput,
    endpoint: Endpoint,
    prices: Prices,
    *,
    scope: str,
    job: str,
    tags: Mapping[str, str] = MappingProxyType({}),
    at: datetime | None = None,
) -> Call:
    """Return the record of a line, at the price of the batch tier.

    Args:
        endpoint: the provider that ran the job.
        scope: the file or the job that the line was read from; it makes the row's id unique.
        job: the value of the tag :data:`BATCH_TAG`.
        tags: further tags.
        at: the time of the call if the answer does not state one; None for now.

    Returns:
        The record. A line without an answer cost nothing (OpenAI, "Batch expiration"; Anthropic, "Batch
        processing", results). The cost of an answer that cannot be read is unknown.
    """
    body, route = line.body, _route_of(line, endpoint)
    created = _time_of(body) or at or datetime.now(UTC)
    answer = None if body is None else decoded_answer(body, endpoint)
    served, usage = None if answer is None else model_of(answer), Usage()
    cost = Cost(_ZERO, {}, "not billed: the line has no answer")
    if body is not None:
        found = None if answer is None else usage_reader(endpoint)(answer)
        usage = replace(found or usage, traffic=BATCH)
        cost = prices.price(
            usage,
            endpoint.name,
            route.model,
            price_provider=endpoint.price_provider,
            at=created,
            served=served,
            rejected_billed=endpoint.capabilities.rejected_billed,
        )
    return Call(
        id=_row_id(endpoint.name, scope, line.identity),
        started_at=created,
        operation=_method_of(body).operation,
        model=route.chosen,
        route=route,
        served_model=served,
        status="error" if body is None else "ok",
        error=line.error,
        http_status=line.status,
        usage=usage,
        cost=cost,
        request_id=line.request_id,
        tags={**tags, BATCH_TAG: job},
        purpose="batch",
        counts=_counts(answer),
    )


def _route_of(line: BatchOutput, endpoint: Endpoint) -> Decision:
    """Return the route of a line, by the model that its answer names."""
    model = (None if line.body is None else _text(line.body.get("model"))) or "unknown"
    return Decision(chosen=f"{endpoint.name}/{model}", provider=endpoint.name, model=model)


def _row_id(*names: str) -> str:
    return hashlib.sha256("\0".join(("batch line", *names)).encode("utf-8", "replace")).hexdigest()[:32]


def _method_of(body: Mapping[str, Any] | None) -> ApiMethod:
    """Return the method that an answer is of; Anthropic's messages are read as chats."""
    return CHAT if body is None else _METHODS.get(str(body.get("object")), CHAT)


def decoded_answer(body: Mapping[str, Any], endpoint: Endpoint) -> Any:
    """Return an answer as its API method has it; None if it cannot be read."""
    try:
        return dialect_of(endpoint).decode(_method_of(body), WireResponse(200, {}, to_json(body)))
    except (APIError, ValueError):
        return None


def _counts(answer: Any) -> Mapping[str, int]:
    counter = AnswerCounter()
    if isinstance(answer, ChatCompletion | Completion):
        counter.note_answer(answer)
    elif answer is not None:
        counter.note_response(answer)
    return counter.counts()


def _time_of(body: Mapping[str, Any] | None) -> datetime | None:
    """Return when an answer was created, by its own statement."""
    created = None if body is None else body.get("created", body.get("created_at"))
    if isinstance(created, bool) or not isinstance(created, int | float) or not 0 < created < 2**33:
        return None
    return datetime.fromtimestamp(created, UTC)


def _reason(error: object) -> str:
    """Return the code or the type of an error."""
    if isinstance(error, Mapping):
        return _text(error.get("code")) or _text(error.get("type")) or "error"
    return _text(error) or "error"


def _text(value: object) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) and value else None
