"""Results of calls as Ollama's JSON objects: one for a complete answer, one on each line of a stream.

Fields: https://github.com/ollama/ollama/blob/main/docs/api.md. Durations are in nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from specclient.call.result import CallResult
from specclient.ollama_http.errors import error_body
from specclient.ollama_http.request import OllamaCall
from specclient.openai_http.errors import ServingError
from specclient.openai_http.request import EXTENSION, IncomingCall
from specclient.openai_http.response import call_extension, unreadable_answers_refused
from specclient.providers.encoding import json_of
from specclient.routing.router import AUTO
from specclient.types.call import Call
from specclient.types.request import Request

__all__ = ["NDJSON", "AnswerLines", "answer_body", "loaded_body"]

NDJSON = "application/x-ndjson"
_NANO = 1_000_000_000
#: Fields in which servers show reasoning.
_REASONING = ("reasoning_content", "reasoning")


def answer_body(asked: OllamaCall, result: CallResult, call: IncomingCall) -> bytes:
    """Return the body of a complete answer.

    Raises:
        APIError: the upstream's response could not be decoded.
    """
    answer = result.unwrap()
    record: Call = answer.meta
    with unreadable_answers_refused():
        choice = answer.choices[0] if answer.choices else None
        message = getattr(choice, "message", None)
        text = getattr(choice, "text", None) if message is None else message.content or message.refusal
        calls = [] if message is None else [_whole_call(each) for each in message.tool_calls or []]
        piece = _piece(asked, text, thinking=_thought(asked, message), calls=calls, choice=choice)
        done = _done(record, answer.usage, getattr(choice, "finish_reason", None))
        extension = {EXTENSION: call_extension(record)} if call.meta else {}
        return json_of({**_head(_shown_model(call.request, record)), **piece, **done, **extension})


def loaded_body(asked: OllamaCall) -> bytes:
    """Return the body for a request without a prompt, which loads or unloads a model."""
    reason = {"done": True, "done_reason": "unload" if asked.unload else "load"}
    return json_of({**_head(asked.call.request.model), **_piece(asked, ""), **reason})


class AnswerLines:
    """Encodes the chunks of one stream as lines of JSON.

    Tool calls stand on one line when they are complete, before the last line.

    Args:
        asked: the request.
        call: the call that is streamed.
        record: returns the call's record.
    """

    def __init__(self, asked: OllamaCall, call: IncomingCall, record: Callable[[], Call]) -> None:
        self._asked, self._call, self._record = asked, call, record
        self._finish: str | None = None
        self._usage: Any = None
        self._calls: dict[int, dict[str, str]] = {}

    def begin(self) -> bytes:
        """Return the lines before the first chunk: none."""
        return b""

    def chunks(self, chunks: Sequence[Any]) -> bytes:
        """Return the lines of chunks that arrived together."""
        with unreadable_answers_refused():
            return b"".join([_line(each) for chunk in chunks for each in self._of(chunk)])

    def end(self, record: Callable[[], Call]) -> bytes:
        """Return the lines after the last chunk.

        Args:
            record: returns the call's record.
        """
        closed, lines = record(), list[dict[str, Any]]()
        with unreadable_answers_refused():
            if self._calls:
                calls = [_called(**call) for _, call in sorted(self._calls.items())]
                lines.append(self._object(_piece(self._asked, "", calls=calls), {"done": False}))
            done = _done(closed, self._usage, self._finish)
            extension = {EXTENSION: call_extension(closed)} if self._call.meta else {}
            lines.append(self._object(_piece(self._asked, ""), {**done, **extension}))
        return b"".join(map(_line, lines))

    def failed(self, problem: ServingError) -> bytes:
        """Return the line of an error that ends the stream."""
        return error_body(problem) + b"\n"

    def _of(self, chunk: Any) -> Iterator[dict[str, Any]]:
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._finish = choice.finish_reason or self._finish
            delta = getattr(choice, "delta", None)
            text = getattr(choice, "text", None) if delta is None else delta.content or delta.refusal
            thought = _thought(self._asked, delta)
            if text or thought:
                piece = _piece(self._asked, text, thinking=thought, choice=choice)
                yield self._object(piece, {"done": False})
            for call in (delta.tool_calls or []) if delta is not None else []:
                self._add_call(call)

    def _add_call(self, call: Any) -> None:
        known = self._calls.setdefault(call.index, {"id": "", "name": "", "arguments": ""})
        function = call.function
        known["id"] = known["id"] or call.id or ""
        if function is not None:
            known["name"] = known["name"] or function.name or ""
            known["arguments"] += function.arguments or ""

    def _object(self, piece: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
        return {**_head(_shown_model(self._call.request, self._record())), **piece, **rest}


def _shown_model(request: Request, record: Call) -> str:
    """Return the model's name in an answer: as requested, or the route that was chosen for ``auto``."""
    return record.route.chosen if request.model == AUTO else request.model


def _head(model: str) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    return {"model": model, "created_at": now.replace("+00:00", "Z")}


def _piece(
    asked: OllamaCall,
    text: str | None,
    *,
    thinking: str | None = None,
    calls: Sequence[Mapping[str, Any]] = (),
    choice: Any = None,
) -> dict[str, Any]:
    """Return the fields with a piece of the answer."""
    thought = {"thinking": thinking} if thinking else {}
    tokens = _logprobs(choice)
    shown = {"logprobs": tokens} if tokens else {}
    if asked.kind == "generate":
        return {"response": text or "", **thought, **shown}
    called = {"tool_calls": list(calls)} if calls else {}
    return {"message": {"role": "assistant", "content": text or "", **thought, **called}, **shown}


def _done(record: Call, usage: Any, finish: str | None) -> dict[str, Any]:
    """Return the fields of the last object: why the answer ended, durations and counts.

    The time to load a model is a part of the time until the first text, and so is not stated by itself. A
    complete answer has no first text: all of its time is the answer's.
    """
    total = int(record.latency_s * _NANO)
    prompt = int((record.ttft_s or 0) * _NANO)
    counts = {
        "prompt_eval_count": getattr(usage, "prompt_tokens", None) or 0,
        "eval_count": getattr(usage, "completion_tokens", None) or 0,
    }
    return {
        "done": True,
        "done_reason": "length" if finish == "length" else "stop",
        "total_duration": total,
        "load_duration": 0,
        "prompt_eval_duration": prompt,
        "eval_duration": max(total - prompt, 0),
        **counts,
    }


def _thought(asked: OllamaCall, message: Any) -> str | None:
    """Return the reasoning in a message or a delta, unless the request hides it."""
    extra = (message.model_extra or {}) if message is not None and asked.thinks else {}
    return next((value for name in _REASONING if isinstance(value := extra.get(name), str) and value), None)


def _whole_call(call: Any) -> dict[str, Any]:
    return _called(call.id or "", call.function.name or "", call.function.arguments or "")


def _called(id: str, name: str, arguments: str) -> dict[str, Any]:  # noqa: A002
    """Return a tool call. Its arguments are an object, empty if they are none, as of a truncated answer."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        given = {}
    function = {"name": name, "arguments": given if isinstance(given, dict) else {}}
    return {"id": id, "function": function} if id else {"function": function}


def _logprobs(choice: Any) -> list[dict[str, Any]]:
    content = getattr(getattr(choice, "logprobs", None), "content", None)
    return [
        {**_token(each), "top_logprobs": [_token(other) for other in each.top_logprobs or []]}
        for each in content or []
    ]


def _token(each: Any) -> dict[str, Any]:
    return {"token": each.token, "logprob": each.logprob, "bytes": each.bytes}


def _line(value: Mapping[str, Any]) -> bytes:
    return json_of(value) + b"\n"
