"""Records of batch lines: making and parsing.

The record of an OpenAI line is a line of OpenAI's output file with an added ``cost``::

    {"id": "batch_req_…", "custom_id": …, "response": {"status_code": 200, "request_id": …, "body": {…}},
     "error": null, "cost": "0.000123"}

An error response of a server is the ``response``, with its status. For an error without a response,
``error`` is ``{"code", "message"}`` and ``response`` is null.

The record of a plain line has the text of the answer::

    {"id": …, "output": "…", "usage": {"prompt_tokens", "completion_tokens", "estimated"}, "cost": "0.000123",
     "error": null}

It also has the complete ``message`` if the answer has tool calls or a refusal. For a failure, ``output`` is
null and ``error`` is ``{"code", "message"}``, with ``status_code`` for an error response of a server.

Costs are dollars as text; null means unknown. An invalid line has its number as ``error.line``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from specclient.batch.lines import BatchLine, key_of
from specclient.errors import APIStatusError
from specclient.types.call import Call
from specclient.types.chat.chat_completion_message import plain_text

#: The first bytes of every record.
_BEGINNING = b'{"id": '


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of one line.

    Attributes:
        number: line number, from 1.
        id: the line's ``custom_id`` or ``id``.
        ok: whether the line was answered.
        data: the record as JSON values.
        reason: reason of a failure, in one line.
        call: the record of the call; None if it failed.
    """

    number: int
    id: str | int | None
    ok: bool
    data: Mapping[str, Any]
    reason: str | None = None
    call: Call | None = None

    @property
    def cost(self) -> Decimal | None:
        """Dollars; None if unknown."""
        return None if self.call is None else self.call.cost.total

    def line(self) -> bytes:
        """Return the record as a line of a file."""
        return json.dumps(self.data).encode() + b"\n"


def answered_record(line: BatchLine, answer: Any) -> Record:
    """Return the record of an answered line."""
    call: Call = answer.meta
    cost = None if call.cost.total is None else f"{call.cost.total:f}"
    if line.kind == "openai":
        response = {"status_code": 200, "request_id": call.request_id, "body": answer.to_dict(mode="json")}
        data = _openai(line, response, None) | {"cost": cost}
    else:
        usage = {
            "prompt_tokens": call.usage.prompt,
            "completion_tokens": call.usage.completion,
            "estimated": call.usage.estimated,
        }
        data = {"id": line.id, "output": _text(answer), "usage": usage, "cost": cost, "error": None}
        if (message := _beyond_text(answer)) is not None:
            data["message"] = message
    return Record(number=line.number, id=line.id, ok=True, data=data, call=call)


def failed_record(line: BatchLine, error: Exception) -> Record:
    """Return the record of a line whose call failed."""
    kind, words = type(error).__name__, " ".join(str(error).split())
    details: dict[str, Any] = {"code": kind, "message": words}
    response = None
    if isinstance(error, APIStatusError) and error.response is not None:
        body = error.body if isinstance(error.body, Mapping) else {"message": words}
        request_id = error.request_id
        response = {"status_code": error.status_code, "request_id": request_id, "body": {"error": body}}
        details["status_code"] = error.status_code
    if line.kind == "openai":
        data = _openai(line, response, None if response else details) | {"cost": None}
    else:
        data = {"id": line.id, "output": None, "usage": None, "cost": None, "error": details}
    return Record(number=line.number, id=line.id, ok=False, data=data, reason=f"{kind}: {words}")


def refused_record(line: BatchLine) -> Record:
    """Return the record of an invalid line."""
    assert line.problem is not None
    details = {"code": line.problem.code, "message": line.problem.message, "line": line.number}
    if line.kind == "openai":
        data = _openai(line, None, details) | {"cost": None}
    else:
        data = {"id": line.id, "output": None, "usage": None, "cost": None, "error": details}
    return Record(number=line.number, id=line.id, ok=False, data=data, reason=line.problem.message)


def unanswered_record(line: BatchLine, code: str, message: str, call: Call | None = None) -> Record:
    """Return the record of a line of a batch job that has no answer."""
    status = None if call is None else call.http_status
    details: dict[str, Any] = {"code": code, "message": message}
    if line.kind == "openai":
        data = _openai(line, None, details) | {"cost": None}
    else:
        more = {} if status is None else {"status_code": status}
        data = {"id": line.id, "output": None, "usage": None, "cost": None, "error": details | more}
    return Record(number=line.number, id=line.id, ok=False, data=data, reason=f"{code}: {message}")


def _openai(line: BatchLine, response: Mapping[str, Any] | None, error: Any) -> dict[str, Any]:
    identity = f"batch_req_{uuid.uuid4().hex}"
    return {"id": identity, "custom_id": line.id, "response": response, "error": error}


def _text(answer: Any) -> str:
    choice = answer.choices[0] if answer.choices else None
    if choice is None:
        return ""
    message = getattr(choice, "message", None)
    return plain_text(choice.text if message is None else message.content)


def _beyond_text(answer: Any) -> dict[str, Any] | None:
    message = getattr(answer.choices[0], "message", None) if answer.choices else None
    if message is None or not (message.tool_calls or message.function_call or message.refusal):
        return None
    fields: dict[str, Any] = message.to_dict(mode="json")
    return fields


class WrittenRecord(NamedTuple):
    """A record read from an output file.

    Attributes:
        key: the key of its line; see :func:`specclient.batch.lines.key_of`.
        ok: whether the line was answered.
        cost: dollars; None if unknown.
    """

    key: str
    ok: bool
    cost: Decimal | None


def parse_record(raw: bytes) -> WrittenRecord | None:
    """Parse a line of an output file; None if it is not a record."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "error" not in data or "id" not in data:
        return None
    error = data["error"]
    number = error.get("line") if isinstance(error, dict) else None
    if "custom_id" in data and "response" in data:
        response = data["response"] if isinstance(data["response"], dict) else {}
        status = response.get("status_code")
        ok = error is None and isinstance(status, int) and 200 <= status < 300
        return WrittenRecord(key_of("openai", data["custom_id"], number), ok, _cost(data))
    if "output" in data:
        return WrittenRecord(key_of("plain", data["id"], number), error is None, _cost(data))
    return None


def is_truncated_record(raw: bytes) -> bool:
    """Return whether the last bytes of a file are an incomplete record."""
    if not raw.strip(b"\0"):  # a power failure may leave zero bytes
        return True
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return raw.startswith(_BEGINNING) or _BEGINNING.startswith(raw)
    return False


def _cost(data: Mapping[str, Any]) -> Decimal | None:
    cost = data.get("cost")
    try:
        dollars = Decimal(cost) if isinstance(cost, str) else None
    except InvalidOperation:
        return None
    return dollars if dollars is not None and dollars.is_finite() else None
