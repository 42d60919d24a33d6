"""A response of the Responses API made from a chat completion, complete or during its stream.

Objects: https://platform.openai.com/docs/api-reference/responses/object.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from specclient.call.responses.ids import new_id
from specclient.types.chat import ChatCompletion
from specclient.types.request import Request

__all__ = [
    "GrowingResponse",
    "ResponseItem",
    "call_item",
    "message_item",
    "response_of",
    "scores_of",
    "text_part",
]

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
#: Why an answer is incomplete, by its finish reason.
_CUT_OFF = {"length": "max_output_tokens", "content_filter": "content_filter"}


class GrowingResponse:
    """A response under construction.

    Args:
        request: the Responses API request.

    Attributes:
        items: the output items so far.
    """

    def __init__(self, request: Request) -> None:
        params = {name: value for name, value in request.params.items() if value is not None}
        names = (*_ECHOED, "parallel_tool_calls", "tool_choice", "tools")
        self.items: list[ResponseItem] = []
        self._head = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": request.model,
            "background": False,
            "conversation": None,
            "previous_response_id": None,
            "store": False,
            **{name: params.get(name, _DEFAULTS.get(name)) for name in names},
        }

    def now(self, status: str, reason: str | None = None, usage: Any = None) -> dict[str, Any]:
        """Return the current response.

        Args:
            status: ``in_progress``, ``completed`` or ``incomplete``.
            reason: why it is incomplete.
            usage: of the chat completion; None if unknown.
        """
        return {
            **self._head,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "output": [dict(item) for item in self.items],
            "usage": _usage(usage) if usage is not None else None,
        }

    def close_item(self, index: int, finish: str | None) -> None:
        """Set the final status of an item; ``finish`` is the answer's finish reason."""
        self.items[index]["status"] = "incomplete" if finish in _CUT_OFF else "completed"

    def ended(self, finish: str | None, usage: Any) -> dict[str, Any]:
        """Return the final response; it is incomplete if the answer was cut off."""
        reason = _CUT_OFF.get(finish or "")
        return self.now("incomplete" if reason else "completed", reason, usage)


def response_of(request: Request, answer: ChatCompletion) -> dict[str, Any]:
    """Return a chat completion as a response.

    Args:
        request: the Responses API request.
        answer: the chat completion.
    """
    response, choice = GrowingResponse(request), answer.choices[0]
    message, finish = choice.message, choice.finish_reason
    if message.content or not message.tool_calls:
        item = message_item()
        item["content"] = [text_part(message.content or "", scores_of(choice.logprobs))]
        response.items.append(item)
    for call in message.tool_calls or []:
        if call.type == "function":
            response.items.append(call_item(call.id, call.function.name, call.function.arguments))
    for index in range(len(response.items)):
        response.close_item(index, finish if index == len(response.items) - 1 else None)
    return response.ended(finish, answer.usage)


def message_item() -> ResponseItem:
    """Return a new message of the assistant without parts."""
    return {
        "id": new_id("msg"),
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }


def text_part(text: str, scores: list[ResponseItem]) -> ResponseItem:
    """Return the text part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": scores}


def call_item(call_id: str, name: str, arguments: str) -> ResponseItem:
    """Return a function call."""
    head = {"id": new_id("fc"), "type": "function_call", "status": "in_progress"}
    return {**head, "call_id": call_id, "name": name, "arguments": arguments}


def scores_of(logprobs: Any) -> list[ResponseItem]:
    """Return the log-probabilities of a choice; empty where there are none."""
    scores = logprobs.content if logprobs is not None else None
    found: list[ResponseItem] = [score.to_dict(mode="json", warnings=False) for score in scores or []]
    return [{"bytes": [], "top_logprobs": [], **score} for score in found]


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
