"""State of the message of one choice of a streamed chat completion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specclient.structured.construction import build, construct, mark_set
from specclient.structured.deltas import PartialJSON, accumulate
from specclient.structured.schema import TextParser
from specclient.structured.tools import ChatTools
from specclient.types.chat import (
    ParsedChatCompletionMessage,
    ParsedFunction,
    ParsedFunctionToolCall,
)
from specclient.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall
from specclient.types.chat.chat_completion_message import plain_text


class ToolCallState:
    """State of one tool call.

    Attributes:
        position: its index in the message's ``tool_calls``.
        parser: the parser of its incomplete arguments.
        readable: the arguments so far, if they can be parsed as incomplete JSON.
        done: whether it is complete.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        self.parser = PartialJSON()
        self.readable: str | None = None
        self.done = False


class MessageState:
    """Accumulates the deltas of one message.

    Args:
        decode: decodes the complete text; None without parsing.
        tools: the request's tools.

    Attributes:
        message: the message so far. The same object is updated throughout.
        content_done: whether the text is complete and has been parsed.
    """

    def __init__(self, decode: TextParser | None, tools: ChatTools) -> None:
        self.message: ParsedChatCompletionMessage[Any] = build(ParsedChatCompletionMessage, {})
        self.content_done = False
        self._decode = decode
        self._tools = tools
        self._data: dict[str, Any] = {}
        self._parser = PartialJSON()
        self._readable: str | None = None
        self._calls: dict[int, ToolCallState] = {}
        self._fresh: list[Any] = []

    def add(self, delta: ChoiceDelta) -> None:
        """Merge ``delta`` into the message.

        Objects received in an earlier delta get all their fields marked as set, null values included. As in
        the OpenAI client, only objects of the newest delta have unset fields in a dump.
        """
        for model in self._fresh:
            mark_set(model, but="parsed")
        self._fresh = [] if self._data else [self.message]
        if not self.content_done or self.message.parsed is None:
            self.message.model_fields_set.discard("parsed")
        data = delta.to_dict()
        if isinstance(data.get("content"), list):  # Mistral's reasoning models send a list of parts
            data["content"] = plain_text(data["content"])
        for call, fields in zip(delta.tool_calls or (), data.get("tool_calls") or (), strict=True):
            fields.setdefault("index", call.index)
        accumulate(self._data, data)
        for name in data:
            self._show(name, delta)

    def read_on(self, delta: ChoiceDelta) -> None:
        """Record which of the texts so far can be parsed as incomplete JSON."""
        message = self.message
        text = message.content if self._decode is not None and not message.refusal else None
        self._readable = text if text and not text.isspace() else None
        for piece in delta.tool_calls or ():
            call = self.function_call(piece.index)
            if call is not None and self._tools.is_strict(call.function.name):
                self._calls[piece.index].readable = call.function.arguments or None

    def show_parsed(self) -> None:
        """Set the parsed values of the incomplete texts in the message.

        Raises:
            ValueError: a text is not the beginning of a JSON text.
        """
        if self._readable is not None and not self.content_done:
            self.message.parsed = self.parsed_so_far(self._readable)
        for index, call in self._calls.items():
            function_call = self.function_call(index)
            if function_call is not None and call.readable is not None and not call.done:
                function_call.function.parsed_arguments = call.parser.read(call.readable)

    @property
    def readable(self) -> str | None:
        """The text so far, if it can be parsed as incomplete JSON; otherwise None."""
        return self._readable

    def parsed_so_far(self, text: str | None) -> Any:
        """Return the value of ``text``, an earlier value of :attr:`readable`, as incomplete JSON."""
        return self._parser.read(text)

    def end_content(self) -> object:
        """Decode the complete text, store the value as the message's ``parsed``, and return it.

        The value is None without parsing, without a text, and for a refusal.

        Raises:
            pydantic.ValidationError: the text is not valid for the response format.
        """
        message = self.message
        self.content_done = True
        parsed = (
            self._decode(message.content)
            if self._decode and message.content and not message.refusal
            else None
        )
        message.parsed = parsed
        return parsed

    def call(self, index: int) -> ToolCallState:
        """Return the state of the tool call with the API's index ``index``."""
        return self._calls[index]

    def function_call(self, index: int) -> ParsedFunctionToolCall | None:
        """Return the tool call with the API's index ``index``; None if it does not call a function."""
        call = (self.message.tool_calls or [])[self._calls[index].position]
        return call if call.type == "function" and call.function is not None else None

    def end_call(self, index: int) -> ParsedFunctionToolCall | None:
        """Parse the arguments of a complete tool call, and return it; None if it does not call a function.

        Raises:
            pydantic.ValidationError: the arguments are not valid for the tool's model.
            json.JSONDecodeError: the arguments are not valid JSON.
        """
        self._calls[index].done = True
        call = self.function_call(index)
        if call is not None:
            function = call.function
            function.parsed_arguments = self._tools.parse(function.name, function.arguments)
        return call

    def _show(self, name: str, delta: ChoiceDelta) -> None:
        """Update the message's field ``name`` from the accumulated data."""
        message, value = self.message, self._data[name]
        fields = type(message).model_fields
        if name == "tool_calls" and value is not None:
            self._show_calls(delta.tool_calls or ())
        elif name not in fields:
            assert message.model_extra is not None  # wire models allow extra fields
            message.model_extra[name] = value
        elif value is None or isinstance(value, str):
            message.__dict__[name] = value
            message.model_fields_set.add(name)
        else:
            shown = construct(fields[name].annotation, value)
            setattr(message, name, shown)
            self._fresh.extend(shown if isinstance(shown, list) else [shown])

    def _show_calls(self, pieces: Iterable[ChoiceDeltaToolCall]) -> None:
        calls = self.message.tool_calls
        if calls is None:
            calls = self.message.tool_calls = []
        for piece in pieces:
            state = self._calls.get(piece.index)
            if state is None:
                state = self._calls[piece.index] = ToolCallState(len(calls))
                calls.append(_call_of(self._data["tool_calls"][state.position]))
                self._fresh.append(calls[-1])
            else:
                before = calls[state.position]
                now = calls[state.position] = _call_of(self._data["tool_calls"][state.position])
                if before.function is not None and now.function is not None:
                    now.function.parsed_arguments = before.function.parsed_arguments


def _call_of(data: dict[str, Any]) -> ParsedFunctionToolCall:
    function = data.get("function")
    if not isinstance(function, dict):
        return build(ParsedFunctionToolCall, data)
    return build(ParsedFunctionToolCall, {**data, "function": build(ParsedFunction, function)})
