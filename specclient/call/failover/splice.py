"""Makes continuation chunks match the stream already sent to the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specclient.call.answer_fields import LAST_EVENTS, type_of
from specclient.types.usage import Usage

__all__ = ["StreamSplice", "has_output"]


def has_output(item: Any) -> bool:
    """Return whether a chunk or event holds some of the answer, or ends it."""
    choices = getattr(item, "choices", None)
    if choices is None:
        kind = type_of(item)
        return kind.endswith(".delta") or kind in LAST_EVENTS
    return any(_choice_has_output(choice) for choice in choices)


def _choice_has_output(choice: Any) -> bool:
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
    """Rewrites the chunks of a continuation.

    They get the id, model and time of the first chunk that the caller saw; the role is not repeated; text
    that the caller already has is removed; and the usage becomes that of all streams together.

    Args:
        first: a chunk that the caller has seen.
        text: the text that the caller has. The continuation was requested for it without trailing spaces.
        may_repeat: whether the server may send the text again before it continues it.
        earlier_usage: the usage of the streams before.

    Attributes:
        text: the text that the continuation has added.
    """

    def __init__(self, first: Any, text: str, *, may_repeat: bool, earlier_usage: Sequence[Usage]) -> None:
        self._id, self._created, self._model = first.id, first.created, first.model
        self._sent = text.rstrip()
        self._blanks = text[len(self._sent) :]
        self._may_repeat = may_repeat
        self._buffer: str | None = ""  # None once the start of the new text is found
        self._prompt_tokens = sum(usage.prompt or 0 for usage in earlier_usage)
        self._completion_tokens = sum(usage.completion or 0 for usage in earlier_usage)
        self.text = ""

    def spliced(self, batch: list[Any]) -> list[Any]:
        """Return the chunks that the caller receives of a batch; they are changed in place."""
        return [chunk for chunk in batch if self._rewrite(chunk)]

    def _rewrite(self, chunk: Any) -> bool:
        """Change a chunk to match the stream; return whether anything is left of it."""
        chunk.id, chunk.created, chunk.model = self._id, self._created, self._model
        if chunk.usage is not None:
            chunk.usage.prompt_tokens += self._prompt_tokens
            chunk.usage.completion_tokens += self._completion_tokens
            chunk.usage.total_tokens += self._prompt_tokens + self._completion_tokens
        for choice in chunk.choices:
            delta = getattr(choice, "delta", None)
            last = choice.finish_reason is not None
            if delta is None:
                choice.text = self._new_text(choice.text or "", last=last)
                continue
            delta.role = None
            delta.__pydantic_fields_set__.discard("role")
            if delta.content or (last and self._buffer):
                delta.content = self._new_text(delta.content or "", last=last)
        return chunk.usage is not None or has_output(chunk)

    def _new_text(self, text: str, *, last: bool) -> str:
        """Return what a piece of text adds.

        The first pieces are buffered until it is known whether the server repeats the text, and how many of
        the trailing spaces it repeats.
        """
        if self._buffer is None:
            self.text += text
            return text
        buffer = self._buffer = self._buffer + text
        if self._may_repeat and buffer.startswith(self._sent):
            buffer = buffer[len(self._sent) :]
        elif self._may_repeat and not last and self._sent.startswith(buffer):
            return ""
        if not last and len(buffer) < len(self._blanks) and self._blanks.startswith(buffer):
            return ""
        same = 0
        while same < min(len(buffer), len(self._blanks)) and buffer[same] == self._blanks[same]:
            same += 1
        self._buffer = None
        self.text += buffer[same:]
        return buffer[same:]
