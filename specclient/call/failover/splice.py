"""Turn the chunks that continue an answer into such as follow on those that the caller has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specclient.types.usage import Usage

__all__ = ["StreamSplice", "has_output"]

#: What ends the stream of a response.
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})


def has_output(item: Any) -> bool:
    """Tell whether a chunk or event holds some of an answer, or ends it."""
    choices = getattr(item, "choices", None)
    if choices is None:
        kind = getattr(item, "type", "") or ""
        return kind.endswith(".delta") or kind in _LAST_EVENTS
    return any(_adds(choice) for choice in choices)


def _adds(choice: Any) -> bool:
    if choice.finish_reason is not None:
        return True
    delta = getattr(choice, "delta", None)
    if delta is None:
        return bool(choice.text)
    return bool(
        delta.content
        or delta.refusal
        or delta.tool_calls
        or delta.function_call
        or any((delta.__pydantic_extra__ or {}).values())
    )


class StreamSplice:
    """Joins a continuation to what the caller has.

    Its chunks are headed as the first one of all was, none says the role again, the text begins behind what
    is there already, and the usage that is told is that of all of them.

    Args:
        first: chunk that the caller has seen.
        text: what the caller has; what was sent to be continued is the same without blanks at its end.
        repeated: whether the server may send again what it was given to continue.
        spent: what was used before.

    Attributes:
        text: what the continuation has added.
    """

    def __init__(self, first: Any, text: str, *, repeated: bool, spent: Sequence[Usage]) -> None:
        self._id, self._created, self._model = first.id, first.created, first.model
        self._sent = text.rstrip()
        self._blanks = text[len(self._sent) :]
        self._repeated = repeated
        self._held: str | None = ""
        self._prompt = sum(each.prompt or 0 for each in spent)
        self._completion = sum(each.completion or 0 for each in spent)
        self.text = ""

    def joined(self, batch: list[Any]) -> list[Any]:
        """Return what the caller gets of chunks that came together."""
        return [chunk for chunk in batch if self._joins(chunk)]

    def _joins(self, chunk: Any) -> bool:
        """Change a chunk to follow on; tell whether anything is left of it."""
        chunk.id, chunk.created, chunk.model = self._id, self._created, self._model
        if chunk.usage is not None:
            chunk.usage.prompt_tokens += self._prompt
            chunk.usage.completion_tokens += self._completion
            chunk.usage.total_tokens += self._prompt + self._completion
        for choice in chunk.choices:
            delta = getattr(choice, "delta", None)
            last = choice.finish_reason is not None
            if delta is None:
                choice.text = self._added(choice.text or "", last=last)
                continue
            delta.role = None
            delta.__pydantic_fields_set__.discard("role")
            if delta.content or (last and self._held):
                delta.content = self._added(delta.content or "", last=last)
        return chunk.usage is not None or has_output(chunk)

    def _added(self, text: str, *, last: bool) -> str:
        """Return what a piece of text adds; the first ones are held until that can be told."""
        if self._held is None:
            self.text += text
            return text
        held = self._held = self._held + text
        if self._repeated and held.startswith(self._sent):
            held = held[len(self._sent) :]
        elif self._repeated and not last and self._sent.startswith(held):
            return ""
        if not last and len(held) < len(self._blanks) and self._blanks.startswith(held):
            return ""
        same = 0
        while same < min(len(held), len(self._blanks)) and held[same] == self._blanks[same]:
            same += 1
        self._held = None
        self.text += held[same:]
        return held[same:]
