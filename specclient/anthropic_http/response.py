"""A chat completion as a message of Anthropic's API: https://platform.claude.com/docs/en/api/messages."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from specclient.anthropic_http.thinking import REASONING_FIELDS, thinking_signature
from specclient.call.result import CallResult
from specclient.openai_http.request import EXTENSION, IncomingCall
from specclient.openai_http.response import call_extension, unreadable_answers_refused
from specclient.providers import dialect
from specclient.providers.encoding import json_of
from specclient.routing.router import AUTO
from specclient.types.call import Call
from specclient.types.chat import ChatCompletion
from specclient.types.chat.chat_completion_message import plain_text
from specclient.types.request import Request

__all__ = [
    "message_body",
    "message_of",
    "new_id",
    "shown_model",
    "stop_fields",
    "usage_fields",
]

#: Stop reasons by finish reason.
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_UNKNOWN_USAGE = dict.fromkeys(
    ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"), 0
)


def message_body(result: CallResult, call: IncomingCall) -> bytes:
    """Return the body of a complete answer: the upstream's own if it speaks Anthropic's API.

    Raises:
        APIError: the upstream's response could not be decoded.
    """
    answer: ChatCompletion = result.unwrap()
    extension = {EXTENSION: call_extension(answer.meta)} if call.meta else {}
    native = result.reply is not None and result.dialect is dialect("anthropic")
    if native and result.reply is not None and call.request.strategy is None:
        content = result.reply.content
        return json_of({**json.loads(content), **extension}) if extension else content
    with unreadable_answers_refused():
        return json_of({**message_of(call.request, answer, answer.meta), **extension})


def message_of(request: Request, answer: ChatCompletion, record: Call) -> dict[str, Any]:
    """Return a chat completion as a message.

    Args:
        request: the chat completion's request.
        answer: the chat completion.
        record: the call's record, which names the route.
    """
    choice = answer.choices[0] if answer.choices else None
    blocks = list[dict[str, Any]]() if choice is None else _blocks(choice.message, record.route.provider)
    calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": shown_model(request, record),
        "content": blocks,
        **stop_fields(request, choice, calls=calls),
        "usage": usage_fields(answer.usage),
    }


def shown_model(request: Request, record: Call) -> str:
    """Return the model's name in an answer: as requested, or the route that was chosen for ``auto``."""
    return record.route.chosen if request.model == AUTO else request.model


def stop_fields(request: Request, choice: Any, *, calls: bool) -> dict[str, Any]:
    """Return ``stop_reason`` and ``stop_sequence``.

    Args:
        request: the chat completion's request.
        choice: the choice, or the chunk's choice, with the finish reason; None without one.
        calls: whether the answer calls a tool. Some servers then give the finish reason ``stop``.
    """
    finish = getattr(choice, "finish_reason", None)
    extra = (getattr(choice, "model_extra", None) or {}) if choice is not None else {}
    matched, stops = extra.get("stop_sequence"), request.params.get("stop")
    if not isinstance(matched, str):  # vLLM and its relatives name the stop string in stop_reason
        matched = extra.get("stop_reason")
    if finish == "stop" and isinstance(stops, list) and isinstance(matched, str) and matched in stops:
        return {"stop_reason": "stop_sequence", "stop_sequence": matched}
    if calls and finish == "stop":
        finish = "tool_calls"
    reason = _STOP_REASONS.get(finish or "stop", "end_turn")
    return {"stop_reason": reason, "stop_sequence": None}


def usage_fields(usage: Any) -> dict[str, Any]:
    """Return Anthropic's usage, whose input tokens are those that no cache held; zeros if it is unknown."""
    if usage is None:
        return dict(_UNKNOWN_USAGE)
    details = usage.prompt_tokens_details
    read, written = (_count(details, name) for name in ("cached_tokens", "cache_write_tokens"))
    return {
        "input_tokens": max((usage.prompt_tokens or 0) - read - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.completion_tokens or 0,
    }


def new_id(kind: str) -> str:
    """Return a new identifier."""
    return f"{kind}_{os.urandom(12).hex()}"


def tool_use(call: Any) -> dict[str, Any]:
    """Return the block of a tool call, with empty input."""
    function = getattr(call, "function", None)
    extra = (call.model_extra or {}).get("extra_content")
    block = {"type": "tool_use", "id": call.id or new_id("toolu"), "name": (function and function.name) or ""}
    return {**block, "input": {}, **({"extra_content": extra} if isinstance(extra, dict) else {})}


def _blocks(message: Any, provider: str) -> list[dict[str, Any]]:
    """Return the content blocks of a message: an Anthropic upstream's own, else made from its fields."""
    extra: Mapping[str, Any] = message.model_extra or {}
    if own := _typed(extra.get("content_blocks")):
        return own
    blocks = _typed(extra.get("thinking_blocks"))
    for name in REASONING_FIELDS:
        if not blocks and isinstance(thought := extra.get(name), str) and thought:
            signature = thinking_signature(provider, name)
            blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
    text = plain_text(message.content) or message.refusal
    calls = [call for call in message.tool_calls or [] if getattr(call, "function", None) is not None]
    if text or not (calls or blocks):
        blocks.append({"type": "text", "text": text or ""})
    return [*blocks, *({**tool_use(call), "input": _arguments(call.function.arguments)} for call in calls)]


def _typed(blocks: object) -> list[dict[str, Any]]:
    """Return a list of content blocks; empty if it is none."""
    if not isinstance(blocks, list):
        return []
    typed = all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks)
    return list(blocks) if typed else []


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call; empty if they are no JSON object, as of a truncated answer."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(details: Any, name: str) -> int:
    value = getattr(details, name, None)
    return value if isinstance(value, int) and value >= 0 else 0
