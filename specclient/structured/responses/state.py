"""State of a streamed response: the response so far, and the events passed on to the caller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import pydantic

from specclient.structured.construction import event as made
from specclient.structured.construction import recast
from specclient.structured.responses.events import (
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
    TextFormatT,
)
from specclient.structured.responses.output import OutputState, growing, growing_part
from specclient.structured.responses.parsing import parse_text, parsed_response
from specclient.structured.schema import decoder
from specclient.structured.tools import ToolMapping, listed_tools
from specclient.types.responses.parsed_response import ParsedResponse

M = TypeVar("M", bound=pydantic.BaseModel)

_AT_WORK = frozenset({"response.created", "response.queued", "response.in_progress"})
_BROKEN_OFF = frozenset({"response.failed", "response.incomplete"})
_LIFECYCLE = _AT_WORK | _BROKEN_OFF | {"response.completed"}


class ResponseStreamState(Generic[TextFormatT]):
    """Accumulates the events of one response. ``responses.stream`` uses it; it can also be used directly.

    Args:
        input_tools: the request's tools; calls of strict tools are parsed.
        text_format: the type of the parsed texts; see :func:`specclient.structured.parse_response`.

    Attributes:
        completed: the complete, parsed response; None before it is complete.
        last: the type of the last event; empty before the first event.
    """

    def __init__(self, *, input_tools: Iterable[ToolMapping] | Any = None, text_format: Any = None) -> None:
        self.completed: ParsedResponse[TextFormatT] | None = None
        self.last = ""
        self._tools = listed_tools(input_tools)
        self._decode = decoder(text_format)
        self._snapshot: ParsedResponse[Any] | None = None
        self._output = OutputState([])

    def handle_event(self, event: Any) -> list[ResponseStreamEvent[TextFormatT]]:
        """Add ``event`` to the response, and return the events for the caller.

        The result holds ``event`` unmodified, or with a snapshot or parsed values; it is empty for an added
        output item without an item.

        Raises:
            RuntimeError: the event contradicts earlier events.
            pydantic.ValidationError: a complete text is not valid for its type.
        """
        self.last = event.type
        if self._snapshot is None:
            self._begin(event)
        elif event.type in _LIFECYCLE:
            self._check_id(event)
            if event.type in _AT_WORK:
                self._output.replace(event.response.output or [])
            elif event.type == "response.completed":
                self._complete(event.response)
        else:
            self._accumulate(event)
        events = self._event_for_caller(event)
        return [] if events is None else [events]

    def _begin(self, event: Any) -> None:
        if event.type != "response.created":
            raise RuntimeError(f"Expected to have received `response.created` before `{event.type}`")
        items = [growing(item) for item in event.response.output or ()]
        self._snapshot = recast(event.response, ParsedResponse, output=items)
        self._output = OutputState(items)

    def _check_id(self, event: Any) -> None:
        assert self._snapshot is not None
        if getattr(event.response, "id", None) != self._snapshot.id:
            raise RuntimeError(
                f"Lifecycle response identity changed from {self._snapshot.id!r} to {event.response.id!r}."
            )

    def _complete(self, response: Any) -> None:
        self._output.check_final(response.output or [])
        if response.output is None:  # some servers send the items in their own events only
            response = recast(response, type(response), output=self._output.finished())
        self.completed = parsed_response(response, self._decode, self._tools)

    def _accumulate(self, event: Any) -> None:
        """Add ``event`` to the item that it refers to."""
        match event.type:
            case "response.output_item.added" if getattr(event, "item", None) is not None:
                assert self._snapshot is not None
                item = growing(event.item)
                self._output.add(event.output_index, item)
                self._snapshot.output.append(item)
            case "response.content_part.added":
                item = self._output.item(event.output_index)
                if item.type == "message":
                    item.content.append(growing_part(event.part))
            case "response.output_text.delta":
                part = self._text(event)
                part.text += event.delta
            case "response.function_call_arguments.delta":
                item = self._output.item(event.output_index)
                if item.type == "function_call":
                    item.arguments += event.delta
            case "response.output_item.done":
                self._output.finish(event.output_index, event.item)

    def _text(self, event: Any) -> Any:
        """Return the text part of a message that ``event`` refers to.

        Raises:
            RuntimeError: there is no such part.
        """
        item = self._output.item(event.output_index)
        content = item.content if item.type == "message" else ()
        if event.content_index >= len(content) or content[event.content_index].type != "output_text":
            raise RuntimeError(
                f"Received `{event.type}` for content {event.content_index} of output {event.output_index}, "
                "where no text has begun"
            )
        return content[event.content_index]

    def _event_for_caller(self, event: Any) -> Any:
        match event.type:
            case "response.output_item.added" if getattr(event, "item", None) is None:
                return None
            case "response.output_text.delta":
                return _with(ResponseTextDeltaEvent, event, snapshot=self._text(event).text)
            case "response.output_text.done":
                self._text(event)
                phase = getattr(self._output.item(event.output_index), "phase", None)
                return _with(ResponseTextDoneEvent, event, parsed=parse_text(event.text, phase, self._decode))
            case "response.function_call_arguments.delta":
                item = self._output.item(event.output_index)
                snapshot = getattr(item, "arguments", None)
                return _with(ResponseFunctionCallArgumentsDeltaEvent, event, snapshot=snapshot)
            case "response.completed" if self.completed is not None:
                return _with(ResponseCompletedEvent, event, response=self.completed)
            case kind if kind in _LIFECYCLE and event.response.output is None:
                output = self._output.so_far() if kind in _BROKEN_OFF else []
                return recast(
                    event, type(event), response=recast(event.response, type(event.response), output=output)
                )
        return event


def _with(kind: type[M], event: Any, **more: Any) -> M:
    """Return a ``kind`` with its declared fields from ``event`` and ``more``, without the API's padding."""
    fields = {name: getattr(event, name, None) for name in kind.model_fields if name not in more}
    return made(kind, **fields, **more)
