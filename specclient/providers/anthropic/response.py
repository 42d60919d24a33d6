"""Conversion of Anthropic's messages to the fields of OpenAI's chat completions.

https://platform.claude.com/docs/en/api/messages. Data without an OpenAI field is kept in extra fields. The
message has ``reasoning_content``, ``thinking_blocks`` (with signatures) and, if the order or type of the
blocks would be lost otherwise, ``content_blocks``. The choice has ``stop_reason``, ``stop_sequence`` and
``stop_details``. ``usage`` has all other fields of Anthropic's usage. If the message is sent back, the blocks
are sent unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specclient.providers.reported_fields import count

#: OpenAI's ``finish_reason`` for each ``stop_reason``; unlisted reasons are kept. OpenAI has no reason for a
#: paused turn: the response is finished, and ``stop_reason`` shows that the turn can be continued.
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}

#: Order of the blocks when a message is sent back and its blocks are rebuilt from its fields.
_ORDER: Mapping[Any, int] = {"thinking": 0, "redacted_thinking": 0, "text": 1, "tool_use": 2}
_TIERS = {"standard": "default"}
_STOP = ("stop_reason", "stop_sequence", "stop_details")
_CONVERTED = frozenset({"id", "type", "role", "model", "content", "usage", *_STOP})
_COUNTED = frozenset(
    {"input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"}
)


def completion_of(message: Mapping[str, Any], created: int) -> dict[str, Any]:
    """Return the fields of a chat completion for a message.

    Args:
        message: the body of a response.
        created: Unix seconds; the message has no creation time.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: the body is not a message.
    """
    blocks: list[dict[str, Any]] = message["content"]
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise TypeError("its content is no list of blocks")
    reply: dict[str, Any] = {"role": "assistant", "content": text_of(blocks)}
    calls = [call_of(block) for block in blocks if block.get("type") == "tool_use"]
    if calls:
        reply |= {"tool_calls": calls, "content": reply["content"] or None}
    thoughts = [block.get("thinking") or "" for block in blocks if block.get("type") == "thinking"]
    if any(thoughts):
        reply["reasoning_content"] = "".join(thoughts)
    reply |= extra_fields_of(blocks)
    beyond = {key: value for key, value in message.items() if key not in _CONVERTED and value is not None}
    choice = {"index": 0, "message": reply, "logprobs": None, **finish_reason_of(message)}
    usage = message.get("usage")
    return {
        **beyond,
        "id": message.get("id") or "",
        "object": "chat.completion",
        "created": created,
        "model": message.get("model") or "",
        "choices": [choice],
        **service_tier_of(usage),
        "usage": usage_of(usage),
    }


def finish_reason_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's ``finish_reason``, and Anthropic's stop fields."""
    reason = message.get("stop_reason")
    kept = {name: message[name] for name in _STOP if message.get(name) is not None}
    return {"finish_reason": FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None, **kept}


def text_of(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of all text blocks."""
    return "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")


def call_of(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's tool call for a ``tool_use`` block."""
    function = {"name": block.get("name") or "", "arguments": arguments_of(block)}
    return {"id": block.get("id") or "", "type": "function", "function": function}


def arguments_of(block: Mapping[str, Any]) -> str:
    """Return the input of a ``tool_use`` block as JSON text."""
    return json.dumps(block.get("input") or {}, ensure_ascii=False)


def extra_fields_of(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the extra fields for blocks without an OpenAI field: thinking, citations, server tools."""
    found: dict[str, Any] = {}
    thoughts = [block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
    if thoughts:
        found["thinking_blocks"] = thoughts
    order = [_ORDER.get(block.get("type"), 0) for block in blocks]
    if order != sorted(order) or not all(map(_is_plain, blocks)):
        found["content_blocks"] = list(blocks)
    annotations = _annotations(blocks)
    return {**found, "annotations": annotations} if annotations else found


def usage_of(usage: Any) -> dict[str, Any] | None:
    """Convert Anthropic's usage to OpenAI's. Invalid counts are left out, not taken as zero.

    ``prompt_tokens`` is the sum of ``input_tokens``, which Anthropic bills at the full price, and of the
    tokens written to and read from a cache ("Prompt caching", tracking cache performance).
    """
    if not isinstance(usage, Mapping):
        return None
    written, read = (_part(usage, f"cache_{name}_input_tokens") for name in ("creation", "read"))
    fresh, completion = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    if fresh is None and completion is None:
        return None
    found: dict[str, Any] = {
        key: value for key, value in usage.items() if key not in _COUNTED and value is not None
    }
    if fresh is not None and written is not None and read is not None:
        found["prompt_tokens"] = fresh + written + read
    if completion is not None:
        found["completion_tokens"] = completion
    if "prompt_tokens" in found and completion is not None:
        found["total_tokens"] = found["prompt_tokens"] + completion
    details = {
        "cached_tokens": count(usage.get("cache_read_input_tokens")),
        "cache_write_tokens": count(usage.get("cache_creation_input_tokens")),
    }
    found["prompt_tokens_details"] = details if any(value is not None for value in details.values()) else None
    kinds = found.pop("output_tokens_details", None)
    thought = count(kinds.get("thinking_tokens")) if isinstance(kinds, Mapping) else None
    if thought is not None and completion is not None and thought <= completion:
        found["completion_tokens_details"] = {"reasoning_tokens": thought}
    return found


def service_tier_of(usage: Any) -> dict[str, Any]:
    """Return OpenAI's ``service_tier`` for the service tier in a usage."""
    tier = usage.get("service_tier") if isinstance(usage, Mapping) else None
    return {"service_tier": _TIERS.get(tier, tier)} if isinstance(tier, str) else {}


def _part(usage: Mapping[str, Any], name: str) -> int | None:
    """Return a count; 0 if it is missing, None if it is invalid."""
    return 0 if usage.get(name) is None else count(usage[name])


def _is_plain(block: Mapping[str, Any]) -> bool:
    """Return whether a block is fully represented by the message's other fields."""
    kind = block.get("type")
    if kind in ("thinking", "redacted_thinking"):
        return True
    fields = {key for key, value in block.items() if value is not None and value != []}
    if kind == "text":
        return fields <= {"type", "text"}
    called = block.get("caller") in (None, {"type": "direct"})
    return kind == "tool_use" and called and fields <= {"type", "id", "name", "input", "caller"}


def _annotations(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the web pages cited in the text, each with the character range of the citing block."""
    found, start = list[dict[str, Any]](), 0
    for block in blocks:
        if block.get("type") != "text":
            continue
        end = start + len(block.get("text") or "")
        for citation in block.get("citations") or ():
            if isinstance(citation, Mapping) and isinstance(citation.get("url"), str):
                cited = {"url": citation["url"], "title": citation.get("title") or ""}
                place = {"start_index": start, "end_index": end, **cited}
                found.append({"type": "url_citation", "url_citation": place})
        start = end
    return found
