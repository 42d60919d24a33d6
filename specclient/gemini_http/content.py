"""Translation of Gemini's contents to the messages of a chat completion."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from specclient.gemini_http.fields import array, record, text_field, wrong
from specclient.openai_http.errors import bad_request
from specclient.providers.encoding import json_of

__all__ = ["chat_messages"]

Part = dict[str, Any]

_ROLES = ("user", "model", "function")
_KINDS = ("text", "inlineData", "fileData", "functionCall", "functionResponse")
#: Between text parts that become one text. Not all servers accept several parts.
_BETWEEN = "\n"
_AUDIO = {"audio/wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def chat_messages(fields: Mapping[str, Any], *, native: bool) -> list[dict[str, Any]]:
    """Return the messages of a chat completion.

    Args:
        fields: the request, with names in camel case.
        native: whether they are for an endpoint of Gemini's API. Parts that other models lack are then kept
            as they are, instead of being refused.

    Raises:
        ServingError: 400; the message names the part and what is allowed.
    """
    return _Messages(native=native).of(fields)


class _Messages:
    """The messages of one request."""

    def __init__(self, *, native: bool) -> None:
        self._native = native
        self._messages: list[dict[str, Any]] = []
        self._calls = 0
        self._open: dict[str, deque[str]] = {}  # ids of calls without a result, by function

    def of(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the messages of a request."""
        if "systemInstruction" in fields:
            parts = self._parts(fields["systemInstruction"], "systemInstruction")
            self._messages.append({"role": "system", "content": _joined(parts)})
        contents = fields.get("contents")
        contents = contents if isinstance(contents, list | dict) and contents else None
        if contents is None:
            raise wrong("contents", fields.get("contents"), "a non-empty array of objects")
        for place, content in enumerate(array(contents, "contents")):
            where = f"contents[{place}]"
            role = record(content, where).get("role", "user")
            if role not in _ROLES:
                raise wrong(f"{where}.role", role, "'user' or 'model'")
            (self._model if role == "model" else self._user)(content, where)
        return self._messages

    def _user(self, content: Any, where: str) -> None:
        """Add the results of functions, each a message of its own, and then the user's other parts."""
        parts = []
        for part, here in self._each(content, where):
            if "functionResponse" in part:
                parts += self._result(record(part["functionResponse"], f"{here}.functionResponse"), here)
            else:
                parts.append(self._part(part, here))
        if parts or not self._messages or self._messages[-1]["role"] != "tool":
            self._messages.append({"role": "user", "content": _joined(parts)})

    def _result(self, result: Part, where: str) -> list[Part]:
        """Add a function's result; return its media, which follow in the user's message."""
        name = text_field(result, "name", f"{where}.functionResponse")
        identity, waiting = result.get("id"), self._open.get(name)
        if not isinstance(identity, str):
            if not waiting:
                raise bad_request(
                    where, f"{where} is the result of {name[:80]!r}, which no earlier content calls"
                )
            identity = waiting.popleft()
        elif waiting and identity in waiting:
            waiting.remove(identity)
        response = result.get("response", {})
        only = next(iter(response.values())) if isinstance(response, dict) and len(response) == 1 else None
        plain = isinstance(only, str) and next(iter(response)) in ("output", "result")
        text = only if plain else json_of(response).decode()
        self._messages.append({"role": "tool", "tool_call_id": identity, "content": text})
        media = array(result.get("parts", []), f"{where}.functionResponse.parts")
        return [self._part(record(part, where), where) for part in media]

    def _model(self, content: Any, where: str) -> None:
        """Add the model's message. Thoughts are left out."""
        texts, calls, kept = list[str](), list[Part](), list[Part]()
        signature = None
        for part, here in self._each(content, where):
            if "functionCall" in part:
                calls.append(self._call(part, here))
            elif isinstance(part.get("text"), str):
                texts += [] if part.get("thought") else [part["text"]]
                signature = part.get("thoughtSignature", signature)
            elif self._native:
                kept.append(part)
            else:
                raise self._unknown(part, here, ("text", "functionCall"))
        google: dict[str, Any] = {"parts": kept} if kept else {}
        if isinstance(signature, str) and self._native:
            google["thought_signature"] = signature
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
        if calls:
            message |= {"content": message["content"] or None, "tool_calls": calls}
        self._messages.append({**message, **({"extra_content": {"google": google}} if google else {})})

    def _call(self, part: Part, where: str) -> Part:
        called = record(part["functionCall"], f"{where}.functionCall")
        name, arguments = text_field(called, "name", f"{where}.functionCall"), called.get("args", {})
        if not isinstance(arguments, dict):
            raise wrong(f"{where}.functionCall.args", arguments, "an object")
        self._calls += 1
        identity = called.get("id") if isinstance(called.get("id"), str) else f"call_{self._calls}"
        self._open.setdefault(name, deque()).append(str(identity))
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        call = {"id": identity, "type": "function", "function": function}
        signature = part.get("thoughtSignature")
        if isinstance(signature, str) and self._native:
            call["extra_content"] = {"google": {"thought_signature": signature}}
        return call

    def _parts(self, content: Any, where: str) -> list[Part]:
        return [self._part(part, here) for part, here in self._each(content, where)]

    def _each(self, content: Any, where: str) -> list[tuple[Part, str]]:
        """Return the parts of a content with their places."""
        if isinstance(content, str):  # some clients send a text
            return [({"text": content}, where)]
        parts = array(record(content, where).get("parts", []), f"{where}.parts")
        places = [f"{where}.parts[{place}]" for place in range(len(parts))]
        return [(record(part, here), here) for part, here in zip(parts, places, strict=True)]

    def _part(self, part: Part, where: str) -> Part:
        """Return a part of a message for text, an image, a sound or a file."""
        if isinstance(part.get("text"), str):
            return {"type": "text", "text": part["text"]}
        if "inlineData" in part:
            return _inline(record(part["inlineData"], f"{where}.inlineData"), f"{where}.inlineData")
        if "fileData" in part:
            data = record(part["fileData"], f"{where}.fileData")
            uri = text_field(data, "fileUri", f"{where}.fileData")
            if str(data.get("mimeType", "")).startswith("image/") and uri.startswith(("http://", "https://")):
                return {"type": "image_url", "image_url": {"url": uri}}
            if self._native:
                return {"type": "file", "file": {"file_id": uri}}
            raise bad_request(
                f"{where}.fileData",
                f"{where}.fileData is a file of Gemini's; other models take images with an http or https URL "
                "here, or inlineData",
            )
        if self._native:
            return part
        raise self._unknown(part, where, _KINDS)

    def _unknown(self, part: Part, where: str, allowed: tuple[str, ...]) -> Exception:
        kind = next((name for name in part if name not in ("thought", "thoughtSignature")), "nothing")
        return bad_request(
            where,
            f"{where} is a part with {kind[:80]!r}; models of other providers than Gemini take parts with "
            f"{', '.join(allowed)} here",
        )


def _inline(data: Part, where: str) -> Part:
    kind, content = text_field(data, "mimeType", where), text_field(data, "data", where)
    content = content.replace("-", "+").replace("_", "/")  # the URL-safe alphabet is allowed, too
    if kind in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": content, "format": _AUDIO[kind]}}
    url = f"data:{kind};base64,{content}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    name = data.get("displayName")
    named = name if isinstance(name, str) and name else f"file.{kind.rpartition('/')[2]}"
    return {"type": "file", "file": {"filename": named, "file_data": url}}


def _joined(parts: list[Part]) -> str | list[Part]:
    """Return parts as one text if they are texts."""
    if all(part.get("type") == "text" for part in parts):
        return _BETWEEN.join(part["text"] for part in parts)
    return parts
