"""Builds chat completions from verified text, complete or in chunks, with the tool calls that it contains."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from specclient.call.request_params import request_param
from specclient.call.strategies.context import StrategyContext
from specclient.call.strategies.remote.rendered_chat import RenderedChat
from specclient.chat_format.tool_calls import ToolCallDelta, ToolCallParser, collect_deltas
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.usage import CompletionUsage


class ChatBuilder:
    """Builds one answer to a chat; the counterpart of :class:`.completion_builder.CompletionBuilder`."""

    def __init__(self, context: StrategyContext, chat: RenderedChat) -> None:
        self._context = context
        self._includes_ids = bool(request_param(chat.request, "return_token_ids"))
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._model: str | None = None
        self._parser: ToolCallParser | None = None
        if chat.call_format is not None:
            self._parser = ToolCallParser(chat.call_format, chat.tool_names)
        self._begun = False

    def note_target(self, answer: Any) -> None:
        """Note an answer of the target, or a chunk of one."""
        self._model = self._model or getattr(answer, "model", None)

    def completion(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, prompt_ids: Sequence[int]
    ) -> ChatCompletion:
        """Return the complete answer."""
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self._parser is not None:
            content, calls = collect_deltas([*self._parser.push(text), *self._parser.flush()])
            message["content"] = content if content or not calls else None
            if calls:
                message["tool_calls"] = [
                    {
                        "id": _call_id(),
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments},
                    }
                    for call in calls
                ]
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "finish_reason": self._reason(finish_reason),
            "logprobs": None,
        }
        if self._includes_ids:
            choice["token_ids"] = list(token_ids)
        answer = ChatCompletion.with_defaults(object="chat.completion", choices=[choice], **self._head())
        if self._includes_ids:
            answer.prompt_token_ids = list(prompt_ids)  # type: ignore[attr-defined]  # vLLM's field
        return answer

    def chunks(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None = None
    ) -> list[ChatCompletionChunk]:
        """Return the chunk of a text, and at the end that of the finish reason; none for nothing."""
        ended = finish_reason is not None
        delta = self._delta(text, ended=ended)
        ids = {"token_ids": list(token_ids)} if self._includes_ids else {}
        if not self._begun:
            delta = {"role": "assistant", "content": "", **delta}
        found: list[ChatCompletionChunk] = []
        if delta or (ids and token_ids):
            self._begun = True
            found.append(self._chunk({"index": 0, "delta": delta, "finish_reason": None, **ids}))
        if ended:
            choice = {"index": 0, "delta": {}, "finish_reason": self._reason(finish_reason)}
            found.append(self._chunk(choice))
        return found

    def usage_chunk(self, usage: CompletionUsage) -> ChatCompletionChunk:
        """Return the chunk that holds the usage."""
        chunk = self._chunk(None)
        chunk.usage = usage
        return chunk

    def _delta(self, text: str, *, ended: bool) -> dict[str, Any]:
        if self._parser is None:
            return {"content": text} if text else {}
        parsed = [*self._parser.push(text), *(self._parser.flush() if ended else ())]
        content = "".join(each.content for each in parsed)
        calls = [_call_delta(each) for each in parsed if each.call is not None]
        return {**({"content": content} if content else {}), **({"tool_calls": calls} if calls else {})}

    def _reason(self, finish_reason: str | None) -> str | None:
        called = self._parser is not None and self._parser.calls > 0
        return "tool_calls" if called and finish_reason == "stop" else finish_reason

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "created": int(self._context.created_at.timestamp()),
            "model": self._model or self._context.model,
        }

    def _chunk(self, choice: dict[str, Any] | None) -> ChatCompletionChunk:
        choices = [] if choice is None else [choice]
        return ChatCompletionChunk.with_defaults(
            object="chat.completion.chunk", choices=choices, **self._head()
        )


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _call_delta(delta: ToolCallDelta) -> dict[str, Any]:
    """Return a tool call's part of a chunk: its beginning, or more of its arguments."""
    if delta.name is None:
        return {"index": delta.call, "function": {"arguments": delta.arguments}}
    function = {"name": delta.name, "arguments": delta.arguments}
    return {"index": delta.call, "id": _call_id(), "type": "function", "function": function}
