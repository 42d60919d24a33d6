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
from urllib.parse import unquote_to_bytes

from specclient.errors import BadRequestError, UnsupportedParameterError
from specclient.providers.validation import expect_kind
from specclient.types.chat.chat_completion_message import plain_text

#: Rejects a parameter, given its name and the reason. Returns if parameters may be dropped.
RefuseField = Callable[[str, str], None]

_INSTRUCTIONS = ("system", "developer")
_ROLES = ("system", "developer", "user", "assistant", "tool")
#: OpenAI's ``ttl`` of a cache breakpoint, and Anthropic's shortest ``ttl`` that is at least as long.
_TTL = {"30m": "1h"}
_NO_NAMES = "its messages carry no name; say who speaks in the content"
_NO_DETAIL = "it decides itself how closely an image is looked at"
_NO_LONG_CACHE = "its caches last an hour at most; pass cache_control on the part instead"


def system_and_messages(messages: list[Any], refuse: RefuseField) -> dict[str, Any]:
    """Return the fields ``system`` and ``messages`` of Anthropic's request body.

    All system and developer messages go into ``system``. Consecutive tool results become one user turn. Empty
    assistant messages are left out, because Anthropic rejects them.

    Args:
        messages: the ``messages`` of ``chat.completions.create``, as decoded JSON.
        refuse: called with each field that Anthropic has no equivalent for.

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
            raise BadRequestError(f"{where} has the role {role!r}; Anthropic takes {', '.join(_ROLES)}")
        if message.get("name") and role != "tool":
            refuse(f"{where}.name", _NO_NAMES)
        if role in _INSTRUCTIONS:
            system += [told] if (told := _content(message, where, refuse)) else []
        elif role == "tool":
            result = _tool_result(message, where, refuse)
            if last == "tool":
                turns[-1]["content"].append(result)
            else:
                turns.append({"role": "user", "content": [result]})
        else:
            content = _said(message, where, refuse) if role == "assistant" else None
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


def _said(message: dict[str, Any], where: str, refuse: RefuseField) -> Any:
    """Return the content of an assistant message; None if it has nothing but ordinary content."""
    for name, instead in (("function_call", "tool_calls"), ("audio", "content")):
        if message.get(name):
            raise BadRequestError(f"{where}.{name} cannot be sent to Anthropic; give it as {instead!r}")
    given = message.get("tool_calls") or []
    expect_kind(given, f"{where}.tool_calls", list)
    calls = [_tool_use(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(given)]
    kept = message.get("content_blocks")
    if isinstance(kept, list) and _same(kept, message, calls):
        return [block for block in kept if not _is_empty(block)]
    thoughts = message.get("thinking_blocks") or []
    expect_kind(thoughts, f"{where}.thinking_blocks", list)
    for at, block in enumerate(thoughts):
        expect_kind(block, f"{where}.thinking_blocks[{at}]", dict)
    thoughts = [{key: value for key, value in block.items() if key != "index"} for block in thoughts]
    refusal = message.get("refusal")
    if not (calls or thoughts or refusal):
        return None
    text = _content(message, where, refuse)
    said = _as_blocks(text) if text else []
    if refusal:
        said.append({"type": "text", "text": refusal})
    return [*thoughts, *said, *calls]


def _same(blocks: list[Any], message: dict[str, Any], calls: list[dict[str, Any]]) -> bool:
    """Return whether the blocks of a response match its message, which the caller may have edited."""
    if not all(isinstance(block, dict) for block in blocks):
        return False
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    used = [block for block in blocks if block.get("type") == "tool_use"]
    told = [{key: block.get(key) for key in ("type", "id", "name", "input")} for block in used]
    return text == plain_text(message.get("content")) and told == calls


def _tool_use(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise _inexpressible(where, "it is no call of a function")
    arguments = function.get("arguments") or "{}"
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise BadRequestError(f"{where}.function.arguments is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadRequestError(f"{where}.function.arguments is no JSON object, and Anthropic takes no other")
    used = {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": given}
    return {**used, **_cache(call)}


def _tool_result(message: dict[str, Any], where: str, refuse: RefuseField) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.get("tool_call_id")}
    content = _content({"content": message.get("content")}, where, refuse)
    if content:
        result["content"] = content
    if message.get("is_error"):
        result["is_error"] = True
    return {**result, **_cache(message)}


def _block(given: Any, where: str, refuse: RefuseField) -> dict[str, Any]:
    """Return one part of a message's content as a block."""
    if isinstance(given, str):
        return {"type": "text", "text": given}
    if not isinstance(given, dict):
        raise BadRequestError(f"{where} is a {type(given).__name__}; it must be a part with a type")
    part = _with_breakpoint(given, where, refuse)
    match part.get("type"):
        case "image_url":
            return {"type": "image", "source": _image(part.get("image_url"), where, refuse), **_cache(part)}
        case "file":
            return {**_document(part.get("file"), where), **_cache(part)}
        case "refusal":
            return {"type": "text", "text": part.get("refusal"), **_cache(part)}
        case "input_audio":
            raise _inexpressible(where, "it is sound; send a transcript")
        case _:
            return part


def _cache(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"cache_control": part["cache_control"]} if part.get("cache_control") else {}


def _with_breakpoint(part: dict[str, Any], where: str, refuse: RefuseField) -> dict[str, Any]:
    """Replace OpenAI's ``prompt_cache_breakpoint`` in a part by Anthropic's ``cache_control``."""
    if "prompt_cache_breakpoint" not in part:
        return part
    asked = part["prompt_cache_breakpoint"] or {}
    expect_kind(asked, f"{where}.prompt_cache_breakpoint", dict)
    rest = {key: value for key, value in part.items() if key != "prompt_cache_breakpoint"}
    ttl = asked.get("ttl")
    lasting = _TTL.get(ttl) if isinstance(ttl, str) else None
    if ttl is not None and lasting is None:
        refuse(f"{where}.prompt_cache_breakpoint.ttl", _NO_LONG_CACHE)
    control = {"type": "ephemeral", **({"ttl": lasting} if lasting else {})}
    return {"cache_control": control, **rest}


def _image(image: Any, where: str, refuse: RefuseField) -> dict[str, Any]:
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        raise BadRequestError(f"{where}.image_url has no url; give one that is https:// or data:")
    if isinstance(image, dict) and image.get("detail") not in (None, "auto"):
        refuse(f"{where}.image_url.detail", _NO_DETAIL)
    if not url.lower().startswith("data:"):
        return {"type": "url", "url": url}
    media, data = _data_of(url, f"{where}.image_url.url")
    return {"type": "base64", "media_type": media, "data": data}


def _document(file: Any, where: str) -> dict[str, Any]:
    file = file if isinstance(file, dict) else {}
    titled = {"title": file["filename"]} if file.get("filename") else {}
    if file.get("file_id"):
        return {"type": "document", "source": {"type": "file", "file_id": file["file_id"]}, **titled}
    found = file.get("file_data") or ""
    expect_kind(found, f"{where}.file.file_data", str)
    media, data = _data_of(found, f"{where}.file.file_data")
    source = {"type": "base64", "media_type": media, "data": data}
    if media.startswith("text/"):
        try:
            text = base64.b64decode(data).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadRequestError(f"{where}.file.file_data is no text in UTF-8: {error}") from None
        source = {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "document", "source": source, **titled}


def _data_of(url: str, where: str) -> tuple[str, str]:
    """Return the media type of a ``data:`` URL (RFC 2397), and its data as base64."""
    head, comma, data = url.partition(",")
    if not comma or not head.lower().startswith("data:"):
        raise BadRequestError(f"{where} is no data: URL; write data:MEDIA/TYPE;base64,…")
    media, *more = head[len("data:") :].split(";")
    if "base64" not in more:
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return media.lower() or "text/plain", data
