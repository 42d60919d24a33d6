"""Translation of a chat completion, complete or in chunks, to a response of the Responses API or its events.

Objects: https://platform.openai.com/docs/api-reference/responses/object; the events and their order:
https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.request import Request

__all__ = ["ResponseEventBuilder", "response_of"]

ResponseItem = dict[str, Any]
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "temperature",
    "text",
    "top_p",
    "truncation",
    "user",
)
_DEFAULTS: Mapping[str, Any] = {
    "metadata": {}, "parallel_tool_calls": True, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
    "tools": [], "truncation": "disabled",
}  # fmt: skip


class _ResponseBuilder:
    """A response under construction.

    Args:
        request: the Responses API request.
    """

    def __init__(self, request: Request) -> None:
        params = {name: value for name, value in request.params.items() if value is not None}
        names = (*_ECHOED, "parallel_tool_calls", "tool_choice", "tools")
        self.items: list[ResponseItem] = []
        self._head = {
            "id": _new("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": request.model,
            "previous_response_id": None,
            "store": False,
            **{name: params.get(name, _DEFAULTS.get(name)) for name in names},
        }

    def now(self, status: str, reason: str | None = None, usage: Any = None) -> dict[str, Any]:
        """Return the current response."""
        return {
            **self._head,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "output": [dict(item) for item in self.items],
            "usage": _usage(usage) if usage is not None else None,
        }

    def ended(self, finish: str | None, usage: Any) -> dict[str, Any]:
        """Return the final response; it is incomplete if the answer was cut off."""
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish or "")
        for item in self.items:
            item["status"] = "incomplete" if reason else "completed"
        return self.now("incomplete" if reason else "completed", reason, usage)


def response_of(request: Request, answer: ChatCompletion) -> dict[str, Any]:
    """Return a chat completion as a response.

    Args:
        request: the Responses API request.
        answer: the chat completion.
    """
    response, choice = _ResponseBuilder(request), answer.choices[0]
    message = choice.message
    if message.content or not message.tool_calls:
        scores = choice.logprobs.content if choice.logprobs is not None else None
        item = _message()
        item["content"] = [_text(message.content or "", [_score(score) for score in scores or []])]
        response.items.append(item)
    for call in message.tool_calls or []:
        if call.type == "function":
            response.items.append(_call(call.id, call.function.name, call.function.arguments))
    return response.ended(choice.finish_reason, answer.usage)


class ResponseEventBuilder:
    """Makes events from chunks.

    Args:
        request: the Responses API request.
    """

    def __init__(self, request: Request) -> None:
        self._response = _ResponseBuilder(request)
        self._number = 0
        self._open: int | None = None
        self._calls: dict[int, int] = {}
        self._finish: str | None = None
        self._usage: Any = None

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the events before the first chunk."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response.now("in_progress"))

    def of(self, chunk: ChatCompletionChunk) -> Iterator[dict[str, Any]]:
        """Yield the events of a chunk."""
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._finish = choice.finish_reason or self._finish
            if choice.delta.content:
                scores = choice.logprobs.content if choice.logprobs is not None else None
                yield from self._more_text(choice.delta.content, [_score(score) for score in scores or []])
            for call in choice.delta.tool_calls or []:
                yield from self._more_call(call)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the events after the last chunk."""
        if not self._response.items:
            yield from self._opened(_message())
        yield from self._closed()
        response = self._response.ended(self._finish, self._usage)
        yield self._event(f"response.{response['status']}", response=response)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def _place(self, index: int) -> dict[str, Any]:
        return {"item_id": self._response.items[index]["id"], "output_index": index}

    def _more_text(self, text: str, scores: list[ResponseItem]) -> Iterator[dict[str, Any]]:
        items = self._response.items
        if self._open is None or items[self._open]["type"] != "message":
            yield from self._opened(_message())
        assert self._open is not None
        part = items[self._open]["content"][0]
        part["text"] += text
        part["logprobs"] += scores
        fields = {**self._place(self._open), "content_index": 0, "delta": text, "logprobs": scores}
        yield self._event("response.output_text.delta", **fields)

    def _more_call(self, call: Any) -> Iterator[dict[str, Any]]:
        function = call.function
        if call.index not in self._calls:
            yield from self._opened(_call(call.id or _new("call"), (function and function.name) or "", ""))
            assert self._open is not None
            self._calls[call.index] = self._open
        index = self._calls[call.index]
        if function is not None and function.arguments:
            self._response.items[index]["arguments"] += function.arguments
            yield self._event(
                "response.function_call_arguments.delta", **self._place(index), delta=function.arguments
            )

    def _opened(self, item: ResponseItem) -> Iterator[dict[str, Any]]:
        """Yield the events that close the open item and open the next one."""
        yield from self._closed()
        self._open = index = len(self._response.items)
        self._response.items.append(item)
        shown = {**item, "content": []} if item["type"] == "message" else dict(item)
        yield self._event("response.output_item.added", output_index=index, item=shown)
        if item["type"] == "message":
            item["content"] = [_text("", [])]
            part = _text("", [])
            yield self._event("response.content_part.added", **self._place(index), content_index=0, part=part)

    def _closed(self) -> Iterator[dict[str, Any]]:
        if self._open is None:
            return
        index, item = self._open, self._response.items[self._open]
        self._open, here = None, self._place(index)
        if item["type"] == "message":
            part = item["content"][0]
            fields = {"text": part["text"], "logprobs": part["logprobs"]}
            yield self._event("response.output_text.done", **here, content_index=0, **fields)
            yield self._event("response.content_part.done", **here, content_index=0, part=part)
        else:
            fields = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **here, **fields)
        item["status"] = "incomplete" if self._finish == "length" else "completed"
        yield self._event("response.output_item.done", output_index=index, item=dict(item))


def _new(kind: str) -> str:
    return f"{kind}_{os.urandom(16).hex()}"


def _message() -> ResponseItem:
    return {"id": _new("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": []}


def _text(text: str, scores: list[ResponseItem]) -> ResponseItem:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": scores}


def _call(number: str, name: str, arguments: str) -> ResponseItem:
    head = {"id": _new("fc"), "type": "function_call", "status": "in_progress"}
    return {**head, "call_id": number, "name": name, "arguments": arguments}


def _score(score: Any) -> ResponseItem:
    found: ResponseItem = score.to_dict(mode="json", warnings=False)
    return {"bytes": [], "top_logprobs": [], **found}


def _usage(usage: Any) -> dict[str, Any]:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    details = {"reasoning_tokens": (completion and completion.reasoning_tokens) or 0}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": (prompt and prompt.cached_tokens) or 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": details,
        "total_tokens": usage.total_tokens,
    }
