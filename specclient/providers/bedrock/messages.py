"""Conversion of OpenAI's chat messages to ``system`` and ``messages`` of the Converse API.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
"""

from __future__ import annotations

import json
from typing import Any

from specclient.errors import BadRequestError
from specclient.providers.bedrock.content import (
    ContentEncoder,
    ConverseBlock,
    RefuseConverseField,
    cache_point,
    inexpressible,
    is_block,
)
from specclient.providers.validation import expect_kind
from specclient.types.chat.chat_completion_message import plain_text

_INSTRUCTIONS = ("system", "developer")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_NO_NAMES = "messages of the Converse API have no name; write the speaker's name into the content"


def converse_messages(messages: list[Any], refuse: RefuseConverseField) -> dict[str, Any]:
    """Return the fields ``system`` and ``messages`` of a Converse request.

    All system and developer messages go into ``system``. Consecutive turns of one role become one, because
    Bedrock's models require that roles alternate; tool results belong to the user's turn. Empty assistant
    messages are left out.

    Args:
        messages: the ``messages`` of ``chat.completions.create``, as decoded JSON.
        refuse: called with each field without an equivalent in the Converse API.

    Raises:
        BadRequestError: a message is malformed. The error names its index.
        UnsupportedParameterError: the Converse API has no equivalent for some content.
    """
    encoder = ContentEncoder(refuse)
    system: list[ConverseBlock] = []
    turns: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            raise BadRequestError(f"{where} has the role {role!r}; it must be one of {', '.join(_ROLES)}")
        if message.get("name") and role != "tool":
            refuse(f"{where}.name", _NO_NAMES)
        if role == "tool":
            blocks = [_tool_result(message, where, encoder)]
        elif role == "assistant":
            blocks = _assistant_blocks(message, where, encoder)
        else:
            blocks = encoder.blocks(message.get("content"), f"{where}.content")
        if blocks:
            blocks = [*blocks, *cache_point(message, where, refuse)]
        if role in _INSTRUCTIONS:
            system += blocks
        elif blocks or role == "user":
            _add_turn(turns, "assistant" if role == "assistant" else "user", blocks)
    return {**({"system": system} if system else {}), "messages": turns}


def _add_turn(turns: list[dict[str, Any]], role: str, blocks: list[ConverseBlock]) -> None:
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": list(blocks)})


def has_tool_blocks(turns: list[dict[str, Any]]) -> bool:
    """Return whether turns contain tool calls or results; Bedrock then requires the tools' definitions."""
    return any("toolUse" in block or "toolResult" in block for turn in turns for block in turn["content"])


def _assistant_blocks(message: dict[str, Any], where: str, encoder: ContentEncoder) -> list[ConverseBlock]:
    """Return the blocks of an assistant message: reasoning, text, refusal, tool calls."""
    for name, instead in (("function_call", "tool_calls"), ("audio", "content")):
        if message.get(name):
            raise BadRequestError(f"{where}.{name} has no equivalent in the Converse API; use {instead!r}")
    tool_calls = message.get("tool_calls") or []
    expect_kind(tool_calls, f"{where}.tool_calls", list)
    calls = [_tool_use(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(tool_calls)]
    original = message.get("content_blocks")
    if isinstance(original, list) and all(map(is_block, original)) and _same(original, message, calls):
        return [block for block in original if block != {"text": ""}]
    thoughts = message.get("thinking_blocks") or []
    expect_kind(thoughts, f"{where}.thinking_blocks", list)
    reasoning = [_reasoning(block, f"{where}.thinking_blocks[{at}]") for at, block in enumerate(thoughts)]
    texts = encoder.blocks(message.get("content"), f"{where}.content")
    if message.get("refusal"):
        texts += encoder.blocks(message["refusal"], f"{where}.refusal")
    return [*reasoning, *texts, *calls]


def _same(blocks: list[ConverseBlock], message: dict[str, Any], calls: list[ConverseBlock]) -> bool:
    """Return whether the blocks of a response match its message, which the caller may have edited."""
    used = [block for block in blocks if "toolUse" in block]
    plain = [
        {"toolUse": {name: block["toolUse"].get(name) for name in ("toolUseId", "name", "input")}}
        for block in used
        if isinstance(block["toolUse"], dict)
    ]
    return text_of_blocks(blocks) == plain_text(message.get("content")) and plain == calls


def text_of_blocks(blocks: list[ConverseBlock]) -> str:
    """Return the text of all blocks of an answer, with that of citations."""
    texts: list[str] = []
    for block in blocks:
        if isinstance(text := block.get("text"), str):
            texts.append(text)
        cited = block.get("citationsContent")
        for part in (cited.get("content") or ()) if isinstance(cited, dict) else ():
            texts.append(part["text"] if isinstance(part, dict) and isinstance(part.get("text"), str) else "")
    return "".join(texts)


def _reasoning(block: Any, where: str) -> ConverseBlock:
    """Return the block for a thinking block, which has Anthropic's form or that of the Converse API."""
    expect_kind(block, where, dict)
    if is_block(block):
        own: ConverseBlock = block
        return own
    if block.get("type") == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": block.get("data")}}
    signature = {"signature": block["signature"]} if block.get("signature") else {}
    return {"reasoningContent": {"reasoningText": {"text": block.get("thinking") or "", **signature}}}


def _tool_use(call: Any, where: str) -> ConverseBlock:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise inexpressible(where, "it is not a function call")
    arguments = function.get("arguments") or "{}"
    try:
        decoded = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"{where}.function.arguments is not valid JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise BadRequestError(f"{where}.function.arguments must be a JSON object")
    return {"toolUse": {"toolUseId": call.get("id"), "name": function.get("name"), "input": decoded}}


def _tool_result(message: dict[str, Any], where: str, encoder: ContentEncoder) -> ConverseBlock:
    content = encoder.blocks(message.get("content"), f"{where}.content")
    status = {"status": "error"} if message.get("is_error") else {}
    return {"toolResult": {"toolUseId": message.get("tool_call_id"), "content": content, **status}}
