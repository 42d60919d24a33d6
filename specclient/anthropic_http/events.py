"""The chunks of a chat completion as events of Anthropic's API.

Events and their order: https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from specclient.anthropic_http.errors import error_event
from specclient.anthropic_http.response import (
    new_id,
    shown_model,
    stop_fields,
    tool_use,
    usage_fields,
)
from specclient.anthropic_http.thinking import REASONING_FIELDS, thinking_signature
from specclient.openai_http.errors import ServingError
from specclient.openai_http.request import EXTENSION, IncomingCall
from specclient.openai_http.response import call_extension, unreadable_answers_refused
from specclient.providers.encoding import json_of
from specclient.types.call import Call
from specclient.types.chat import ChatCompletionChunk

__all__ = ["MessageEventEncoder", "meta_event"]

Event = dict[str, Any]


class MessageEventEncoder:
    """Encodes the chunks of one stream as the events of a message.

    Args:
        call: the call that is streamed.
        record: returns the call's record.
    """

    def __init__(self, call: IncomingCall, record: Callable[[], Call]) -> None:
        self._call, self._record = call, record
        self._blocks = 0
        self._open: str | None = None  # the type of the open block, which is the last one
        self._thinking: int | None = None
        self._field = ""  # the field of the thinking
        self._calls: dict[int, int] = {}
        self._last: Any = None  # the choice with the finish reason
        self._usage: Any = None

    def begin(self) -> bytes:
        """Return the events before the first chunk; the input tokens are known at the end."""
        message: Event = {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": shown_model(self._call.request, self._record()),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_fields(None),
        }
        return _encoded([{"type": "message_start", "message": message}, {"type": "ping"}])

    def chunks(self, chunks: Sequence[ChatCompletionChunk]) -> bytes:
        """Return the events of chunks that arrived together."""
        with unreadable_answers_refused():
            return _encoded(event for chunk in chunks for event in self._of(chunk))

    def end(self, record: Callable[[], Call]) -> bytes:
        """Return the events after the last chunk.

        Args:
            record: returns the call's record, for callers that have asked for it.
        """
        events: list[Event] = []
        if not self._blocks:
            events += self._opened({"type": "text", "text": ""})
        events += self._closed()
        with unreadable_answers_refused():
            stop = stop_fields(self._call.request, self._last, calls=bool(self._calls))
            events.append({"type": "message_delta", "delta": stop, "usage": usage_fields(self._usage)})
        events.append({"type": "message_stop"})
        return _encoded(events) + (meta_event(record()) if self._call.meta else b"")

    def failed(self, problem: ServingError) -> bytes:
        """Return the event of an error that ends the stream."""
        return error_event(problem)

    def _of(self, chunk: ChatCompletionChunk) -> Iterator[Event]:
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            if choice.finish_reason is not None:
                self._last = choice
            delta = choice.delta
            extra: Mapping[str, Any] = delta.model_extra or {}
            for name in REASONING_FIELDS:
                if isinstance(thought := extra.get(name), str) and thought:
                    self._field = name
                    yield from self._more("thinking", thought)
                    break
            for text in (delta.content, delta.refusal):
                if isinstance(text, str) and text:
                    yield from self._more("text", text)
            for call in delta.tool_calls or []:
                yield from self._more_call(call)
            yield from self._signature(extra.get("thinking_blocks"))

    def _more(self, kind: str, text: str) -> Iterator[Event]:
        """Yield the events of more text or thinking."""
        if self._open != kind:
            signed = {"signature": ""} if kind == "thinking" else {}
            yield from self._opened({"type": kind, kind: "", **signed})
            if kind == "thinking":
                self._thinking = self._blocks - 1
        yield self._delta(self._blocks - 1, {"type": f"{kind}_delta", kind: text})

    def _more_call(self, call: Any) -> Iterator[Event]:
        function = call.function
        if call.index not in self._calls:
            yield from self._opened(tool_use(call))
            self._calls[call.index] = self._blocks - 1
        if function is not None and function.arguments:
            delta = {"type": "input_json_delta", "partial_json": function.arguments}
            yield self._delta(self._calls[call.index], delta)

    def _signature(self, thoughts: object) -> Iterator[Event]:
        """Yield the signature of the thinking, which an Anthropic upstream's last chunk has.

        It replaces the one that was sent at the end of the block. Chunks do not tell several blocks of
        thinking apart, and each has a signature of its own: then the stream has none of Anthropic's.
        """
        if not isinstance(thoughts, list) or len(thoughts) != 1 or self._thinking is None:
            return
        signature = thoughts[0].get("signature") if isinstance(thoughts[0], dict) else None
        if isinstance(signature, str) and signature:
            yield self._delta(self._thinking, {"type": "signature_delta", "signature": signature})

    def _opened(self, block: Event) -> Iterator[Event]:
        """Yield the events that close the open block and open the next one."""
        yield from self._closed()
        self._open, self._blocks = block["type"], self._blocks + 1
        yield {"type": "content_block_start", "index": self._blocks - 1, "content_block": block}

    def _closed(self) -> Iterator[Event]:
        if self._open == "thinking":
            signature = thinking_signature(self._record().route.provider, self._field)
            yield self._delta(self._blocks - 1, {"type": "signature_delta", "signature": signature})
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._blocks - 1}

    @staticmethod
    def _delta(index: int, delta: Event) -> Event:
        return {"type": "content_block_delta", "index": index, "delta": delta}


def meta_event(record: Call) -> bytes:
    """Return the event with cost, route and speculation, which follows the last one."""
    return _encoded([{"type": "specclient.meta", EXTENSION: call_extension(record)}])


def _encoded(events: Iterable[Event]) -> bytes:
    named = [(event["type"].encode(), json_of(event)) for event in events]
    return b"".join([b"event: %b\ndata: %b\n\n" % each for each in named])
