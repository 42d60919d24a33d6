"""Turn what became of a line into the record that is written, and a written record into what it tells; pure.

Of an OpenAI line, a line of OpenAI's output file, and ``cost`` beside it::

    {"id": "batch_req_…", "custom_id": …, "response": {"status_code": 200, "request_id": …, "body": {…}},
     "error": null, "cost": "0.000123"}

A server's refusal is its ``response``, with its status; ``error`` is ``{"code", "message"}`` of what went
wrong without an answer, and then ``response`` is null.

Of a plain line, the text of the answer::

    {"id": …, "output": "…", "usage": {"prompt_tokens", "completion_tokens", "estimated"}, "cost": "0.000123",
     "error": null}

and ``message`` beside it, whole, where the answer has calls of tools or a refusal; of a failure, ``output``
is null and ``error`` is ``{"code", "message"}``, with ``status_code`` of a server's refusal.

Money is dollars as text, null where unknown. A line that cannot be read has its number as ``error.line``.
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

#: How every record begins.
_BEGINNING = b'{"id": '


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What became of one line.

    Attributes:
        number: of the line, from 1.
        id: its ``custom_id`` or ``id``.
        ok: whether it was answered.
        data: what is written.
        reason: of a failure, in one line.
        call: the record of the call; None of one that failed.
    """

    number: int
    id: str | int | None
    ok: bool
    data: Mapping[str, Any]
    reason: str | None = None
    call: Call | None = None

    @property
    def cost(self) -> Decimal | None:
        """Dollars; None where unknown."""
        return None if self.call is None else self.call.cost.total

    def line(self) -> bytes:
        """Return the record as a line of a file."""
        return json.dumps(self.data).encode() + b"\n"


def answered_record(line: BatchLine, answer: Any) -> Record:
    """Return the record of a line that was answered."""
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
    told: dict[str, Any] = {"code": kind, "message": words}
    response = None
    if isinstance(error, APIStatusError) and error.response is not None:
        body = error.body if isinstance(error.body, Mapping) else {"message": words}
        request_id = error.request_id
        response = {"status_code": error.status_code, "request_id": request_id, "body": {"error": body}}
        told["status_code"] = error.status_code
    if line.kind == "openai":
        data = _openai(line, response, None if response else told) | {"cost": None}
    else:
        data = {"id": line.id, "output": None, "usage": None, "cost": None, "error": told}
    return Record(number=line.number, id=line.id, ok=False, data=data, reason=f"{kind}: {words}")


def refused_record(line: BatchLine) -> Record:
    """Return the record of a line that has a problem."""
    assert line.problem is not None
    told = {"code": line.problem.code, "message": line.problem.message, "line": line.number}
    if line.kind == "openai":
        data = _openai(line, None, told) | {"cost": None}
    else:
        data = {"id": line.id, "output": None, "usage": None, "cost": None, "error": told}
    return Record(number=line.number, id=line.id, ok=False, data=data, reason=line.problem.message)


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
    whole: dict[str, Any] = message.to_dict(mode="json")
    return whole


class WrittenRecord(NamedTuple):
    """What a written record tells.

    Attributes:
        key: of its line; see :func:`specclient.batch.lines.key_of`.
        cost: dollars; None where it tells none.
    """

    key: str
    ok: bool
    cost: Decimal | None


def parse_record(raw: bytes) -> WrittenRecord | None:
    """Read a line of an output file; None where it is no record of ours."""
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
    """Tell whether what stands at the end of a file is the beginning of a record: no JSON yet, and ours."""
    if not raw.strip(b"\0"):  # a power cut may leave these
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
