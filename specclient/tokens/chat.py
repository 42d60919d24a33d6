"""Token counts of prompts: the messages, tools and inputs of a request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from specclient.tokens.image_size import size_in
from specclient.tokens.images import count_image
from specclient.tokens.text import Encode, TokenCount, bare_model_name, count_text
from specclient.tokens.tools import count_tools, json_text
from specclient.types.request import Request

__all__ = ["count_messages", "count_prompt"]

#: Chat models with documented tokens per message (OpenAI cookbook, "How to count tokens with tiktoken").
_FRAMED = ("gpt-3.5-turbo", "gpt-4")
_FRAMED_FIELDS = ("role", "content", "name")
_PER_MESSAGE = 3
_PER_NAME = 1
_PER_REPLY = 3

_TEXTS = ("text", "input_text", "output_text")
_IMAGES = ("image_url", "input_image", "image")


def count_messages(messages: Iterable[Any], model: str, *, encode: Encode | None = None) -> TokenCount:
    """Count the tokens of a chat prompt, including the tokens around each message. Never raises.

    The count is exact for OpenAI's GPT-3.5 and GPT-4 families, whose tokens per message are documented, if
    the messages contain only text, and images whose size can be read. It is an estimate for other models, and
    for messages with tool calls, audio or files; audio and files count as 0 tokens.

    Args:
        messages: mappings with ``role`` and ``content``, as for ``chat.completions.create``.
        model, encode: see :func:`specclient.tokens.count_text`.
    """
    start = TokenCount(_PER_REPLY, estimated=not bare_model_name(model).startswith(_FRAMED))
    return TokenCount.sum(chain((start,), (_message(each, model, encode) for each in _each(messages))))


def _message(message: Any, model: str, encode: Encode | None) -> TokenCount:
    tokens, estimated = _PER_MESSAGE, False
    fields = _fields(message)
    if isinstance(blocks := fields.get("content_blocks"), list):  # they repeat content and calls
        fields = {"role": fields.get("role"), "content_blocks": blocks}
    for key, value in fields.items():
        count = _value(value, model, encode)
        tokens += count.tokens + (_PER_NAME if key == "name" else 0)
        estimated = estimated or count.estimated or key not in _FRAMED_FIELDS
    return TokenCount(tokens, estimated)


def count_prompt(request: Request, model: str, *, encode: Encode | None = None) -> TokenCount:
    """Count the tokens of a request: its messages and tools, or its prompt or input as text or token ids.

    Never raises, even for an invalid request: the endpoint reports its errors.

    Args:
        request: the request.
        model, encode: see :func:`specclient.tokens.count_text`.
    """
    params = request.params
    if request.operation == "chat":
        tools = [params.get("tools"), params.get("functions")]
        counts = [count_messages(params.get("messages") or (), model, encode=encode)]
    elif request.operation == "response":
        tools = [params.get("tools")]
        counts = _response_input(params, model, encode)
    else:
        name = "input" if request.operation in ("embedding", "moderation") else "prompt"
        return _count_texts(params.get(name), model, encode)
    choice = params.get("tool_choice")
    counts += [count_tools(each, model, choice=choice, encode=encode) for each in tools]
    form = params.get("response_format") or params.get("text")
    if isinstance(form, Mapping) and (schema := form.get("json_schema") or form.get("format")):
        counts.append(TokenCount(count_text(json_text(schema), model, encode=encode).tokens, estimated=True))
    return TokenCount.sum(counts)


def _response_input(params: Mapping[str, Any], model: str, encode: Encode | None) -> list[TokenCount]:
    content, instructions = params.get("input"), params.get("instructions")
    items = (
        count_text(content, model, encode=encode)
        if isinstance(content, str)
        else count_messages(content or (), model, encode=encode)
    )
    return [count_text(instructions if isinstance(instructions, str) else "", model, encode=encode), items]


def _count_texts(prompt: Any, model: str, encode: Encode | None) -> TokenCount:
    """Count one text, one list of token ids, or a list of either."""
    if isinstance(prompt, list | tuple):
        if all(isinstance(token, int) for token in prompt):
            return TokenCount(len(prompt))
        if any(isinstance(part, list | tuple) and part and not isinstance(part[0], int) for part in prompt):
            return count_text(json_text(prompt), model, encode=encode)  # no endpoint accepts such nesting
        return TokenCount.sum(_count_texts(part, model, encode) for part in prompt)
    return count_text(prompt if isinstance(prompt, str) else "", model, encode=encode)


def _each(messages: Any) -> Iterable[Any]:
    return messages if isinstance(messages, list | tuple) else (messages,) if messages else ()


def _fields(message: Any) -> Mapping[Any, Any]:
    """Return a message as a mapping. It may also be the message object of an earlier response."""
    if isinstance(message, Mapping):
        return message
    if hasattr(message, "model_dump"):
        fields: dict[str, Any] = message.model_dump(exclude_none=True)
        return fields
    return {"": json_text(message)}  # an unknown field makes the count an estimate


def _value(value: Any, model: str, encode: Encode | None) -> TokenCount:
    """Count the tokens of a message field's value."""
    if value is None:
        return TokenCount(0)
    if isinstance(value, str):
        return count_text(value, model, encode=encode)
    if isinstance(value, list | tuple):
        parts = [_part(part, model, encode) for part in value if isinstance(part, Mapping)]
        others = [part for part in value if not isinstance(part, Mapping)]
        return TokenCount.sum((*parts, _rest(others, model, encode)) if others else parts)
    return _rest(value, model, encode)


def _part(part: Mapping[Any, Any], model: str, encode: Encode | None) -> TokenCount:
    """Count the tokens of a part of a message's content, or of one of its tool calls."""
    kind = part.get("type")
    text = part.get("text")
    if kind in _TEXTS and isinstance(text, str):
        return count_text(text, model, encode=encode)
    if kind in _IMAGES:
        where, detail = _image(part)
        size = size_in(where) if isinstance(where, str) else None
        return count_image(size, model, detail=detail if isinstance(detail, str) else None)
    called = part.get("function")
    if isinstance(called, Mapping):
        call_text = f"{called.get('name')}{called.get('arguments') or ''}"
        return count_text(call_text, model, encode=encode) + TokenCount(_PER_MESSAGE, estimated=True)
    return _rest(part, model, encode)


def _image(part: Mapping[Any, Any]) -> tuple[Any, Any]:
    """Return an image's URL or data, and its ``detail``, from a part in OpenAI's or Anthropic's form."""
    place = part.get("image_url")
    if isinstance(place, Mapping):
        return place.get("url"), place.get("detail")
    source = part.get("source")
    if isinstance(source, Mapping):
        return source.get("data") or source.get("url"), None
    return place, part.get("detail")


#: Base64. The look-behind keeps the time linear: without it, each character of a shorter run begins a search.
_DATA = re.compile(r"data:[^'\"]{64,}|(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{256,}")
#: Characters that are searched in one go; the regular expression holds the GIL until it is done.
_SLICE = 2**18


def _rest(value: Any, model: str, encode: Encode | None) -> TokenCount:
    """Estimate the tokens of any other value from its JSON, without base64 data such as audio and files."""
    text = json_text(value)
    words = "".join([_DATA.sub("", text[at : at + _SLICE]) for at in range(0, len(text), _SLICE)])
    return TokenCount(count_text(words, model, encode=encode).tokens, estimated=True)
