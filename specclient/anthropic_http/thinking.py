"""Thinking of models that sign none: its signature says which provider it came from, and in which field.

Clients send thinking back with its signature. A provider gets its own thinking back, because some models
(DeepSeek's, Kimi's) need it while they call tools. No other provider gets it; Anthropic's would refuse it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["REASONING_FIELDS", "cleaned_messages", "returned_thinking", "thinking_signature"]

#: Fields of a message in which servers show reasoning: DeepSeek, vLLM, SGLang; OpenRouter, Groq.
REASONING_FIELDS = ("reasoning_content", "reasoning")
_PREFIX = "specclient:"


def thinking_signature(provider: str, field: str) -> str:
    """Return the signature of thinking that a provider sent in a field."""
    return f"{_PREFIX}{provider}:{field}"


def returned_thinking(blocks: list[dict[str, Any]], provider: str | None) -> dict[str, str]:
    """Return the reasoning field of a message that goes back to a provider; no field without any.

    Args:
        blocks: the content blocks of an assistant message.
        provider: the provider of the request's model; None if it is not chosen yet.
    """
    found: dict[str, str] = {}
    for field in REASONING_FIELDS:
        signature = thinking_signature(provider or "", field)
        texts = [block["thinking"] for block in blocks if _is_signed(block, signature)]
        if texts and provider is not None:
            found[field] = "".join(texts)
    return found


def cleaned_messages(messages: list[Any]) -> list[Any]:
    """Return messages without what Anthropic's API refuses in answers of other models.

    It is thinking without a signature of Anthropic's, and ``extra_content`` of tool calls.
    """
    return [_cleaned(message) for message in messages]


def _cleaned(message: Any) -> Any:
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return message
    kept = [block for block in content if not _is_foreign(block)]
    return {**message, "content": [_without_extra(block) for block in kept]}


def _is_foreign(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") != "thinking":
        return False
    signature = block.get("signature")
    return not signature or (isinstance(signature, str) and signature.startswith(_PREFIX))


def _without_extra(block: Any) -> Any:
    if isinstance(block, dict) and block.get("type") == "tool_use" and "extra_content" in block:
        return {name: value for name, value in block.items() if name != "extra_content"}
    return block


def _is_signed(block: dict[str, Any], signature: str) -> bool:
    return (
        block.get("type") == "thinking"
        and block.get("signature") == signature
        and isinstance(block.get("thinking"), str)
    )
