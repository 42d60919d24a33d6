"""Turn Gemini's answers, whole or streamed, into the fields of OpenAI's.

https://ai.google.dev/api/generate-content#generatecontentresponse. What has no field there stays under the
name Gemini gives it: of a candidate on the choice, of an answer on the completion or chunk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pydantic

from specclient.errors import APIError
from specclient.providers.errors import (
    embedded_error_of,
    error_from,
    first_invalid_field,
    invalid_response_error,
)
from specclient.providers.gemini.usage import usage_fields
from specclient.types.base import WireModel
from specclient.types.chat import ChatCompletionChunk

W = TypeVar("W", bound=WireModel)
GeminiResponseFields = dict[str, Any]

#: The reasons why a candidate ended that OpenAI has words for; another keeps its own, in lower case.
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
    """What came is no answer of Gemini's; says where."""


def body_of(content: bytes, status: int | None) -> GeminiResponseFields:
    """Return a decoded answer.

    Raises:
        APIError: that it is, where it is one; also wrapped in a list.
        APIResponseValidationError: for anything but an object.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise invalid_response_error(content, status, f"it is no JSON: {type(error).__name__}") from None
    inner = body[0] if isinstance(body, list) and body else body
    if isinstance(inner, Mapping) and inner.get("error"):
        raise embedded_error_in(inner)
    if not isinstance(body, dict):
        raise embedded_error_of(content) or invalid_response_error(
            content, status, f"it is a {type(body).__name__}, and no object"
        )
    return body


def embedded_error_in(body: Mapping[str, Any]) -> APIError:
    """Return the error that a body holds, of the class that its code, or the name of it, stands for."""
    inner = body["error"]
    if isinstance(inner, Mapping) and inner.get("code") is None:
        body = {"error": {**inner, "code": _STATUSES.get(str(inner.get("status")))}}
    return error_from(body)


def completion_fields(body: GeminiResponseFields) -> GeminiResponseFields:
    """Return a whole answer as the fields of a chat completion.

    Raises:
        NoAnswerError: for what has another shape, or no candidate and no reason why.
    """
    fields = _common(body)
    choices = [
        _choice(candidate, CandidateState(index, fields.get("id", "")), "message")
        for index, candidate in _candidates(body)
    ]
    if not choices:
        choices = _withheld(body, "message")
        if not choices:
            raise InvalidGeminiResponseError("it has no candidates, and no reason why")
    usage = usage_fields(body.get("usageMetadata"))
    return {**fields, "object": "chat.completion", "choices": choices, **({"usage": usage} if usage else {})}


@dataclass(slots=True)
class CandidateState:
    """What has come of one candidate so far.

    Attributes:
        index: its place among the candidates.
        answer: the id of the answer it belongs to.
        calls: how many functions it has called.
        signature: the last signature that came with its text.
        begun, finished: whether anything of it came; whether its end did.
    """

    index: int
    answer: str
    calls: int = 0
    signature: str | None = None
    begun: bool = False
    finished: bool = False


@dataclass(slots=True)
class GeminiStreamReader:
    """Reads the events of one stream; each holds what has been added since, and the usage so far.

    The usage is handed out once all candidates have ended, in a chunk of its own after the one that said so.
    """

    _candidates: dict[int, CandidateState] = field(default_factory=dict)
    _told: Any = None

    def __call__(self, data: bytes, event: str | None = None) -> list[ChatCompletionChunk] | None:
        """Return the chunks that an event becomes.

        Raises:
            APIError: that the event is, where it is one.
            APIResponseValidationError: for what is no such event.
        """
        if data.strip() == b"[DONE]" or event == "ping":  # some gateways send them
            return None
        body = body_of(data, None)
        try:
            return [read(ChatCompletionChunk, fields) for fields in self._chunks(body)]
        except InvalidGeminiResponseError as error:
            reason = str(error)
        raise invalid_response_error(data, None, reason)

    def _chunks(self, body: GeminiResponseFields) -> list[GeminiResponseFields]:
        """Return the fields of the chunks that an event becomes."""
        fields = {**_common(body), "object": "chat.completion.chunk"}
        choices = [self._added(candidate, index, fields) for index, candidate in _candidates(body)]
        if not choices and (choices := _withheld(body, "delta")):
            self._candidates.setdefault(0, CandidateState(0, "")).finished = True
        self._told = body.get("usageMetadata") or self._told
        chunks = [{**fields, "choices": choices}] if choices else []
        if self._candidates and all(known.finished for known in self._candidates.values()):
            named: GeminiResponseFields = {
                name: fields[name] for name in ("id", "model", "object") if name in fields
            }
            if usage := usage_fields(self._told):
                chunks.append({**named, "choices": [], "usage": usage})
        return chunks

    def _added(
        self, candidate: GeminiResponseFields, index: int, fields: GeminiResponseFields
    ) -> GeminiResponseFields:
        known = self._candidates.setdefault(index, CandidateState(index, fields.get("id", "")))
        return _choice(candidate, known, "delta")


def read(kind: type[W], fields: GeminiResponseFields) -> W:
    """Return fields as a wire object; those of another kind than belongs there are kept as they came.

    Raises:
        NoAnswerError: where something vital has another shape.
    """
    try:
        return kind.received(json.dumps(fields).encode())
    except pydantic.ValidationError as error:
        reason = first_invalid_field(error)
    raise InvalidGeminiResponseError(reason)


def _common(body: GeminiResponseFields) -> GeminiResponseFields:
    """Return what whole answers and chunks have in common."""
    fields = {name: value for name, value in body.items() if name not in _OF_ANSWER}
    for there, here in (("responseId", "id"), ("modelVersion", "model")):
        if isinstance(body.get(there), str):
            fields[here] = body[there]
    return fields


def _candidates(body: GeminiResponseFields) -> list[tuple[int, GeminiResponseFields]]:
    """Return the candidates with their places; the first one's is left out on the wire, being 0."""
    found = []
    for place, candidate in enumerate(_list_of(body.get("candidates"), "candidates")):
        index = candidate.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            index = place
        found.append((index, candidate))
    return found


def _withheld(body: GeminiResponseFields, holder: str) -> list[GeminiResponseFields]:
    """Return the choice that stands for a blocked prompt; why it was is told beside it, by promptFeedback."""
    feedback = body.get("promptFeedback")
    reason = feedback.get("blockReason") if isinstance(feedback, Mapping) else None
    if not reason:
        return []
    said: GeminiResponseFields = {"role": "assistant", "content": None} if holder == "message" else {}
    return [
        {"index": 0, "finish_reason": "content_filter", "native_finish_reason": str(reason), holder: said}
    ]


def _choice(candidate: GeminiResponseFields, known: CandidateState, holder: str) -> GeminiResponseFields:
    """Return a candidate, or what a chunk adds to one, as a choice."""
    choice = {name: value for name, value in candidate.items() if name not in _OF_CANDIDATE}
    content = candidate.get("content")
    if not isinstance(content, Mapping | None):
        raise InvalidGeminiResponseError(f"a candidate's content is a {type(content).__name__}")
    said = _said(_list_of((content or {}).get("parts"), "content.parts"), known)
    reason = candidate.get("finishReason")
    if reason is not None:
        known.finished = True
        choice["native_finish_reason"] = reason
        if known.signature is not None:
            google = said.setdefault("extra_content", {}).setdefault("google", {})
            google["thought_signature"] = known.signature
    if holder == "message" or not known.begun:
        said = {"role": "assistant", "content": None, **said}
    if holder == "message":  # only the pieces of a stream are numbered
        for call in said.get("tool_calls", ()):
            del call["index"]
    known.begun = True
    if logprobs := _logprobs(candidate.get("logprobsResult")):
        choice["logprobs"] = logprobs
    return {**choice, "index": known.index, "finish_reason": _finish(reason, known), holder: said}


def _finish(reason: Any, known: CandidateState) -> str | None:
    if reason == "STOP" and known.calls:
        return "tool_calls"
    return None if reason is None else _FINISHED.get(str(reason), str(reason).lower())


def _said(parts: list[GeminiResponseFields], known: CandidateState) -> GeminiResponseFields:
    """Return the parts of a candidate as the fields of a message or delta that they add to."""
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
                raise InvalidGeminiResponseError("a part's text is no text")
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
    said: GeminiResponseFields = {name: text for name, text in texts.items() if text}
    said |= {name: found for name, found in (("tool_calls", calls), ("images", images)) if found}
    return said | ({"extra_content": {"google": {"parts": others}}} if others else {})


def _call(called: Any, signature: str | None, known: CandidateState) -> GeminiResponseFields:
    """Return a call of a function; one without an id gets one that the same answer always gets."""
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
    """Return a signature where Gemini's OpenAI-compatible endpoint keeps it; it is sent back from there."""
    return {} if signature is None else {"extra_content": {"google": {"thought_signature": signature}}}


def _image_url(held: Any) -> str | None:
    kind = held.get("mimeType") if isinstance(held, Mapping) else None
    if not (isinstance(kind, str) and kind.startswith("image/") and isinstance(held.get("data"), str)):
        return None
    return f"data:{kind};base64,{held['data']}"


def _logprobs(result: Any) -> GeminiResponseFields | None:
    """Return log probabilities; the likely tokens of a position stand in a list beside the chosen ones."""
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
        raise InvalidGeminiResponseError(f"{name} is no list of objects")
    return value
