"""Conversion of Converse answers to the fields of OpenAI's chat completions.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html. Data without an OpenAI
field is kept in extra fields. The message has ``reasoning_content``, ``thinking_blocks`` (with signatures, in
Anthropic's form) and, if the order or type of the blocks would be lost otherwise, ``content_blocks``. The
choice has ``stop_reason``. The completion has ``metrics`` and all other fields of the answer. If the message
is sent back, the blocks are sent unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specclient.providers.bedrock.messages import text_of_blocks
from specclient.providers.reported_fields import count

#: OpenAI's ``finish_reason`` for each ``stopReason``; unlisted reasons are kept.
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_ORDER: Mapping[str, int] = {"reasoningContent": 0, "text": 1, "toolUse": 2}
_CONVERTED = frozenset({"output", "stopReason", "usage", "serviceTier"})
_COUNTED = frozenset(
    {"inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens"}
)


def completion_of(answer: Mapping[str, Any], created: int, answer_id: str) -> dict[str, Any]:
    """Return the fields of a chat completion for an answer.

    Args:
        answer: the body of a response.
        created: Unix seconds; the answer has no creation time.
        answer_id: an id; the answer has none.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: the body is not an answer.
    """
    blocks: list[dict[str, Any]] = answer["output"]["message"]["content"]
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise TypeError("its content is no list of blocks")
    reply: dict[str, Any] = {"role": "assistant", "content": text_of_blocks(blocks)}
    calls = [call_of(block["toolUse"]) for block in blocks if "toolUse" in block]
    if calls:
        reply |= {"tool_calls": calls, "content": reply["content"] or None}
    reply |= extra_fields_of(blocks)
    beyond = {key: value for key, value in answer.items() if key not in _CONVERTED and value is not None}
    choice = {"index": 0, "message": reply, "logprobs": None, **finish_reason_of(answer)}
    return {
        **beyond,
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        "model": routed_model(answer) or "",
        "choices": [choice],
        **service_tier_of(answer),
        "usage": usage_of(answer),
    }


def finish_reason_of(stop: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's ``finish_reason``, and Bedrock's ``stop_reason``."""
    reason = stop.get("stopReason")
    if not isinstance(reason, str):
        return {"finish_reason": None}
    return {"finish_reason": FINISH_REASONS.get(reason, reason), "stop_reason": reason}


def call_of(use: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's tool call for a ``toolUse`` block."""
    arguments = json.dumps(use.get("input") or {}, ensure_ascii=False)
    function = {"name": use.get("name") or "", "arguments": arguments}
    return {"id": use.get("toolUseId") or "", "type": "function", "function": function}


def extra_fields_of(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the extra fields for blocks without an OpenAI field: reasoning, citations, Bedrock's tools."""
    found: dict[str, Any] = {}
    thoughts = [_thinking_block(block["reasoningContent"]) for block in blocks if "reasoningContent" in block]
    texts = [thought.get("thinking") or "" for thought in thoughts]
    if any(texts):
        found["reasoning_content"] = "".join(texts)
    if thoughts:
        found["thinking_blocks"] = thoughts
    order = [_ORDER.get(next(iter(block), ""), 0) for block in blocks]
    if order != sorted(order) or not all(map(_is_plain, blocks)):
        found["content_blocks"] = list(blocks)
    annotations = _annotations(blocks)
    return {**found, "annotations": annotations} if annotations else found


def _thinking_block(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return reasoning in Anthropic's form, in which other providers' messages have it, too."""
    if "redactedContent" in content:
        return {"type": "redacted_thinking", "data": content["redactedContent"]}
    reasoning = content.get("reasoningText") or {}
    signature = {"signature": reasoning["signature"]} if reasoning.get("signature") else {}
    return {"type": "thinking", "thinking": reasoning.get("text") or "", **signature}


def _is_plain(block: Mapping[str, Any]) -> bool:
    """Return whether a block is fully represented by the message's other fields."""
    if len(block) != 1:
        return False
    kind, value = next(iter(block.items()))
    if kind == "toolUse":
        return isinstance(value, Mapping) and value.keys() <= {"toolUseId", "name", "input"}
    return kind in ("text", "reasoningContent")


def _annotations(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the web pages that ``citationsContent`` blocks cite, each with the characters of its text."""
    found, start = list[dict[str, Any]](), 0
    for block in blocks:
        end = start + len(text_of_blocks([dict(block)]))
        cited = block.get("citationsContent")
        citations = cited.get("citations") if isinstance(cited, Mapping) else None
        for citation in citations if isinstance(citations, list) else ():
            location = citation.get("location") if isinstance(citation, Mapping) else None
            web = location.get("web") if isinstance(location, Mapping) else None
            if isinstance(web, Mapping) and isinstance(web.get("url"), str):
                place = {"start_index": start, "end_index": end}
                named = {"url": web["url"], "title": citation.get("title") or ""}
                found.append({"type": "url_citation", "url_citation": {**place, **named}})
        start = end
    return found


def routed_model(answer: Mapping[str, Any]) -> str | None:
    """Return the model that a prompt router chose, which its trace names; None without a router."""
    trace = answer.get("trace")
    router = trace.get("promptRouter") if isinstance(trace, Mapping) else None
    invoked = router.get("invokedModelId") if isinstance(router, Mapping) else None
    return invoked if isinstance(invoked, str) and invoked else None


def service_tier_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's ``service_tier`` for the tier that served the answer, if it is named."""
    tier = answer.get("serviceTier")
    kind = tier.get("type") if isinstance(tier, Mapping) else None
    return {"service_tier": kind} if isinstance(kind, str) else {}


def usage_of(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert the usage of an answer, or of a stream's metadata, to OpenAI's.

    Invalid counts are left out, not taken as zero. The service tier, which the price depends on, is added.
    ``prompt_tokens`` is the sum of ``inputTokens`` and of the tokens read from and written to a cache
    ("Prompt caching"), unless ``totalTokens`` shows that ``inputTokens`` includes them.
    """
    usage = answer.get("usage")
    if not isinstance(usage, Mapping):
        return None
    read, written = (count(usage.get(f"cache{name}InputTokens")) for name in ("Read", "Write"))
    fresh, completion = count(usage.get("inputTokens")), count(usage.get("outputTokens"))
    if fresh is None and completion is None:
        return None
    cached = (read or 0) + (written or 0)
    if fresh is not None and completion is not None and usage.get("totalTokens") == fresh + completion:
        cached = 0
    found = {key: value for key, value in usage.items() if key not in _COUNTED and value is not None}
    if tier := service_tier_of(answer):
        found["serviceTier"] = tier["service_tier"]
    if fresh is not None:
        found["prompt_tokens"] = fresh + cached
    if completion is not None:
        found["completion_tokens"] = completion
    if fresh is not None and completion is not None:
        found["total_tokens"] = fresh + cached + completion
    if read is not None or written is not None:
        found["prompt_tokens_details"] = {"cached_tokens": read, "cache_write_tokens": written}
    if (kept := _written_for_an_hour(usage)) is not None:
        found["cache_creation"] = {"ephemeral_1h_input_tokens": kept}
    return found


def _written_for_an_hour(usage: Mapping[str, Any]) -> int | None:
    details = usage.get("cacheDetails")
    rows = [row for row in details if isinstance(row, Mapping)] if isinstance(details, list) else []
    counts = [count(row.get("inputTokens")) for row in rows if row.get("ttl") == "1h"]
    return None if not counts or None in counts else sum(each for each in counts if each is not None)
