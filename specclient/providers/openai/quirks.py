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


NO_QUIRKS = Quirks()


def apply_quirks(given: Mapping[str, Any], own: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Return a body in an endpoint's spelling.

    Args:
        given: parameters in OpenAI's spelling.
        own: what the caller says in the endpoint's own; stands over ``given`` and is left as it is.
    """
    made = {quirks.renamed.get(name, name): value for name, value in given.items()}
    prediction = made.get("prediction")
    if quirks.text_prediction and isinstance(prediction, Mapping):
        made["prediction"] = {**prediction, "content": _text(prediction.get("content"))}
    made |= own
    return made if made.get("prediction") is None else with_flags(made, quirks.beside_prediction)


def with_flags(body: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with fields added, or objects filled up; what it says itself stands."""
    added: dict[str, Any] = {}
    for name, flag in flags.items():
        said = body.get(name)
        if name not in body:
            added[name] = flag
        elif isinstance(said, Mapping) and isinstance(flag, Mapping):
            added[name] = {**flag, **said}
    return {**body, **added}


def continues_prefix(body: Mapping[str, Any]) -> bool:
    """Tell whether a body's last message is one to be continued."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, Mapping) and bool(last.get("prefix"))


def _text(content: Any) -> Any:
    """Return text parts as one string; what is none of them as it is, for the endpoint to refuse."""
    if not isinstance(content, list | tuple):
        return content
    texts = [part.get("text") for part in content if isinstance(part, Mapping)]
    whole = len(texts) == len(content) and all(isinstance(text, str) for text in texts)
    return "".join(map(str, texts)) if whole else content
