"""Translation of a Messages API request's system prompt and messages to those of a chat completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specclient.anthropic_http.thinking import returned_thinking
from specclient.openai_http.errors import ServingError, bad_request, shown
from specclient.providers.encoding import json_of

__all__ = ["chat_messages", "native_chat_messages"]

Part = dict[str, Any]

_ROLES = ("user", "assistant", "system")
_SYSTEM_BLOCKS = ("text",)
_ASSISTANT_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use")
_RESULT_BLOCKS = ("text", "image", "document", "search_result")
_USER_BLOCKS = (*_RESULT_BLOCKS, "tool_result")
#: Between text blocks that become one text. Not all servers accept several parts.
_BETWEEN = "\n"


def chat_messages(fields: Mapping[str, Any], provider: str | None = None) -> list[dict[str, Any]]:
    """Return the messages for models of other providers than Anthropic.

    The results of tools are messages of their own, before what else the user's turn has; images in them
    follow in the user's message, because results are text there. Cache markers are left out, and so is
    thinking, except the provider's own since the user's last words: until then the model calls tools.

    Args:
        fields: the request, whose ``messages`` are an array of objects.
        provider: the provider of the model; None if it is not chosen yet.

    Raises:
        ServingError: 400, a block has no equivalent; the message names it and what is allowed.
    """
    messages: list[dict[str, Any]] = []
    thoughts: dict[int, dict[str, str]] = {}
    if "system" in fields:
        parts = _parts(fields["system"], "system", _SYSTEM_BLOCKS)
        messages.append({"role": "system", "content": _joined(parts)})
    for place, message in enumerate(fields["messages"]):
        where, role = f"messages[{place}]", message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise bad_request(
                f"{where}.role", f"{where}.role is {shown(role)}; it must be one of {', '.join(_ROLES)}"
            )
        content = message.get("content")
        if role == "assistant":
            messages.append(_assistant(content, f"{where}.content"))
            if isinstance(content, list):
                thoughts[len(messages) - 1] = returned_thinking(content, provider)
        elif role == "user":
            messages += _user(content, f"{where}.content")
            if messages[-1]["role"] == "user":
                thoughts.clear()
        else:
            parts = _parts(content, f"{where}.content", _SYSTEM_BLOCKS)
            messages.append({"role": "system", "content": _joined(parts)})
    for place, thought in thoughts.items():
        messages[place] |= thought
    return messages


def native_chat_messages(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages for Anthropic's own models.

    They are encoded anew only where a strategy changes them; else they are counted and searched for
    features. Blocks that other models lack are kept as they are.
    """
    messages: list[dict[str, Any]] = []
    if "system" in fields:
        messages.append({"role": "system", "content": fields["system"]})
    for message in fields["messages"]:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        if message.get("role") == "assistant" and all(isinstance(block, dict) for block in blocks):
            messages.append(_native_assistant(message, blocks))
        elif any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks):
            messages += _native_results(blocks)
        else:
            messages.append(dict(message))
    return messages


def _native_assistant(message: Mapping[str, Any], blocks: list[Part]) -> dict[str, Any]:
    if not blocks:
        return dict(message)
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    return {
        "role": "assistant",
        "content": text or None,
        **({"tool_calls": calls} if calls else {}),
        "content_blocks": blocks,
    }


def _native_results(blocks: list[Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    rest = []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            result = {"role": "tool", "tool_call_id": block.get("tool_use_id")}
            kept = {name: block[name] for name in ("content", "is_error", "cache_control") if name in block}
            messages.append({**result, **kept})
        else:
            rest.append(block)
    return [*messages, {"role": "user", "content": rest}] if rest else messages


def _assistant(content: object, where: str) -> dict[str, Any]:
    texts, calls = list[str](), list[Part]()
    for block, here in _blocks(content, where, _ASSISTANT_BLOCKS):
        if block["type"] == "text":
            texts.append(_string(block, "text", here))
        elif block["type"] == "tool_use":
            _string(block, "id", here)
            _string(block, "name", here)
            if not isinstance(block.get("input", {}), dict):
                raise _wrong(f"{here}.input", block["input"], "an object")
            calls.append(_call(block))
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    return {**message, "content": message["content"] or None, "tool_calls": calls} if calls else message


def _call(block: Mapping[str, Any]) -> Part:
    arguments = json_of(block.get("input") or {}).decode()
    call = {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }
    # Gemini's signature of the call, which came with it and must go back.
    extra = {"extra_content": block["extra_content"]} if isinstance(block.get("extra_content"), dict) else {}
    return {**call, **extra}


def _user(content: object, where: str) -> list[dict[str, Any]]:
    results, parts = list[dict[str, Any]](), list[Part]()
    for block, here in _blocks(content, where, _USER_BLOCKS):
        if block["type"] != "tool_result":
            parts += _TRANSLATIONS[block["type"]](block, here)
            continue
        told = _parts(block.get("content", ""), f"{here}.content", _RESULT_BLOCKS)
        texts = [part for part in told if part["type"] == "text"]
        parts += [part for part in told if part["type"] != "text"]
        text = _BETWEEN.join(part["text"] for part in texts)
        if block.get("is_error"):
            text = f"Error: {text}"
        number = _string(block, "tool_use_id", here)
        results.append({"role": "tool", "tool_call_id": number, "content": text})
    if results and not parts:
        return results
    return [*results, {"role": "user", "content": _joined(parts)}]


def _parts(content: object, where: str, allowed: tuple[str, ...]) -> list[Part]:
    """Return the parts of a content that has no calls and results."""
    blocks = _blocks(content, where, allowed)
    return [part for block, here in blocks for part in _TRANSLATIONS[block["type"]](block, here)]


def _joined(parts: list[Part]) -> str | list[Part]:
    """Return parts as one text if they are texts."""
    if all(part["type"] == "text" for part in parts):
        return _BETWEEN.join(part["text"] for part in parts)
    return parts


def _blocks(content: object, where: str, allowed: tuple[str, ...]) -> list[tuple[Part, str]]:
    """Return the blocks of a content, each of an allowed type, with their places."""
    if isinstance(content, str):
        return [({"type": "text", "text": content}, where)]
    if not isinstance(content, list):
        raise _wrong(where, content, "a string or an array of blocks")
    found = []
    for place, block in enumerate(content):
        here = f"{where}[{place}]"
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(block, dict) or not isinstance(kind, str) or kind not in allowed:
            what = f"a block of the type {shown(kind)}" if isinstance(block, dict) else shown(block)
            raise bad_request(
                here,
                f"{here} is {what}; models of other providers than Anthropic take blocks of the types "
                f"{', '.join(allowed)} here",
            )
        found.append((block, here))
    return found


def _text(block: Part, where: str) -> list[Part]:
    return [{"type": "text", "text": _string(block, "text", where)}]


def _image(block: Part, where: str) -> list[Part]:
    source = _source(block, where)
    if source.get("type") == "url":
        url = _string(source, "url", f"{where}.source")
    elif source.get("type") == "base64":
        url = _data_url(source, f"{where}.source")
    else:
        raise _wrong(f"{where}.source.type", source.get("type"), "'base64' or 'url'")
    return [{"type": "image_url", "image_url": {"url": url}}]


def _document(block: Part, where: str) -> list[Part]:
    source, title = _source(block, where), block.get("title")
    head = [{"type": "text", "text": title}] if isinstance(title, str) and title else []
    kind = source.get("type")
    if kind == "text":
        return [*head, {"type": "text", "text": _string(source, "data", f"{where}.source")}]
    if kind == "content":
        return [*head, *_parts(source.get("content"), f"{where}.source.content", ("text", "image"))]
    if kind == "base64":
        name = title if isinstance(title, str) and title else "document.pdf"
        data = _data_url(source, f"{where}.source")
        return [{"type": "file", "file": {"filename": name, "file_data": data}}]
    raise _wrong(f"{where}.source.type", kind, "'base64', 'text' or 'content'")


def _search_result(block: Part, where: str) -> list[Part]:
    head = f"{_string(block, 'title', where)} ({_string(block, 'source', where)})"
    return [{"type": "text", "text": head}, *_parts(block.get("content"), f"{where}.content", ("text",))]


def _source(block: Part, where: str) -> Part:
    source = block.get("source")
    if isinstance(source, dict):
        return source
    raise _wrong(f"{where}.source", source, "an object")


def _data_url(source: Part, where: str) -> str:
    return f"data:{_string(source, 'media_type', where)};base64,{_string(source, 'data', where)}"


def _string(holder: Mapping[str, Any], name: str, where: str) -> str:
    value = holder.get(name)
    if isinstance(value, str):
        return value
    raise _wrong(f"{where}.{name}", value, "a string")


def _wrong(where: str, value: object, allowed: str) -> ServingError:
    return bad_request(where, f"{where} is {shown(value)}; it must be {allowed}")


_TRANSLATIONS: Mapping[str, Callable[[Part, str], list[Part]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
}
