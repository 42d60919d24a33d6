"""The most tokens of a call's prompt, and the parts of it that cannot be counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specclient import tokens
from specclient.types.request import PREDICTION_PARAMETERS, Request

__all__ = ["most_of_prompt", "prompt_parts", "uncounted_part"]

_MARGIN = 1.25
#: Margin of a prompt with an image of unknown size, which is counted as 1024 × 1024 pixels: an image can have
#: up to twice as many tiles.
_REMOTE_MARGIN = 2.5
#: Tokens around a message, a part or a field, in addition to the bytes of its texts.
_FRAME_TOKENS = 4

#: Parameters, and types of parts of messages and items, whose tokens only the provider knows.
_STORED = ("previous_response_id", "conversation", "prompt")
_UNCOUNTED_PARTS = frozenset({"file", "input_file", "document", "input_audio", "item_reference", "video_url"})
#: The same for blocks of Bedrock's Converse API, each an object with the block's name as its only field.
_UNCOUNTED_BLOCKS = ("audio", "document", "image", "searchResult", "toolResult", "video")
_IMAGE_PARTS = ("image_url", "input_image", "image")


def most_of_prompt(
    request: Request, parts: list[Mapping[Any, Any]], model: str, *, strict: bool
) -> tuple[int, int]:
    """Return the counted tokens of a prompt, and the most that it may have.

    Args:
        request: the request.
        parts: its messages and their parts; see :func:`prompt_parts`.
        model: the model's name at its provider.
        strict: whether an estimated prompt counts as its bytes, of which each token has at least one.
    """
    count = tokens.count_prompt(request, model)
    remote = any(map(_is_remote_image, parts))
    most = math.ceil(count.tokens * (_REMOTE_MARGIN if remote else _MARGIN))
    if not count.estimated:
        most = count.tokens
    elif strict:
        images = any(part.get("type") in _IMAGE_PARTS for part in parts)
        most = _bytes(request.params, but=PREDICTION_PARAMETERS) + (most if images else 0)
    body = request.options.body
    if strict:
        return count.tokens, most + _bytes(body, but=PREDICTION_PARAMETERS)
    return count.tokens, most + _extra_tokens(body, model)


def prompt_parts(operation: str, params: Mapping[str, Any]) -> Iterator[Mapping[Any, Any]]:
    """Yield the messages or items of a request, and their parts."""
    messages = params.get("input" if operation == "response" else "messages")
    for message in messages if isinstance(messages, list | tuple) else ():
        if isinstance(message, Mapping):
            yield message
            for name in ("content", "output"):
                content = message.get(name)
                if isinstance(content, list | tuple):
                    yield from (part for part in content if isinstance(part, Mapping))


def uncounted_part(
    operation: str, params: Mapping[str, Any], parts: Iterable[Mapping[Any, Any]]
) -> str | None:
    """Return the name of a parameter or part whose tokens cannot be counted; None if there is none."""
    if operation == "response" and (stored := next((n for n in _STORED if params.get(n)), None)):
        return stored
    for part in parts:
        kind = part.get("type")
        if isinstance(kind, str) and kind in _UNCOUNTED_PARTS:
            return kind
        if operation == "chat" and part.get("audio"):
            return "audio"
        if kind is None and (block := next((name for name in _UNCOUNTED_BLOCKS if name in part), None)):
            return block
    return None


def _is_remote_image(part: Mapping[Any, Any]) -> bool:
    """Return whether a part is an image whose size is not known here."""
    if part.get("type") not in _IMAGE_PARTS:
        return False
    place = part.get("image_url") or part.get("source")
    if isinstance(place, Mapping):
        place = place.get("url") or place.get("data")
    return not isinstance(place, str) or place.startswith("http")


def _extra_tokens(body: Mapping[str, Any], model: str) -> int:
    """Return the tokens of the texts in fields outside the API, which may become part of the prompt."""
    left = [value for name, value in body.items() if name not in PREDICTION_PARAMETERS]
    texts: list[str] = []
    while left:
        each = left.pop()
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, Mapping):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
    return math.ceil(tokens.count_text("\n".join(texts), model).tokens * _MARGIN) if texts else 0


def _bytes(value: Any, but: Iterable[str] = ()) -> int:
    """Return the bytes of all texts in a value, plus framing tokens; images are counted elsewhere.

    Args:
        but: top-level names to leave out.
    """
    total, left = 0, [inner for name, inner in value.items() if name not in but]
    while left:
        each = left.pop()
        total += _FRAME_TOKENS
        if isinstance(each, str):
            total += len(each.encode(errors="surrogatepass"))
        elif isinstance(each, Mapping):
            if each.get("type") not in _IMAGE_PARTS:
                left.extend(each.keys())
                left.extend(each.values())
        elif isinstance(each, list | tuple):
            if each and isinstance(each[0], int):
                total += len(each)  # token ids
            else:
                left.extend(each)
        elif hasattr(each, "model_dump"):
            left.append(each.model_dump(exclude_none=True))
    return total
