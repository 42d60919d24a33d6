"""Conversion of OpenAI's chat messages to Gemini's ``contents`` and ``systemInstruction``.

https://ai.google.dev/api/caching#Content. The field ``extra_content.google`` is that of Gemini's
OpenAI-compatible endpoint (https://ai.google.dev/gemini-api/docs/thought-signatures).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from specclient.errors import BadRequestError
from specclient.providers.validation import expect_kind

#: Rejects a field without an equivalent, given its name and the reason. Returns if fields may be dropped.
RefuseGeminiField = Callable[[str, str], None]
GeminiPart = dict[str, Any]

#: Supported media types (https://ai.google.dev/gemini-api/docs/file-input-methods), by file name extension.
_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".gif": "image/gif",
    ".pdf": "application/pdf",
    ".mp3": "audio/mp3",
    ".wav": "audio/wav",
    ".aiff": "audio/aiff",
    ".aac": "audio/aac",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".mp4": "video/mp4",
    ".mpeg": "video/mpeg",
    ".mpg": "video/mpg",
    ".mov": "video/mov",
    ".avi": "video/avi",
    ".flv": "video/x-flv",
    ".webm": "video/webm",
    ".wmv": "video/wmv",
    ".3gp": "video/3gpp",
    ".txt": "text/plain",
    ".html": "text/html",
    ".css": "text/css",
    ".csv": "text/csv",
    ".xml": "text/xml",
    ".md": "text/md",
    ".json": "application/json",
}
_SCHEMES = ("http", "https", "gs")


def contents_of(messages: Any, cannot: RefuseGeminiField) -> tuple[GeminiPart | None, list[GeminiPart]]:
    """Return the system instruction (None without system messages) and the contents.

    Consecutive tool results become one turn, as Gemini requires.

    Args:
        messages: OpenAI's messages, as decoded JSON.
        cannot: called with each field without an equivalent at Gemini.

    Raises:
        BadRequestError: a message or part is malformed. The error names its index.
        UnsupportedParameterError: raised by ``cannot``.
    """
    if not isinstance(messages, list):
        raise BadRequestError(f"messages is a {type(messages).__name__}; it must be a list of messages")
    system: list[GeminiPart] = []
    contents: list[GeminiPart] = []
    called: dict[str, str] = {}
    results: list[GeminiPart] | None = None
    for place, message in enumerate(messages):
        at = f"messages[{place}]"
        role = message.get("role") if isinstance(message, Mapping) else None
        if role in ("system", "developer"):
            system += _parts(message.get("content"), f"{at}.content", cannot)
        elif role == "user":
            if message.get("name"):
                cannot(f"{at}.name", "Gemini has no user names; write the name into the text")
            contents.append(
                {"role": "user", "parts": _parts(message.get("content"), f"{at}.content", cannot)}
            )
        elif role == "assistant":
            contents.append({"role": "model", "parts": _assistant_parts(message, at, called, cannot)})
        elif role == "tool":
            result = _result(message, at, called, cannot)
            if results is None:
                results = [result]
                contents.append({"role": "user", "parts": results})
            else:
                results.append(result)
        else:
            raise BadRequestError(
                f"{at}.role is {role!r}; it must be 'system', 'developer', 'user', 'assistant' or 'tool'"
            )
        if role != "tool":
            results = None
    return ({"role": "user", "parts": system} if system else None), contents


def _parts(content: Any, at: str, cannot: RefuseGeminiField) -> list[GeminiPart]:
    """Return Gemini's parts for a message's content: text, or a list of OpenAI's parts."""
    if content is None or isinstance(content, str):
        return [{"text": content or ""}]
    if not isinstance(content, list):
        raise BadRequestError(f"{at} is a {type(content).__name__}; it must be text or a list of parts")
    return [_part(part, f"{at}[{place}]", cannot) for place, part in enumerate(content)]


def _part(part: Any, at: str, cannot: RefuseGeminiField) -> GeminiPart:
    """Return Gemini's part for one of OpenAI's. A part without a ``type`` is Gemini's and is not changed."""
    if not isinstance(part, Mapping):
        raise BadRequestError(f"{at} is a {type(part).__name__}; it must be an object with a 'type'")
    kind = part.get("type")
    if kind is None:
        return dict(part)
    expect_kind(kind, f"{at}.type", str)
    for name in sorted(part.keys() - {"type", kind, "index", "extra_content"}):
        cannot(f"{at}.{name}", "Gemini's parts have no such field")
    value = part.get(kind)
    if kind in ("text", "refusal") and isinstance(value, str):
        return {"text": value}
    if kind in ("image_url", "video_url"):
        converted = _linked(value, f"{at}.{kind}", cannot)
    elif kind == "input_audio" and isinstance(value, Mapping):
        converted = _inline(f"audio/{value.get('format')}", value.get("data"), f"{at}.input_audio.data")
    elif kind == "file" and isinstance(value, Mapping):
        converted = _file(value, f"{at}.file")
    else:
        raise BadRequestError(
            f"{at} has type {kind!r}; it must be text, image_url, video_url, input_audio or file, with a "
            "field of that name"
        )
    return _signed(converted, part)


def _linked(value: Any, at: str, cannot: RefuseGeminiField) -> GeminiPart:
    """Return the part for an image or a video given by its URL."""
    url = value.get("url") if isinstance(value, Mapping) else value
    if isinstance(value, Mapping) and value.get("detail") not in (None, "auto"):
        cannot(f"{at}.detail", "set generationConfig.mediaResolution by extra_body instead")
    if not isinstance(url, str):
        raise BadRequestError(f"{at}.url is {url!r}; it must be a URL")
    if url.startswith("data:"):
        return _data_url(url, f"{at}.url")
    if urlsplit(url).scheme not in _SCHEMES:
        raise BadRequestError(
            f"{at}.url begins with {url[:20]!r}; it must be an http, https, gs or data: URL"
        )
    return _stored(url)


def _file(file: Mapping[str, Any], at: str) -> GeminiPart:
    """Return the part for a file: its data, or its URI in Gemini's Files API."""
    name, data, uri = file.get("filename"), file.get("file_data"), file.get("file_id")
    if isinstance(uri, str):
        if urlsplit(uri).scheme not in _SCHEMES:
            raise BadRequestError(
                f"{at}.file_id is {uri!r}; it must be the URI of a file uploaded to Gemini's Files API"
            )
        return _stored(uri)
    if isinstance(data, str) and data.startswith("data:"):
        return _data_url(data, f"{at}.file_data")
    kind = _type_of(name) if isinstance(name, str) else None
    if kind is None:
        raise BadRequestError(
            f"{at} has an unknown media type; give file_data as a data: URL, or a filename that ends in one "
            f"of {', '.join(_TYPES)}"
        )
    return _inline(kind, data, f"{at}.file_data")


def _data_url(url: str, at: str) -> GeminiPart:
    head, _, data = url.removeprefix("data:").partition(",")
    kind, *parameters = head.split(";")
    if "base64" not in parameters or not kind:
        raise BadRequestError(f"{at} is {url[:40]!r}…; it must be 'data:<type>;base64,<data>'")
    return _inline(kind, data, at)


def _inline(kind: str, data: Any, at: str) -> GeminiPart:
    if not isinstance(data, str) or not data:
        raise BadRequestError(f"{at} is not a string; it must be the bytes as base64")
    return {"inlineData": {"mimeType": kind, "data": data}}


def _stored(uri: str) -> GeminiPart:
    kind = _type_of(urlsplit(uri).path)
    return {"fileData": {"fileUri": uri, **({"mimeType": kind} if kind else {})}}


def _type_of(name: str) -> str | None:
    return _TYPES.get(PurePosixPath(name).suffix.lower())


def _assistant_parts(
    message: Mapping[str, Any], at: str, called: dict[str, str], cannot: RefuseGeminiField
) -> list[GeminiPart]:
    """Return the parts of an assistant message: text, images, calls. Adds function names to ``called``."""
    for name in ("audio", "function_call", "name"):
        if message.get(name):
            cannot(f"{at}.{name}", "Gemini's messages have no such field")
    google = _google(message)
    parts: list[GeminiPart] = [dict(part) for part in _listed(google.get("parts"))]
    for name in ("content", "refusal"):
        if message.get(name):
            parts += _parts(message[name], f"{at}.{name}", cannot)
    if signature := google.get("thought_signature"):
        if not parts or "text" not in parts[-1]:
            parts.append({"text": ""})
        parts[-1]["thoughtSignature"] = signature
    for place, image in enumerate(_listed(message.get("images"))):
        parts.append(_part(image, f"{at}.images[{place}]", cannot))
    calls = message.get("tool_calls") or []
    expect_kind(calls, f"{at}.tool_calls", list)
    for place, call in enumerate(calls):
        parts.append(_call(call, f"{at}.tool_calls[{place}]", called))
    return parts or [{"text": ""}]


def _call(call: Any, at: str, called: dict[str, str]) -> GeminiPart:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BadRequestError(f"{at} is not a function call; Gemini has no custom tools")
    name, text = function["name"], function.get("arguments") or "{}"
    arguments = text if isinstance(text, Mapping) else _object(text)
    if arguments is None:
        raise BadRequestError(f"{at}.function.arguments is {text!r}; it must be a JSON object")
    function_call: dict[str, Any] = {"name": name, "args": arguments}
    if isinstance(call.get("id"), str):
        function_call["id"] = call["id"]
        called[call["id"]] = name
    return _signed({"functionCall": function_call}, call)


def _result(
    message: Mapping[str, Any], at: str, called: Mapping[str, str], cannot: RefuseGeminiField
) -> GeminiPart:
    """Return the part for a tool result: a JSON object unchanged, other text as ``output``, and media."""
    identity = message.get("tool_call_id")
    name = called.get(identity) if isinstance(identity, str) else None
    name = name or message.get("name")
    if not isinstance(name, str):
        raise BadRequestError(
            f"{at}.tool_call_id is {identity!r}; no earlier assistant message has a tool call with that id"
        )
    content, media = message.get("content"), list[GeminiPart]()
    if isinstance(content, list):
        parts = _parts(content, f"{at}.content", cannot)
        media = [part for part in parts if "text" not in part]
        if not all("inlineData" in part for part in media):
            raise BadRequestError(
                f"{at}.content has a part with a remote URL; tool results take text and data: URLs only"
            )
        content = "".join(str(part["text"]) for part in parts if "text" in part)
    answer = _object(content) if isinstance(content, str) else content
    if not isinstance(answer, Mapping):
        answer = {"output": content or ""}
    id_field = {"id": identity} if isinstance(identity, str) else {}
    media_field = {"parts": media} if media else {}
    return {"functionResponse": {**id_field, "name": name, "response": answer, **media_field}}


def _object(text: Any) -> dict[str, Any] | None:
    """Decode a JSON object; None if the text is not one."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, TypeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)  # Python accepts NaN and Infinity, which are not valid JSON


def _signed(part: GeminiPart, carrier: Mapping[str, Any]) -> GeminiPart:
    """Add the thought signature of an image or a call, which Gemini requires when it is sent back."""
    signature = _google(carrier).get("thought_signature")
    return {**part, "thoughtSignature": signature} if signature else part


def _google(carrier: Mapping[str, Any]) -> Mapping[str, Any]:
    extra = carrier.get("extra_content")
    google = extra.get("google") if isinstance(extra, Mapping) else None
    return google if isinstance(google, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
