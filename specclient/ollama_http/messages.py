"""The messages of a chat as those of a chat completion: images, tool calls and their results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from specclient.openai_http.errors import bad_request, shown

__all__ = ["chat_messages", "user_content"]

_ROLES = ("assistant", "system", "tool", "user")
#: Media types by the first characters of an image in base64.
_IMAGES = {"/9j/": "image/jpeg", "iVBOR": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_ANY_IMAGE = "image/png"


def chat_messages(given: object) -> list[dict[str, Any]]:
    """Return the messages of a chat completion.

    Raises:
        ServingError: 400; the message names the field and what is allowed.
    """
    if not isinstance(given, list):
        raise bad_request("messages", f"messages is {shown(given)}; it must be an array of objects")
    found: list[dict[str, Any]] = []
    waiting: list[tuple[str, str]] = []  # ids and names of the calls whose results have not come yet
    for place, message in enumerate(given):
        name = f"messages[{place}]"
        if not isinstance(message, dict):
            raise bad_request(name, f"{name} is {shown(message)}; it must be an object")
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise bad_request(
                f"{name}.role", f"{name}.role is {shown(role)}; it must be one of {', '.join(_ROLES)}"
            )
        text = _text(message.get("content"), f"{name}.content")
        if role == "tool":
            found.append(
                {"role": "tool", "tool_call_id": _answered(message, waiting, place), "content": text}
            )
        elif role == "assistant" and message.get("tool_calls"):
            calls = _calls(message["tool_calls"], f"{name}.tool_calls", place)
            waiting = [(call["id"], call["function"]["name"]) for call in calls]
            found.append({"role": role, "content": text or None, "tool_calls": calls})
        else:
            found.append({"role": role, "content": user_content(text, message.get("images"), name)})
    return found


def user_content(text: str, images: object, name: str) -> str | list[dict[str, Any]]:
    """Return a text and its images as the content of a message.

    Args:
        images: images in base64; None without any.
        name: the place of the message, for errors.

    Raises:
        ServingError: 400, the images are not an array of texts.
    """
    if not images:
        return text
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise bad_request(
            f"{name}.images", f"{name}.images is {shown(images)}; it must be an array of images in base64"
        )
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for image in images:
        kind = next((kind for start, kind in _IMAGES.items() if image.startswith(start)), _ANY_IMAGE)
        parts.append({"type": "image_url", "image_url": {"url": f"data:{kind};base64,{image}"}})
    return parts


def _text(content: object, name: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    raise bad_request(name, f"{name} is {shown(content)}; it must be a string")


def _calls(given: object, name: str, message: int) -> list[dict[str, Any]]:
    """Return the tool calls of an assistant's message; those without an id get one."""
    if not isinstance(given, list):
        raise bad_request(name, f"{name} is {shown(given)}; it must be an array of objects")
    calls = []
    for place, call in enumerate(given):
        function = call.get("function") if isinstance(call, dict) else None
        called = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(called, str):
            raise bad_request(f"{name}[{place}]", f"{name}[{place}] must have a function with a name")
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        own = call.get("id")
        calls.append(
            {
                "id": own if isinstance(own, str) and own else f"call_{message}_{place}",
                "type": "function",
                "function": {"name": called, "arguments": text},
            }
        )
    return calls


def _answered(message: dict[str, Any], waiting: list[tuple[str, str]], place: int) -> str:
    """Return the id of the call that a tool's message answers: as given, by the tool's name, or the next."""
    given = message.get("tool_call_id")
    if isinstance(given, str) and given:
        return given
    index = _index_of(message.get("tool_name"), waiting)
    return waiting.pop(index)[0] if waiting else f"call_{place}"


def _index_of(name: object, waiting: Sequence[tuple[str, str]]) -> int:
    return next((index for index, (_, called) in enumerate(waiting) if called == name), 0)
