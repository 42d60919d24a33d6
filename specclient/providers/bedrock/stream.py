"""Decoder of ConverseStream's events into chat completion chunks.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from specclient.providers.bedrock.response import (
    extra_fields_of,
    finish_reason_of,
    routed_model,
    service_tier_of,
    usage_of,
)
from specclient.providers.errors import embedded_error_of, error_from, invalid_response_error
from specclient.types.chat import ChatCompletionChunk


class _StreamedBlock:
    """A content block received so far.

    Attributes:
        start: its fields in the event ``contentBlockStart``.
        texts: the parts of its text, its reasoning or its tool input, which is JSON text.
        kind: the field of the block, as ``text`` or ``toolUse``; None before it is known.
        call: its index among the tool calls; None if it is not a tool call.
        closed: whether the tool call is complete.
    """

    def __init__(self, start: Mapping[str, Any], call: int | None) -> None:
        self.start = start
        self.texts: list[str] = []
        self.kind: str | None = next(iter(start), None)
        self.call = call
        self.closed = False
        self.signature: str | None = None
        self.redacted: str | None = None
        self.citations: list[Any] = []
        self.others: list[Any] = []  # deltas of blocks without an OpenAI field

    def whole(self) -> dict[str, Any]:
        """Return the block as in an answer that is not streamed."""
        text = "".join(self.texts)
        if self.kind == "toolUse":
            return {"toolUse": {**self.start["toolUse"], "input": _decoded(text)}}
        if self.kind == "reasoningContent":
            if self.redacted is not None:
                return {"reasoningContent": {"redactedContent": self.redacted}}
            signature = {"signature": self.signature} if self.signature else {}
            return {"reasoningContent": {"reasoningText": {"text": text, **signature}}}
        if self.citations:
            return {"citationsContent": {"content": [{"text": text}], "citations": self.citations}}
        if self.kind == "text" or not self.kind:
            return {"text": text}
        return {self.kind: {**(self.start.get(self.kind) or {}), "deltas": self.others}}


class ConverseStreamReader:
    """Decoder of one stream; see :data:`specclient.providers.dialects.EventReader`.

    Args:
        created: Unix seconds; the events have no creation time.
        answer_id: an id; the events have none.
    """

    def __init__(self, created: int, answer_id: str) -> None:
        self._frame: dict[str, Any] = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": "",
        }
        self._blocks: dict[Any, _StreamedBlock] = {}
        self._calls = 0
        self._has_text = False

    def __call__(self, data: bytes, event: str | None) -> Any:
        if event is None:  # a JSON body in place of frames
            raise embedded_error_of(data) or invalid_response_error(
                data, None, "a whole response where a stream was requested"
            )
        body: Any = None
        try:
            body = json.loads(data)
            if event != "error" and not event.endswith("Exception"):
                read = _READERS.get(event)
                return None if read is None else read(self, body)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            reason = type(error).__name__
        else:
            raise error_from({"type": event, **body} if isinstance(body, dict) else {"type": event})
        # Raised outside the except block, so that its __context__ is not the error that holds the event.
        raise invalid_response_error(data, None, f"{reason}, where an event of ConverseStream belongs")

    def _start(self, body: dict[str, Any]) -> Any:
        return self._chunk({"role": body.get("role") or "assistant"})

    def _begin_block(self, body: dict[str, Any]) -> Any:
        start = dict(body["start"])
        use = start.get("toolUse")
        block = _StreamedBlock(start, None if use is None else self._calls)
        self._blocks[body["contentBlockIndex"]] = block
        if use is None:
            return None
        self._calls += 1
        call = {"id": use.get("toolUseId") or "", "type": "function"}
        return self._chunk(_call(block, call, name=use.get("name") or "", arguments=""))

    def _add(self, body: dict[str, Any]) -> Any:
        delta = body["delta"]
        kind = next(iter(delta), "")
        value = delta[kind]
        index = body["contentBlockIndex"]
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _StreamedBlock({}, None)
        block.kind = block.kind or ("text" if kind == "citation" else kind)
        if kind == "text":
            self._has_text = True
            return self._add_text(block, value, "content")
        if kind == "toolUse" and block.call is not None:
            piece = value["input"]
            if not piece:
                return None
            block.texts.append(piece + "")  # raises TypeError if it is not text
            return self._chunk(_call(block, {}, arguments=piece))
        if kind == "reasoningContent":
            block.signature = value.get("signature") or block.signature
            block.redacted = value.get("redactedContent") or block.redacted
            return self._add_text(block, value.get("text") or "", "reasoning_content")
        (block.citations if kind == "citation" else block.others).append(value)
        return None

    def _add_text(self, block: _StreamedBlock, text: str, field: str) -> Any:
        if not text:
            return None
        block.texts.append(text + "")  # raises TypeError if it is not text
        return self._chunk({field: text})

    def _end_block(self, body: dict[str, Any]) -> Any:
        block = self._blocks.get(body["contentBlockIndex"])
        return None if block is None else self._closed(block)

    def _closed(self, block: _StreamedBlock) -> Any:
        """Return the chunk with a tool call's arguments if no deltas were received; they may be empty."""
        if block.call is None or block.closed:
            return None
        block.closed = True
        return None if block.texts else self._chunk(_call(block, {}, arguments="{}"))

    def _stop(self, body: dict[str, Any]) -> list[Any]:
        late = [chunk for block in self._blocks.values() if (chunk := self._closed(block)) is not None]
        delta = extra_fields_of([block.whole() for block in self._blocks.values()])
        delta.pop("reasoning_content", None)  # sent in pieces before
        if not (self._has_text or self._calls):
            delta["content"] = ""  # as in an answer that is not streamed
        extra = {key: value for key, value in body.items() if key not in ("stopReason", "p")}
        return [*late, self._chunk(delta, finish_reason_of(body), extra)]

    def _metadata(self, body: dict[str, Any]) -> Any:
        """Return the last chunk: usage, metrics, service tier, and the trace of guardrails and routers."""
        extra = {key: body[key] for key in ("metrics", "trace", "performanceConfig") if body.get(key)}
        frame = {**self._frame, **extra, **service_tier_of(body), "usage": usage_of(body)}
        frame["model"] = routed_model(body) or frame["model"]
        return ChatCompletionChunk.with_defaults(**frame, choices=[])

    def _chunk(
        self,
        delta: dict[str, Any],
        choice: Mapping[str, Any] | None = None,
        top: Mapping[str, Any] | None = None,
    ) -> ChatCompletionChunk:
        choices = [{"index": 0, "delta": delta, "finish_reason": None, **(choice or {})}]
        return ChatCompletionChunk.with_defaults(**{**(top or {}), **self._frame}, choices=choices)


def _decoded(text: str) -> Any:
    """Return the input of a tool; an empty one where it was cut off, whose parts have been returned."""
    try:
        return json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}


def _call(block: _StreamedBlock, fields: Mapping[str, Any], **function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": block.call, **fields, "function": function}]}


_READERS: Mapping[str, Callable[[ConverseStreamReader, dict[str, Any]], Any]] = {
    "messageStart": ConverseStreamReader._start,
    "contentBlockStart": ConverseStreamReader._begin_block,
    "contentBlockDelta": ConverseStreamReader._add,
    "contentBlockStop": ConverseStreamReader._end_block,
    "messageStop": ConverseStreamReader._stop,
    "metadata": ConverseStreamReader._metadata,
}
