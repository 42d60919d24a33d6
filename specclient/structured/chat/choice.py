"""State of one choice of a streamed chat completion, and the events of its chunks."""

from __future__ import annotations

from functools import partial
from typing import Any

from specclient.structured.chat import events as made
from specclient.structured.chat.message import MessageState
from specclient.structured.construction import build, event, lazy_event, merge_extras, recast
from specclient.structured.schema import TextParser
from specclient.structured.tools import ChatTools
from specclient.types.chat import ParsedChoice
from specclient.types.chat.chat_completion_chunk import Choice, ChoiceDelta, ChoiceDeltaToolCall
from specclient.types.chat.chat_completion_message import plain_text
from specclient.types.chat.logprobs import ChoiceLogprobs

_LOGPROBS: dict[str, tuple[type[Any], type[Any]]] = {
    "content": (made.LogprobsContentDeltaEvent, made.LogprobsContentDoneEvent),
    "refusal": (made.LogprobsRefusalDeltaEvent, made.LogprobsRefusalDoneEvent),
}


class ChoiceState:
    """Accumulates the chunks of one choice.

    Args:
        piece: the choice in the first chunk that contains it.
        decode: decodes the complete text; None without parsing.
        tools: the request's tools.

    Attributes:
        snapshot: the choice so far. The same object is updated throughout.
    """

    def __init__(self, piece: Choice, decode: TextParser | None, tools: ChatTools) -> None:
        self._message = MessageState(decode, tools)
        self._message.add(piece.delta)
        self._ended: set[str] = set()
        self._current_call: int | None = None
        self.snapshot: ParsedChoice[Any] = recast(
            piece, ParsedChoice, without=("delta",), message=self._message.message
        )
        if piece.logprobs is not None:
            self.snapshot.logprobs = _copied(piece.logprobs)

    def add(self, piece: Choice) -> None:
        """Add a further chunk to the message and to its log probabilities."""
        self._message.add(piece.delta)
        new, known = piece.logprobs, self.snapshot.logprobs
        if new is not None and known is None:
            self.snapshot.logprobs = _copied(new)
        elif new is not None and known is not None:
            for name in _LOGPROBS:
                tokens = getattr(new, name)
                if tokens:
                    setattr(known, name, _extended(getattr(known, name), tokens))

    def note(self, piece: Choice) -> None:
        """Record the finish reason and the extra fields of a chunk, and which texts can be parsed as JSON."""
        merge_extras(self.snapshot, piece)
        if piece.finish_reason:
            self.snapshot.finish_reason = piece.finish_reason
        self._message.read_on(piece.delta)

    def show_parsed(self) -> None:
        """Set the parsed values of the incomplete texts in the snapshot."""
        self._message.show_parsed()

    def events(self, piece: Choice) -> list[Any]:
        """Return the events of a chunk that has been added."""
        state, calls = self._message, piece.delta.tool_calls or ()
        found = self._text_events(piece.delta)
        found.extend(self._call_event(call) for call in calls if state.function_call(call.index) is not None)
        found.extend(self._logprobs_events(piece))
        ended = bool(self.snapshot.finish_reason)
        if ended:
            found.extend(self._end_text())
            found.extend(self._end_call())
        for call in calls:
            if call.index != self._current_call:
                found.extend(self._end_text())
                found.extend(self._end_call())
                self._current_call = call.index
        if ended:  # Mistral and others send a complete tool call together with the finish reason
            found.extend(self._end_call())
        return found

    def _text_events(self, delta: ChoiceDelta) -> list[Any]:
        state, found = self._message, list[Any]()
        text, refusal = state.message.content, state.message.refusal
        if delta.content is not None and text is not None:
            new = delta.content if isinstance(delta.content, str) else plain_text(delta.content)
            fields = {"type": "content.delta", "delta": new, "snapshot": text}
            if state.readable is None:
                found.append(event(made.ContentDeltaEvent, **fields, parsed=state.message.parsed))
            else:
                late = {"parsed": partial(state.parsed_so_far, state.readable)}
                found.append(lazy_event(made.ContentDeltaEvent, late, **fields))
        if delta.refusal is not None and refusal is not None:
            fields = {"type": "refusal.delta", "delta": delta.refusal, "snapshot": refusal}
            found.append(event(made.RefusalDeltaEvent, **fields))
        return found

    def _call_event(self, piece: ChoiceDeltaToolCall) -> Any:
        call, state = self._message.function_call(piece.index), self._message.call(piece.index)
        assert call is not None
        fields = {
            "type": "tool_calls.function.arguments.delta",
            "name": call.function.name,
            "index": piece.index,
            "arguments": call.function.arguments,
            "arguments_delta": (piece.function and piece.function.arguments) or "",
        }
        kind = made.FunctionToolCallArgumentsDeltaEvent
        if state.readable is None:
            return event(kind, **fields, parsed_arguments=call.function.parsed_arguments)
        return lazy_event(kind, {"parsed_arguments": partial(state.parser.read, state.readable)}, **fields)

    def _logprobs_events(self, piece: Choice) -> list[Any]:
        found = []
        for name, (kind, _) in _LOGPROBS.items():
            new = getattr(piece.logprobs, name, None)
            known = getattr(self.snapshot.logprobs, name, None)
            if new and known:
                late = {"snapshot": partial(_first, known, len(known))}
                fields = {"type": f"logprobs.{name}.delta", name: list(new)}
                found.append(lazy_event(kind, late, **fields))
        return found

    def _end_text(self) -> list[Any]:
        """Return the ``done`` events of the text, refusal and log probabilities, each once."""
        message, found = self._message.message, list[Any]()
        if message.content and not self._message.content_done:
            parsed = self._message.end_content()
            fields = {"type": "content.done", "content": message.content, "parsed": parsed}
            found.append(event(made.ContentDoneEvent, **fields))
        if message.refusal is not None and "refusal" not in self._ended:
            self._ended.add("refusal")
            found.append(event(made.RefusalDoneEvent, type="refusal.done", refusal=message.refusal))
        for name, (_, kind) in _LOGPROBS.items():
            tokens = getattr(self.snapshot.logprobs, name, None)
            if tokens is not None and f"logprobs.{name}" not in self._ended:
                self._ended.add(f"logprobs.{name}")
                found.append(event(kind, **{"type": f"logprobs.{name}.done", name: list(tokens)}))
        return found

    def _end_call(self) -> list[Any]:
        """Return the ``done`` event of the current tool call, or an empty list if it was already returned."""
        index = self._current_call
        if index is None or self._message.call(index).done:
            return []
        call = self._message.end_call(index)
        if call is None:
            return []
        fields = {
            "type": "tool_calls.function.arguments.done",
            "index": index,
            "name": call.function.name,
            "arguments": call.function.arguments,
            "parsed_arguments": call.function.parsed_arguments,
        }
        return [event(made.FunctionToolCallArgumentsDoneEvent, **fields)]


def _copied(logprobs: Any) -> ChoiceLogprobs:
    """Return a copy of log probabilities, so that appending does not change the chunk's lists."""
    content, refusal = logprobs.content, logprobs.refusal
    return build(ChoiceLogprobs, {"content": content and [*content], "refusal": refusal and [*refusal]})


def _extended(known: list[Any] | None, tokens: list[Any]) -> list[Any]:
    known = [] if known is None else known
    known.extend(tokens)
    return known


def _first(tokens: list[Any], count: int) -> list[Any]:
    return tokens[:count]
