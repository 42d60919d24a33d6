"""What an endpoint spells differently or refuses, as data; and a body reshaped by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """How an endpoint's form of OpenAI's chat and completions bodies differs.

    Attributes:
        renamed: our name of a parameter, and theirs.
        refused: parameters it has no form of.
        text_prediction: whether ``prediction.content`` must be one string.
        prefix_path: where answers that continue a ``prefix: true`` message are asked for, below the base URL.
        beside_prediction: fields sent with a ``prediction``; the caller's own go in among them.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    text_prediction: bool = False
    prefix_path: str = ""
    beside_prediction: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


PLAIN = Quirks()


def respelled(body: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Return a body in an endpoint's spelling; a name of theirs that the caller has used is left alone."""
    made = {quirks.renamed.get(name, name): value for name, value in body.items()}
    for ours, theirs in quirks.renamed.items():
        if ours in body and theirs in body:
            made[theirs] = body[theirs]
    prediction = made.get("prediction")
    if prediction is None:
        return made
    if quirks.text_prediction and isinstance(prediction, Mapping):
        made["prediction"] = {**prediction, "content": _text(prediction.get("content"))}
    for name, fields in quirks.beside_prediction.items():
        given = made.get(name)
        made[name] = {**fields, **given} if isinstance(given, Mapping) else dict(fields)
    return made


def continues_prefix(body: Mapping[str, Any]) -> bool:
    """Tell whether a body's last message is one to be continued."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, Mapping) and bool(last.get("prefix"))


def _text(content: Any) -> Any:
    """Return text parts as one string; what is none of them as it is, for the endpoint to refuse."""
    if not isinstance(content, list | tuple):
        return content
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else content
