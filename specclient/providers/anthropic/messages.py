"""Conversion of OpenAI's chat messages to Anthropic's ``system`` and ``messages``.

https://platform.claude.com/docs/en/api/messages. Parts and tools in Anthropic's own form (``document``,
``search_result``, ``cache_control``, …) are passed on unchanged.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from specclient.errors import BadRequestError, UnsupportedParameterError
from specclient.providers.data_urls import parts_of_data_url
from specclient.providers.validation import expect_kind
from specclient.types.chat.chat_completion_message import plain_text

#: Rejects a parameter, given its name and the reason. Returns if parameters may be dropped.
RefuseField = Callable[[str, str], None]

_INSTRUCTIONS = ("system", "developer")
_ROLES = ("system", "developer", "user", "assistant", "tool")
#: OpenAI's ``ttl`` of a cache breakpoint, and Anthropic's shortest ``ttl`` that is at least as long.
_TTL = {"30m": "1h"}
_NO_NAMES = "Anthropic's messages have no name; write the speaker's name into the content"
_NO_DETAIL = "Anthropic's API has no setting for the detail of images; leave it out"
_NO_LONG_CACHE = "Anthropic caches for one hour at most; set cache_control on the part instead"


def system_and_messages(messages: list[Any], refuse: RefuseField) -> dict[str, Any]:
    """Return the fields ``system`` and ``messages`` of Anthropic's request body.

    All system and developer messages go into ``system``. Consecutive tool results become one user turn. Empty
    assistant messages are left out, because Anthropic rejects them.

    Args:
        messages: the ``messages`` of ``chat.completions.create``, as decoded JSON.
        refuse: called with each field without an equivalent at Anthropic.

    Raises:
        BadRequestError: a message is malformed. The error names its index.
        UnsupportedParameterError: Anthropic has no equivalent for some content. Content is never dropped.
    """
    system: list[Any] = []
    turns: list[dict[str, Any]] = []
    last = None
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            raise BadRequestError(f"{where} has the role {role!r}; it must be one of {', '.join(_ROLES)}")
        if message.get("name") and role != "tool":
            refuse(f"{where}.name", _NO_NAMES)
        if role in _INSTRUCTIONS:
            system += [instructions] if (instructions := _content(message, where, refuse)) else []
        elif role == "tool":
            result = _tool_result(message, where, refuse)
            if last == "tool":
                turns[-1]["content"].append(result)
            else:
                turns.append({"role": "user", "content": [result]})
        else:
            content = _assistant_content(message, where, refuse) if role == "assistant" else None
            content = _content(message, where, refuse) if content is None else content
            if content or role == "user":
                turns.append({"role": role, "content": content})
        last = role if role not in _INSTRUCTIONS else last
    return {**({"system": _joined(system)} if system else {}), "messages": turns}


def _inexpressible(where: str, why: str) -> UnsupportedParameterError:
    error = UnsupportedParameterError(f"Anthropic's Messages API does not take {where}: {why}")
    error.param = where
    return error


def _joined(contents: list[Any]) -> Any:
    """Return a single content unchanged, and several as one list of blocks."""
    if len(contents) == 1:
        return contents[0]
    return [block for content in contents for block in _as_blocks(content)]


def _as_blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _content(message: dict[str, Any], where: str, refuse: RefuseField) -> Any:
    """Return the content of a message: text unchanged, parts as blocks, with its ``cache_control``."""
    content = message.get("content")
    if content is None:
        content = ""
    elif isinstance(content, list):
        blocks = [_block(part, f"{where}.content[{at}]", refuse) for at, part in enumerate(content)]
        content = [block for block in blocks if not _is_empty(block)]
    elif not isinstance(content, str):
        raise BadRequestError(
            f"{where}.content is a {type(content).__name__}; it must be text or a list of parts"
        )
    if "cache_control" in message and content:
        content = _as_blocks(content)
        content[-1] = {"cache_control": message["cache_control"], **content[-1]}
    return content


def _is_empty(block: Mapping[str, Any]) -> bool:
    """Return whether a block is an empty text, which Anthropic rejects."""
    return block.get("type") == "text" and not block.get("text")


def _assistant_content(message: dict[str, Any], where: str, refuse: RefuseField) -> Any:
    """Return the content of an assistant message; None if it has only ordinary content."""
    for name, instead in (("function_call", "tool_calls"), ("audio", "content")):
        if message.get(name):
            raise BadRequestError(f"{where}.{name} has no equivalent in Anthropic's API; use {instead!r}")
    tool_calls = message.get("tool_calls") or []
    expect_kind(tool_calls, f"{where}.tool_calls", list)
    calls = [_tool_use(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(tool_calls)]
    original = message.get("content_blocks")
    if isinstance(original, list) and _same(original, message, calls):
        return [block for block in original if not _is_empty(block)]
    thoughts = message.get("thinking_blocks") or []
    expect_kind(thoughts, f"{where}.thinking_blocks", list)
    for at, block in enumerate(thoughts):
        expect_kind(block, f"{where}.thinking_blocks[{at}]", dict)
    thoughts = [{key: value for key, value in block.items() if key != "index"} for block in thoughts]
    refusal = message.get("refusal")
    if not (calls or thoughts or refusal):
        return None
    text = _content(message, where, refuse)
    texts = _as_blocks(text) if text else []
    if refusal:
        texts.append({"type": "text", "text": refusal})
    return [*thoughts, *texts, *calls]


def _same(blocks: list[Any], message: dict[str, Any], calls: list[dict[str, Any]]) -> bool:
    """Return whether the blocks of a response match its message, which the caller may have edited."""
    if not all(isinstance(block, dict) for block in blocks):
        return False
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    used = [block for block in blocks if block.get("type") == "tool_use"]
    used_calls = [{key: block.get(key) for key in ("type", "id", "name", "input")} for block in used]
    return text == plain_text(message.get("content")) and used_calls == calls


def _tool_use(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise _inexpressible(where, "it is not a function call")
    arguments = function.get("arguments") or "{}"
    try:
        decoded = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise BadRequestError(f"{where}.function.arguments is not valid JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise BadRequestError(f"{where}.function.arguments must be a JSON object")
    used = {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": decoded}
    return {**used, **_cache(call)}


def _tool_result(message: dict[str, Any], where: str, refuse: RefuseField) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.get("tool_call_id")}
    content = _content({"content": message.get("content")}, where, refuse)
    if content:
        result["content"] = content
    if message.get("is_error"):
        result["is_error"] = True
    return {**result, **_cache(message)}


def _block(original: Any, where: str, refuse: RefuseField) -> dict[str, Any]:
    """Return one part of a message's content as a block."""
    if isinstance(original, str):
        return {"type": "text", "text": original}
    if not isinstance(original, dict):
        raise BadRequestError(f"{where} is a {type(original).__name__}; it must be a part with a type")
    part = _with_breakpoint(original, where, refuse)
    match part.get("type"):
        case "image_url":
            return {"type": "image", "source": _image(part.get("image_url"), where, refuse), **_cache(part)}
        case "file":
            return {**_document(part.get("file"), where), **_cache(part)}
        case "refusal":
            return {"type": "text", "text": part.get("refusal"), **_cache(part)}
        case "input_audio":
            raise _inexpressible(where, "audio is not supported; send a transcript")
        case _:
            return part


def _cache(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"cache_control": part["cache_control"]} if part.get("cache_control") else {}


def _with_breakpoint(part: dict[str, Any], where: str, refuse: RefuseField) -> dict[str, Any]:
    """Replace OpenAI's ``prompt_cache_breakpoint`` in a part by Anthropic's ``cache_control``."""
    if "prompt_cache_breakpoint" not in part:
        return part
    settings = part["prompt_cache_breakpoint"] or {}
    expect_kind(settings, f"{where}.prompt_cache_breakpoint", dict)
    rest = {key: value for key, value in part.items() if key != "prompt_cache_breakpoint"}
    ttl = settings.get("ttl")
    lifetime = _TTL.get(ttl) if isinstance(ttl, str) else None
    if ttl is not None and lifetime is None:
        refuse(f"{where}.prompt_cache_breakpoint.ttl", _NO_LONG_CACHE)
    control = {"type": "ephemeral", **({"ttl": lifetime} if lifetime else {})}
    return {"cache_control": control, **rest}


def _image(image: Any, where: str, refuse: RefuseField) -> dict[str, Any]:
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        raise BadRequestError(f"{where}.image_url has no url; it must be an https:// or data: URL")
    if isinstance(image, dict) and image.get("detail") not in (None, "auto"):
        refuse(f"{where}.image_url.detail", _NO_DETAIL)
    if not url.lower().startswith("data:"):
        return {"type": "url", "url": url}
    media, data = parts_of_data_url(url, f"{where}.image_url.url")
    return {"type": "base64", "media_type": media, "data": data}


def _document(file: Any, where: str) -> dict[str, Any]:
    file = file if isinstance(file, dict) else {}
    titled = {"title": file["filename"]} if file.get("filename") else {}
    if file.get("file_id"):
        return {"type": "document", "source": {"type": "file", "file_id": file["file_id"]}, **titled}
    data_url = file.get("file_data") or ""
    expect_kind(data_url, f"{where}.file.file_data", str)
    media, data = parts_of_data_url(data_url, f"{where}.file.file_data")
    source = {"type": "base64", "media_type": media, "data": data}
    if media.startswith("text/"):
        try:
            text = base64.b64decode(data).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadRequestError(f"{where}.file.file_data is not UTF-8 text: {error}") from None
        source = {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "document", "source": source, **titled}
