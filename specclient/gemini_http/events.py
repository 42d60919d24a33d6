"""The chunks of a chat completion as the events of Gemini's streams.

https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent: an event has what is added to
each candidate; a function call comes as a whole, and the finish reason and the usage with the last event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specclient.gemini_http.errors import error_event
from specclient.gemini_http.request import shows_thoughts
from specclient.gemini_http.response import call_part, finish_name, frame, thought_of, usage_metadata
from specclient.openai_http.errors import ServingError
from specclient.openai_http.request import EXTENSION, IncomingCall
from specclient.openai_http.response import call_extension, unreadable_answers_refused
from specclient.providers.encoding import json_of
from specclient.types.call import Call
from specclient.types.chat import ChatCompletionChunk

__all__ = ["ContentEventEncoder", "meta_event"]


@dataclass(slots=True)
class _StreamedCall:
    """A function call received so far."""

    name: str = ""
    identity: str | None = None
    extra: Any = None
    pieces: list[str] = field(default_factory=list)

    def part(self) -> dict[str, Any]:
        """Return the part of the call."""
        return call_part(self.name, "".join(self.pieces), self.identity, self.extra)


@dataclass(slots=True)
class _StreamedCandidate:
    """One candidate received so far: its function calls, and why it ended."""

    calls: dict[int, _StreamedCall] = field(default_factory=dict)
    finish: str = "STOP"


class ContentEventEncoder:
    """Encodes the chunks of one stream as Gemini's events.

    Args:
        call: the call that is streamed.
        record: returns the call's record.
    """

    def __init__(self, call: IncomingCall, record: Callable[[], Call]) -> None:
        self._call, self._record = call, record
        self._thoughts = shows_thoughts(call.request)
        self._candidates: dict[int, _StreamedCandidate] = {}
        self._frame: Mapping[str, str] | None = None
        self._usage: Any = None

    def begin(self) -> bytes:
        """Return no event: the first one has content."""
        return b""

    def chunks(self, chunks: Sequence[ChatCompletionChunk]) -> bytes:
        """Return the events of chunks that arrived together."""
        events = []
        with unreadable_answers_refused():
            for chunk in chunks:
                self._usage = chunk.usage or self._usage
                added = [self._added(choice) for choice in chunk.choices]
                if candidates := [candidate for candidate in added if candidate is not None]:
                    events.append({"candidates": candidates})
            return b"".join([self._event(event) for event in events])

    def end(self, record: Callable[[], Call]) -> bytes:
        """Return the last event, with function calls, finish reasons and the usage.

        Args:
            record: returns the call's record, for callers that have asked for it.
        """
        with unreadable_answers_refused():
            found = self._candidates or {0: _StreamedCandidate()}
            candidates = [self._ended(index, found[index]) for index in sorted(found)]
            extension = {EXTENSION: call_extension(record())} if self._call.meta else {}
            return self._event({"candidates": candidates, **usage_metadata(self._usage), **extension})

    def failed(self, problem: ServingError) -> bytes:
        """Return the event of an error that ends the stream."""
        return error_event(problem)

    def _added(self, choice: Any) -> dict[str, Any] | None:
        """Return what a chunk adds to a candidate; None if it adds no text."""
        known = self._candidates.setdefault(choice.index, _StreamedCandidate())
        if choice.finish_reason is not None:
            known.finish = finish_name(choice)
        delta = choice.delta
        for call in delta.tool_calls or []:
            streamed = known.calls.setdefault(call.index, _StreamedCall())
            streamed.identity = call.id or streamed.identity
            streamed.extra = (call.model_extra or {}).get("extra_content") or streamed.extra
            if call.function is not None:
                streamed.name = call.function.name or streamed.name
                streamed.pieces.append(call.function.arguments or "")
        parts: list[dict[str, Any]] = []
        if self._thoughts and (thought := thought_of(delta)):
            parts.append({"text": thought, "thought": True})
        parts += [{"text": text} for text in (delta.content, delta.refusal) if isinstance(text, str) and text]
        return {"content": {"role": "model", "parts": parts}, "index": choice.index} if parts else None

    def _ended(self, index: int, candidate: _StreamedCandidate) -> dict[str, Any]:
        parts = [call.part() for _, call in sorted(candidate.calls.items())] or [{"text": ""}]
        return {
            "content": {"role": "model", "parts": parts},
            "finishReason": candidate.finish,
            "index": index,
        }

    def _event(self, event: Mapping[str, Any]) -> bytes:
        if self._frame is None:
            self._frame = frame(self._call.request, self._record())
        return b"data: %b\n\n" % json_of({**event, **self._frame})


def meta_event(record: Call) -> bytes:
    """Return the event with cost, route and speculation, for streams that an upstream wrote."""
    return b"data: %b\n\n" % json_of({EXTENSION: call_extension(record)})
