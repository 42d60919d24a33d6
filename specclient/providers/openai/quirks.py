"""Differences of endpoints from OpenAI's request bodies, as data, and their application to a body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specclient.errors import BadRequestError
from specclient.types.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Differences of an endpoint from OpenAI's chat and completions bodies.

    A new difference of one provider is a field in its row of ``providers/presets``.

    Attributes:
        renamed: the endpoint's name of a parameter, by OpenAI's name.
        refused: parameters, by OpenAI's names, that the endpoint does not support. With ``stream_options``,
            streams do not ask for usage, and the caller's ``include_usage`` is left out.
        text_prediction: whether ``prediction.content`` must be one string.
        prefix_path: the path, below the base URL, for responses that continue a ``prefix: true`` message.
        beside_prediction: fields sent with a ``prediction``, merged with the caller's.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    text_prediction: bool = False
    prefix_path: str = ""
    beside_prediction: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


NO_QUIRKS = Quirks()


def quirks_apply(request: Request) -> bool:
    """Return whether quirks change a request: a chat or completion that is not called by its path."""
    return request.operation in ("chat", "completion") and bool(request.method.params)


def apply_quirks(given: Mapping[str, Any], own: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Return a body in the endpoint's form.

    Args:
        given: parameters in OpenAI's form.
        own: parameters in the endpoint's form, from the caller. They override ``given`` and are not changed.
        quirks: the endpoint's differences.

    Raises:
        BadRequestError: two parameters of ``given`` have one name at the endpoint, and different values.
    """
    body: dict[str, Any] = {}
    for name, value in given.items():
        sent = quirks.renamed.get(name, name)
        if body.get(sent) is not None and value is not None and body[sent] != value:
            first = next(each for each in given if quirks.renamed.get(each, each) == sent)
            raise BadRequestError(
                f"{first} is {body[sent]!r} and {name} is {value!r}, and the endpoint has {sent} alone for "
                "both; pass one of them"
            )
        if value is not None or sent not in body:
            body[sent] = value
    prediction = body.get("prediction")
    if quirks.text_prediction and isinstance(prediction, Mapping):
        body["prediction"] = {**prediction, "content": _text(prediction.get("content"))}
    body |= own
    return body if body.get("prediction") is None else with_flags(body, quirks.beside_prediction)


def with_flags(body: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with fields added and objects completed. Values in the body take precedence."""
    added: dict[str, Any] = {}
    for name, flag in flags.items():
        value = body.get(name)
        if name not in body:
            added[name] = flag
        elif isinstance(value, Mapping) and isinstance(flag, Mapping):
            added[name] = {**flag, **value}
    return {**body, **added}


def continues_prefix(body: Mapping[str, Any]) -> bool:
    """Return whether the response continues the body's last message."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, Mapping) and bool(last.get("prefix"))


def _text(content: Any) -> Any:
    """Return text parts as one string. Other content is returned unchanged, for the endpoint to refuse."""
    if not isinstance(content, list | tuple):
        return content
    texts = [part.get("text") for part in content if isinstance(part, Mapping)]
    all_text = len(texts) == len(content) and all(isinstance(text, str) for text in texts)
    return "".join(map(str, texts)) if all_text else content
