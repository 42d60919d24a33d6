"""Decoder of Anthropic's streamed responses into chat completion chunks.

https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from specclient.providers.anthropic.response import (
    arguments_of,
    extra_fields_of,
    finish_reason_of,
    service_tier_of,
    usage_of,
)
from specclient.providers.errors import error_from, invalid_response_error
from specclient.types.chat import ChatCompletionChunk

#: For each type of delta: its text field, and the field of an OpenAI delta that it becomes.
_TEXTS = {"text_delta": ("text", "content"), "thinking_delta": ("thinking", "reasoning_content")}


class _ContentBlock:
    """A content block received so far.

    Attributes:
        start: its fields in the event ``content_block_start``.
        pieces: the parts of its text, its thinking, or its tool input as JSON text.
        call: its index among the tool calls; None if it is not a tool call.
        closed: whether the tool call is complete.
    """

    def __init__(self, block: dict[str, Any], call: int | None) -> None:
        self.start = block
        self.pieces: list[str] = []
        self.call = call
        self.closed = False

    def whole(self) -> dict[str, Any]:
        """Return the block as in a response that is not streamed."""
        added = "".join(self.pieces)
        kind = self.start.get("type")
        if kind in ("text", "thinking"):
            return {**self.start, kind: (self.start.get(kind) or "") + added}
        if not added:
            return self.start
        try:
            return {**self.start, "input": json.loads(added)}
        except ValueError:  # truncated by max_tokens; the parts have been returned already
            return self.start


class AnthropicStreamReader:
    """Decoder of one stream; see :data:`specclient.providers.dialects.EventReader`.

    Args:
        created: Unix seconds; the events have no creation time.
    """

    def __init__(self, created: int) -> None:
        self._frame: dict[str, Any] = {
            "id": "",
            "object": "chat.completion.chunk",
            "created": created,
            "model": "",
        }
        self._blocks: dict[Any, _ContentBlock] = {}
        self._usage: dict[str, Any] = {}
        self._calls = 0
        self._has_text = False
        self._ended = False

    def __call__(self, data: bytes, event: str | None) -> Any:
        if event == "ping" or data.strip() == b"[DONE]":  # [DONE] is sent by some gateways only
            return None
        body: Any = None
        try:
            body = json.loads(data)
            kind = body.get("type") or event
            if kind == "message":
                raise invalid_response_error(data, None, "a whole response where a stream was requested")
            if kind != "error" and not (kind is None and body.get("error")):
                read = _READERS.get(kind) if isinstance(kind, str) else None
                return None if read is None else read(self, body)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            reason = type(error).__name__
        else:
            raise error_from(body)
        # Raised outside the except block, so that its __context__ is not the error that holds the event.
        raise invalid_response_error(data, None, f"{reason}, where an event of a message belongs")

    def _start(self, body: dict[str, Any]) -> Any:
        message = body["message"]
        self._frame |= {"id": message.get("id") or "", "model": message.get("model") or ""}
        self._frame |= service_tier_of(message.get("usage"))
        self._note_usage(message.get("usage"))
        return self._chunk({"role": "assistant"})

    def _begin_block(self, body: dict[str, Any]) -> Any:
        content = dict(body["content_block"])
        called = content.get("type") == "tool_use"
        block = self._blocks[body["index"]] = _ContentBlock(content, self._calls if called else None)
        if called:
            self._calls += 1
            call = {"id": content.get("id") or "", "type": "function"}
            return self._chunk(_call(block, call, name=content.get("name") or "", arguments=""))
        for kept, field in _TEXTS.values():
            if content.get("type") == kept and content.get(kept):
                return self._text(field, content[kept])
        return None

    def _add(self, body: dict[str, Any]) -> Any:
        delta = body["delta"]
        kind = delta.get("type")
        if kind in _TEXTS:
            kept, field = _TEXTS[kind]
            return self._add_text(body["index"], kept, field, delta[kept])
        block = self._blocks.get(body["index"])
        if block is None:
            return None
        if kind == "input_json_delta":
            piece = delta["partial_json"]
            if not piece:
                return None
            block.pieces.append(piece + "")
            return None if block.call is None else self._chunk(_call(block, {}, arguments=piece))
        if kind == "signature_delta":
            block.start["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block.start["citations"] = [*(block.start.get("citations") or ()), delta["citation"]]
        return None

    def _add_text(self, index: Any, kept: str, field: str, text: str) -> Any:
        if not text:
            return None
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _ContentBlock({"type": kept}, None)
        block.pieces.append(text + "")  # raises TypeError if it is not text
        return self._text(field, text)

    def _text(self, field: str, text: str) -> Any:
        self._has_text = self._has_text or field == "content"
        return self._chunk({field: text})

    def _end_block(self, body: dict[str, Any]) -> Any:
        block = self._blocks.get(body.get("index"))
        return None if block is None else self._closed(block)

    def _closed(self, block: _ContentBlock) -> Any:
        """Return the chunk with a tool call's arguments if no deltas were received; they may be empty."""
        if block.call is None or block.closed:
            return None
        block.closed = True
        return None if block.pieces else self._chunk(_call(block, {}, arguments=arguments_of(block.start)))

    def _note(self, body: dict[str, Any]) -> Any:
        self._note_usage(body.get("usage"))
        delta = body.get("delta") or {}
        if self._ended:
            return self._totals()
        return self._end(delta) if delta.get("stop_reason") is not None else None

    def _stop(self, _: dict[str, Any]) -> Any:
        return None if self._ended else self._end({"stop_reason": "end_turn"})

    def _end(self, message_delta: Mapping[str, Any]) -> list[Any]:
        """Return the last chunks of a response: missing arguments, the finish reason, the usage."""
        self._ended = True
        late = [chunk for block in self._blocks.values() if (chunk := self._closed(block)) is not None]
        delta = extra_fields_of([block.whole() for block in self._blocks.values()])
        if not (self._has_text or self._calls):
            delta["content"] = ""  # as in a response that is not streamed
        container = {"container": message_delta["container"]} if message_delta.get("container") else {}
        return [*late, self._chunk(delta, finish_reason_of(message_delta), container), *self._totals()]

    def _totals(self) -> list[ChatCompletionChunk]:
        usage = usage_of(self._usage)
        if usage is None:
            return []
        return [ChatCompletionChunk.with_defaults(**self._frame, choices=[], usage=usage)]

    def _note_usage(self, usage: Any) -> None:
        """Record counts. They are totals, so later counts replace earlier ones."""
        if isinstance(usage, Mapping):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _chunk(
        self,
        delta: dict[str, Any],
        choice: Mapping[str, Any] | None = None,
        top: Mapping[str, Any] | None = None,
    ) -> ChatCompletionChunk:
        choices = [{"index": 0, "delta": delta, "finish_reason": None, **(choice or {})}]
        return ChatCompletionChunk.with_defaults(**self._frame, choices=choices, **(top or {}))


def _call(block: _ContentBlock, fields: Mapping[str, Any], **function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": block.call, **fields, "function": function}]}


_READERS: Mapping[str, Callable[[AnthropicStreamReader, dict[str, Any]], Any]] = {
    "message_start": AnthropicStreamReader._start,
    "content_block_start": AnthropicStreamReader._begin_block,
    "content_block_delta": AnthropicStreamReader._add,
    "content_block_stop": AnthropicStreamReader._end_block,
    "message_delta": AnthropicStreamReader._note,
    "message_stop": AnthropicStreamReader._stop,
}
