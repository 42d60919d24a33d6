"""Counts of an answer other than its tokens, by the name of their figure in the ledger.

:class:`AnswerCounter` fills ``Call.counts``. A new count is counted here, and stored and reported by a
:class:`~specclient.ledger.figure_kinds.Counted` of the same name in :mod:`specclient.ledger.figures`.
"""

from __future__ import annotations

from typing import Any

from specclient.call.answer_fields import LAST_EVENTS, type_of
from specclient.runtime.frozen_dict import FrozenDict
from specclient.types.chat.chat_completion import Choice
from specclient.types.chat.chat_completion_chunk import Choice as ChunkChoice

#: Types of response items that call one of the caller's tools. The vendor runs the tools of other items.
_CALL_ITEMS = frozenset({"function_call", "custom_tool_call"})

#: Counts of a chat stream before its first tool call.
_FIRST_COUNTS = {"tool_calls": 0}


class AnswerCounter:
    """Counts one answer, complete or streamed.

    A count is absent while it is unknown, and for kinds of answers to which it does not apply: a text
    completion has no count of tool calls; a chat answer has one, which may be 0.
    """

    __slots__ = ("_counts", "_streamed_calls")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._streamed_calls: set[tuple[int, int]] = set()  # by choice and position among its calls

    def counts(self) -> FrozenDict[str, int]:
        """Return the counts known so far, by name."""
        return FrozenDict(self._counts)

    def note_answer(self, answer: Any) -> None:
        """Count a complete chat answer; other kinds of choices count nothing."""
        for choice in answer.choices:
            if isinstance(choice, Choice):
                self._add("tool_calls", len(choice.message.tool_calls or ()))

    def note_chunk(self, chunk: Any) -> None:
        """Count a chunk of a chat stream; runs for every chunk."""
        for choice in chunk.choices:
            if type(choice) is not ChunkChoice:
                continue
            if not self._counts:
                self._counts.update(_FIRST_COUNTS)
            calls = choice.delta.tool_calls
            if calls:  # a call comes in several deltas, all with its index
                self._streamed_calls.update((choice.index, call.index) for call in calls)
                self._counts["tool_calls"] = len(self._streamed_calls)

    def note_response(self, response: Any) -> None:
        """Count a complete response of the Responses API; replaces the counts of its events."""
        output = getattr(response, "output", None)
        if isinstance(output, list):
            self._counts["tool_calls"] = sum(_is_tool_call(item) for item in output)

    def note_event(self, kind: str, event: Any) -> None:
        """Count an event of a response's stream; runs for every event.

        Args:
            kind: the event's type; events of other kinds of streams count nothing.
        """
        if kind == "response.output_item.added":
            self._add("tool_calls", int(_is_tool_call(getattr(event, "item", None))))
        elif kind in LAST_EVENTS:
            self.note_response(getattr(event, "response", None))

    def _add(self, name: str, number: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + number


def _is_tool_call(item: object) -> bool:
    return type_of(item) in _CALL_ITEMS
