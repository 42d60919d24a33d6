"""A chat completion as Gemini's response: https://ai.google.dev/api/generate-content#generatecontentresponse."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from specclient.call.result import CallResult
from specclient.gemini_http.request import shows_thoughts
from specclient.openai_http.request import EXTENSION, IncomingCall
from specclient.openai_http.response import call_extension, unreadable_answers_refused
from specclient.providers import dialect
from specclient.providers.encoding import json_of
from specclient.routing.router import AUTO
from specclient.types.call import Call
from specclient.types.chat import ChatCompletion
from specclient.types.chat.chat_completion_message import plain_text
from specclient.types.request import Request

__all__ = ["call_part", "content_body", "finish_name", "frame", "thought_of", "usage_metadata"]

_FINISHED = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
_REASONING = ("reasoning_content", "reasoning")


def content_body(result: CallResult, call: IncomingCall) -> bytes:
    """Return the body of a complete answer: the upstream's own if it speaks Gemini's API.

    Raises:
        APIError: the upstream's response could not be decoded.
    """
    answer: ChatCompletion = result.unwrap()
    extension = {EXTENSION: call_extension(answer.meta)} if call.meta else {}
    native = result.reply is not None and result.dialect is dialect("gemini")
    if native and result.reply is not None and call.request.strategy is None:
        content = result.reply.content
        return json_of({**json.loads(content), **extension}) if extension else content
    with unreadable_answers_refused():
        candidates = [_candidate(choice, call.request) for choice in answer.choices]
        found = {"candidates": candidates, **usage_metadata(answer.usage)}
        return json_of({**found, **frame(call.request, answer.meta), **extension})


def frame(request: Request, record: Call) -> dict[str, str]:
    """Return the fields that are the same in all events of a response."""
    model = record.route.chosen if request.model == AUTO else request.model
    return {"modelVersion": model, "responseId": os.urandom(12).hex()}


def finish_name(choice: Any) -> str:
    """Return Gemini's finish reason of a choice: its own where a Gemini upstream gave it."""
    native = (choice.model_extra or {}).get("native_finish_reason")
    if isinstance(native, str) and native.isupper():
        return native
    return _FINISHED.get(choice.finish_reason or "stop", "OTHER")


def thought_of(message: Any) -> str:
    """Return the reasoning of a message or delta; empty without any."""
    extra: Mapping[str, Any] = message.model_extra or {}
    return next((text for name in _REASONING if isinstance(text := extra.get(name), str) and text), "")


def call_part(name: str, arguments: str, identity: str | None, extra: object) -> dict[str, Any]:
    """Return the part of a function call.

    Args:
        name: the function.
        arguments: its arguments as JSON; empty ones if they are no JSON object, as of a truncated answer.
        identity: the call's id.
        extra: ``extra_content`` of the call, with the signature of a Gemini upstream.
    """
    try:
        decoded = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        decoded = {}
    called = {"name": name, "args": decoded if isinstance(decoded, dict) else {}}
    google = extra.get("google") if isinstance(extra, Mapping) else None
    signature = google.get("thought_signature") if isinstance(google, Mapping) else None
    signed = {"thoughtSignature": signature} if isinstance(signature, str) else {}
    return {"functionCall": {**({"id": identity} if identity else {}), **called}, **signed}


def usage_metadata(usage: Any) -> dict[str, Any]:
    """Return the field ``usageMetadata``; no field if the usage is unknown."""
    if usage is None:
        return {}
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    thoughts = _count(usage.completion_tokens_details, "reasoning_tokens")
    cached = _count(usage.prompt_tokens_details, "cached_tokens")
    counts = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": max(completion - thoughts, 0),
        "totalTokenCount": prompt + completion,
        **({"thoughtsTokenCount": thoughts} if thoughts else {}),
        **({"cachedContentTokenCount": cached} if cached else {}),
    }
    return {"usageMetadata": counts}


def _candidate(choice: Any, request: Request) -> dict[str, Any]:
    message, parts = choice.message, list[dict[str, Any]]()
    if (thought := thought_of(message)) and shows_thoughts(request):
        parts.append({"text": thought, "thought": True})
    calls = [call for call in message.tool_calls or [] if getattr(call, "function", None) is not None]
    text = plain_text(message.content) or message.refusal
    if text or not calls:
        parts.append({"text": text or ""})
    for call in calls:
        extra = (call.model_extra or {}).get("extra_content")
        parts.append(call_part(call.function.name, call.function.arguments, call.id, extra))
    content = {"role": "model", "parts": parts}
    scores = {"logprobsResult": _scores(choice.logprobs)} if choice.logprobs is not None else {}
    return {"content": content, "finishReason": finish_name(choice), "index": choice.index, **scores}


def _scores(logprobs: Any) -> dict[str, Any]:
    tokens = logprobs.content or []
    return {
        "chosenCandidates": [_score(token) for token in tokens],
        "topCandidates": [
            {"candidates": [_score(top) for top in token.top_logprobs or []]} for token in tokens
        ],
    }


def _score(token: Any) -> dict[str, Any]:
    return {"token": token.token, "logProbability": token.logprob}


def _count(details: Any, name: str) -> int:
    value = getattr(details, name, None)
    return value if isinstance(value, int) and value >= 0 else 0
