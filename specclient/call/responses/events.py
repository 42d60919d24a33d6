"""The events of a response: made of the chunks of a chat completion, or replayed from a stored response.

Events and their order: https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from specclient.call.responses.ids import new_id
from specclient.call.responses.response import (
    GrowingResponse,
    ResponseItem,
    call_item,
    message_item,
    scores_of,
    text_part,
)
from specclient.types.chat import ChatCompletionChunk
from specclient.types.request import Request

__all__ = ["Delta", "ResponseEventBuilder", "delta_of", "replayed_events"]

Event = dict[str, Any]

#: A piece of the output: the index of its item, its characters, and the number of its log-probabilities.
#: No characters stand for the start of the item.
Delta = Sequence[int]


class _EventWriter:
    """Numbers events, and writes those of one output item."""

    def __init__(self) -> None:
        self._number = 0

    def event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def opened(self, index: int, item: Mapping[str, Any]) -> Iterator[Event]:
        """Yield the events of an item that begins; ``item`` is still empty."""
        yield self.event("response.output_item.added", output_index=index, item=dict(item))
        if item["type"] == "message":
            part = text_part("", [])
            yield self.event("response.content_part.added", **_place(index, item), content_index=0, part=part)

    def text(self, index: int, item: Mapping[str, Any], delta: str, scores: list[Any]) -> Event:
        fields = {"content_index": 0, "delta": delta, "logprobs": scores}
        return self.event("response.output_text.delta", **_place(index, item), **fields)

    def arguments(self, index: int, item: Mapping[str, Any], delta: str) -> Event:
        return self.event("response.function_call_arguments.delta", **_place(index, item), delta=delta)

    def closed(self, index: int, item: Mapping[str, Any]) -> Iterator[Event]:
        """Yield the events of an item that is finished."""
        place = _place(index, item)
        if item["type"] == "message":
            part = item["content"][0]
            fields = {"text": part["text"], "logprobs": part["logprobs"]}
            yield self.event("response.output_text.done", **place, content_index=0, **fields)
            yield self.event("response.content_part.done", **place, content_index=0, part=part)
        else:
            fields = {"name": item["name"], "arguments": item["arguments"]}
            yield self.event("response.function_call_arguments.done", **place, **fields)
        yield self.event("response.output_item.done", output_index=index, item=dict(item))


class ResponseEventBuilder:
    """Makes events from chunks.

    Args:
        request: the Responses API request.
    """

    def __init__(self, request: Request) -> None:
        self._response = GrowingResponse(request)
        self._writer = _EventWriter()
        self._open: int | None = None
        self._calls: dict[int, int] = {}
        self._finish: str | None = None
        self._usage: Any = None

    def begin(self) -> Iterator[Event]:
        """Yield the events before the first chunk."""
        for kind in ("response.created", "response.in_progress"):
            yield self._writer.event(kind, response=self._response.now("in_progress"))

    def of(self, chunk: ChatCompletionChunk) -> Iterator[Event]:
        """Yield the events of a chunk."""
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._finish = choice.finish_reason or self._finish
            if choice.delta.content:
                yield from self._more_text(choice.delta.content, scores_of(choice.logprobs))
            for call in choice.delta.tool_calls or []:
                yield from self._more_call(call)

    def end(self) -> Iterator[Event]:
        """Yield the events after the last chunk."""
        if not self._response.items:
            yield from self._opened(message_item())
        yield from self._closed(self._finish)
        response = self._response.ended(self._finish, self._usage)
        yield self._writer.event(f"response.{response['status']}", response=response)

    def _more_text(self, text: str, scores: list[ResponseItem]) -> Iterator[Event]:
        items = self._response.items
        if self._open is None or items[self._open]["type"] != "message":
            yield from self._opened(message_item())
        assert self._open is not None
        item = items[self._open]
        part = item["content"][0]
        part["text"] += text
        part["logprobs"] += scores
        yield self._writer.text(self._open, item, text, scores)

    def _more_call(self, call: Any) -> Iterator[Event]:
        function = call.function
        if call.index not in self._calls:
            yield from self._opened(
                call_item(call.id or new_id("call"), (function and function.name) or "", "")
            )
            assert self._open is not None
            self._calls[call.index] = self._open
        index = self._calls[call.index]
        if function is not None and function.arguments:
            item = self._response.items[index]
            item["arguments"] += function.arguments
            yield self._writer.arguments(index, item, function.arguments)

    def _opened(self, item: ResponseItem) -> Iterator[Event]:
        """Yield the events that close the open item and open the next one."""
        yield from self._closed(None)
        self._open = index = len(self._response.items)
        self._response.items.append(item)
        yield from self._writer.opened(index, item)
        if item["type"] == "message":
            item["content"] = [text_part("", [])]

    def _closed(self, finish: str | None) -> Iterator[Event]:
        if self._open is None:
            return
        index, self._open = self._open, None
        self._response.close_item(index, finish)
        yield from self._writer.closed(index, self._response.items[index])


def delta_of(event: Any) -> Delta | None:
    """Return the piece of output in a typed event; None for an event without one."""
    kind = event.type
    if kind == "response.output_item.added":
        return event.output_index, 0, 0
    if kind == "response.output_text.delta":
        return event.output_index, len(event.delta), len(event.logprobs or ())
    if kind == "response.function_call_arguments.delta":
        return event.output_index, len(event.delta), 0
    return None


def replayed_events(response: Mapping[str, Any], deltas: Iterable[Delta] | None = None) -> Iterator[Event]:
    """Yield the events of a finished response; the same as when it was streamed.

    Args:
        response: the response.
        deltas: the pieces in which it was streamed; None if it was not streamed: then each item is one piece.
    """
    items: list[dict[str, Any]] = response["output"]
    writer = _EventWriter()
    growing = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    for kind in ("response.created", "response.in_progress"):
        yield writer.event(kind, response=growing)
    sent = [(0, 0)] * len(items)
    open_index: int | None = None
    for index, size, count in _whole_deltas(items) if deltas is None else deltas:
        item = items[index]
        if not size:
            if open_index is not None:
                yield from writer.closed(open_index, items[open_index])
            open_index = index
            empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
            yield from writer.opened(index, {**item, **empty, "status": "in_progress"})
            continue
        (start, first), sent[index] = sent[index], (sent[index][0] + size, sent[index][1] + count)
        if item["type"] == "message":
            part = item["content"][0]
            text, scores = part["text"][start : start + size], part["logprobs"][first : first + count]
            yield writer.text(index, item, text, scores)
        else:
            yield writer.arguments(index, item, item["arguments"][start : start + size])
    if open_index is not None:
        yield from writer.closed(open_index, items[open_index])
    yield writer.event(f"response.{response['status']}", response=dict(response))


def _whole_deltas(items: Sequence[Mapping[str, Any]]) -> Iterator[Delta]:
    for index, item in enumerate(items):
        yield index, 0, 0
        part = (
            item["content"][0] if item["type"] == "message" else {"text": item["arguments"], "logprobs": []}
        )
        if part["text"]:
            yield index, len(part["text"]), len(part["logprobs"])


def _place(index: int, item: Mapping[str, Any]) -> dict[str, Any]:
    return {"item_id": item["id"], "output_index": index}
