"""Conversion of Gemini responses to the fields of OpenAI's chat completions.

https://ai.google.dev/api/generate-content#generatecontentresponse. Fields without a counterpart keep Gemini's
name: those of a candidate on the choice, those of the response on the completion or chunk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic

from specclient.errors import APIError
from specclient.providers.errors import (
    embedded_error_of,
    error_from,
    first_invalid_field,
    invalid_response_error,
)
from specclient.providers.gemini.grounding import billed_searches, queries_in
from specclient.providers.gemini.usage import usage_fields
from specclient.types.base import WireModel

W = TypeVar("W", bound=WireModel)
GeminiResponseFields = dict[str, Any]

#: OpenAI's finish reasons for Gemini's; a reason not listed is kept, in lower case.
_FINISHED = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        ),
        "content_filter",
    ),
}
#: google.rpc.Code by name, as HTTP statuses (https://cloud.google.com/apis/design/errors#handling_errors).
_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_OF_ANSWER = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId"})
_OF_CANDIDATE = frozenset({"content", "finishReason", "index", "logprobsResult"})


class InvalidGeminiResponseError(ValueError):
    """A body is not a Gemini response. The message names the invalid field."""


def body_of(content: bytes, status: int | None) -> GeminiResponseFields:
    """Decode a response's body.

    Raises:
        APIError: the body is an error object, or a list that contains one.
        APIResponseValidationError: the body is not a JSON object.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise invalid_response_error(content, status, f"it is not JSON: {type(error).__name__}") from None
    inner = body[0] if isinstance(body, list) and body else body
    if isinstance(inner, Mapping) and inner.get("error"):
        raise embedded_error_in(inner)
    if not isinstance(body, dict):
        raise embedded_error_of(content) or invalid_response_error(
            content, status, f"it is a {type(body).__name__}, not an object"
        )
    return body


def embedded_error_in(body: Mapping[str, Any]) -> APIError:
    """Return the error in a body. Its class follows from its code, or from its status name."""
    inner = body["error"]
    if isinstance(inner, Mapping) and inner.get("code") is None:
        body = {"error": {**inner, "code": _STATUSES.get(str(inner.get("status")))}}
    return error_from(body)


def completion_fields(body: GeminiResponseFields) -> GeminiResponseFields:
    """Return the fields of a chat completion from a whole response.

    Raises:
        InvalidGeminiResponseError: the response is malformed, or has neither candidates nor a block reason.
    """
    fields = common_fields(body)
    choices = [
        choice_of(candidate, CandidateState(index, fields.get("id", "")), "message")
        for index, candidate in candidates_of(body)
    ]
    if not choices:
        choices = blocked_choices(body, "message")
        if not choices:
            raise InvalidGeminiResponseError("it has neither candidates nor a block reason")
    usage = usage_fields(body.get("usageMetadata"))
    if usage and (queries := queries_in(candidate for _, candidate in candidates_of(body))):
        usage |= billed_searches(queries, str(fields.get("model", "")))
    return {**fields, "object": "chat.completion", "choices": choices, **({"usage": usage} if usage else {})}


@dataclass(slots=True)
class CandidateState:
    """The state of one candidate while its response is read.

    Attributes:
        index: its index among the candidates.
        answer: the id of its response.
        calls: the number of function calls so far.
        signature: the last signature received with its text.
        begun, finished: whether a part of it, and whether its end, has been received.
    """

    index: int
    answer: str
    calls: int = 0
    signature: str | None = None
    begun: bool = False
    finished: bool = False


def read(kind: type[W], fields: GeminiResponseFields) -> W:
    """Return a wire object with the given fields. Values of the wrong type are kept unchanged if optional.

    Raises:
        InvalidGeminiResponseError: a required field is malformed.
    """
    try:
        return kind.received(json.dumps(fields).encode())
    except pydantic.ValidationError as error:
        reason = first_invalid_field(error)
    raise InvalidGeminiResponseError(reason)


def common_fields(body: GeminiResponseFields) -> GeminiResponseFields:
    """Return the fields that whole responses and chunks have in common."""
    fields = {name: value for name, value in body.items() if name not in _OF_ANSWER}
    for there, here in (("responseId", "id"), ("modelVersion", "model")):
        if isinstance(body.get(there), str):
            fields[here] = body[there]
    return fields


def candidates_of(body: GeminiResponseFields) -> list[tuple[int, GeminiResponseFields]]:
    """Return the candidates with their indexes. An index of 0 is omitted on the wire."""
    indexed = []
    for place, candidate in enumerate(_list_of(body.get("candidates"), "candidates")):
        index = candidate.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            index = place
        indexed.append((index, candidate))
    return indexed


def blocked_choices(body: GeminiResponseFields, holder: str) -> list[GeminiResponseFields]:
    """Return the choice for a blocked prompt, if it was blocked. ``promptFeedback`` gives details."""
    feedback = body.get("promptFeedback")
    reason = feedback.get("blockReason") if isinstance(feedback, Mapping) else None
    if not reason:
        return []
    message: GeminiResponseFields = {"role": "assistant", "content": None} if holder == "message" else {}
    return [
        {"index": 0, "finish_reason": "content_filter", "native_finish_reason": str(reason), holder: message}
    ]


def choice_of(candidate: GeminiResponseFields, known: CandidateState, holder: str) -> GeminiResponseFields:
    """Return the choice for a candidate, or for the part of one that a chunk contains."""
    choice = {name: value for name, value in candidate.items() if name not in _OF_CANDIDATE}
    content = candidate.get("content")
    if not isinstance(content, Mapping | None):
        raise InvalidGeminiResponseError(f"a candidate's content is a {type(content).__name__}")
    message = _message_fields(_list_of((content or {}).get("parts"), "content.parts"), known)
    reason = candidate.get("finishReason")
    if reason is not None:
        known.finished = True
        choice["native_finish_reason"] = reason
        if known.signature is not None:
            google = message.setdefault("extra_content", {}).setdefault("google", {})
            google["thought_signature"] = known.signature
    if holder == "message" or not known.begun:
        message = {"role": "assistant", "content": None, **message}
    if holder == "message":  # only tool calls of a stream have an index
        for call in message.get("tool_calls", ()):
            del call["index"]
    known.begun = True
    if logprobs := _logprobs(candidate.get("logprobsResult")):
        choice["logprobs"] = logprobs
    return {**choice, "index": known.index, "finish_reason": _finish(reason, known), holder: message}


def _finish(reason: Any, known: CandidateState) -> str | None:
    if reason == "STOP" and known.calls:
        return "tool_calls"
    return None if reason is None else _FINISHED.get(str(reason), str(reason).lower())


def _message_fields(parts: list[GeminiResponseFields], known: CandidateState) -> GeminiResponseFields:
    """Return the fields of a message or delta from the parts of a candidate."""
    texts: dict[str, str] = {}
    calls: list[GeminiResponseFields] = []
    images: list[GeminiResponseFields] = []
    others: list[GeminiResponseFields] = []
    for part in parts:
        signature = part.get("thoughtSignature")
        signature = signature if isinstance(signature, str) else None
        if "functionCall" in part:
            calls.append(_call(part["functionCall"], signature, known))
        elif "text" in part:
            if not isinstance(part["text"], str):
                raise InvalidGeminiResponseError("a part's text is not a string")
            name = "reasoning_content" if part.get("thought") is True else "content"
            texts[name] = texts.get(name, "") + part["text"]
            known.signature = signature or known.signature
        elif url := _image_url(part.get("inlineData")):
            image: GeminiResponseFields = {"type": "image_url", "image_url": {"url": url}}
            images.append(image | _signed(signature))
        elif part.keys() == {"thoughtSignature"}:
            known.signature = signature or known.signature
        else:
            others.append(part)
    fields: GeminiResponseFields = {name: text for name, text in texts.items() if text}
    fields |= {name: entries for name, entries in (("tool_calls", calls), ("images", images)) if entries}
    return fields | ({"extra_content": {"google": {"parts": others}}} if others else {})


def _call(called: Any, signature: str | None, known: CandidateState) -> GeminiResponseFields:
    """Return a tool call. One without an id gets a deterministic id, the same for the same response."""
    if not isinstance(called, Mapping) or not isinstance(called.get("name"), str):
        raise InvalidGeminiResponseError("a functionCall has no name")
    arguments = json.dumps(called.get("args") or {}, ensure_ascii=False)
    place, known.calls = known.calls, known.calls + 1
    identity = called.get("id")
    if not (isinstance(identity, str) and identity):
        seed = "\0".join((known.answer, str(known.index), str(place), called["name"], arguments))
        identity = "call_" + hashlib.blake2s(seed.encode("utf-8", "replace"), digest_size=12).hexdigest()
    function = {"name": called["name"], "arguments": arguments}
    return {"index": place, "id": identity, "type": "function", "function": function} | _signed(signature)


def _signed(signature: str | None) -> GeminiResponseFields:
    """Return a signature in the field of Gemini's OpenAI-compatible endpoint, from which it is sent back."""
    return {} if signature is None else {"extra_content": {"google": {"thought_signature": signature}}}


def _image_url(held: Any) -> str | None:
    kind = held.get("mimeType") if isinstance(held, Mapping) else None
    if not (isinstance(kind, str) and kind.startswith("image/") and isinstance(held.get("data"), str)):
        return None
    return f"data:{kind};base64,{held['data']}"


def _logprobs(result: Any) -> GeminiResponseFields | None:
    """Return log probabilities. Gemini lists the top tokens of each position apart from the chosen ones."""
    if not isinstance(result, Mapping):
        return None
    chosen = _list_of(result.get("chosenCandidates"), "logprobsResult.chosenCandidates")
    likely = _list_of(result.get("topCandidates"), "logprobsResult.topCandidates")
    content = []
    for place, token in enumerate(chosen):
        others = likely[place].get("candidates") if place < len(likely) else None
        tops = [_logprob(other) for other in _list_of(others, "topCandidates.candidates")]
        content.append({**_logprob(token), "top_logprobs": tops})
    return {"content": content, "refusal": None} if content else None


def _logprob(token: GeminiResponseFields) -> GeminiResponseFields:
    identity = {"token_id": token["tokenId"]} if "tokenId" in token else {}
    return {
        "token": token.get("token", ""),
        "logprob": token.get("logProbability"),
        "bytes": None,
        **identity,
    }


def _list_of(value: Any, name: str) -> list[GeminiResponseFields]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise InvalidGeminiResponseError(f"{name} is not a list of objects")
    return value
