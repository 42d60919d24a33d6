"""Reading of prompt files: text, a chat as JSON, or a batch as JSONL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, RESPONSE
from specclient.types.request import Request

#: API methods by the end of a batch line's URL.
_URLS: Mapping[str, ApiMethod] = {
    "/chat/completions": CHAT,
    "/completions": COMPLETION,
    "/responses": RESPONSE,
    "/embeddings": EMBEDDING,
}
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One request of a file.

    Attributes:
        request: the request without its model.
        model: the model in the request; None if it has none.
        most: maximum tokens of an answer; None if it sets no maximum.
        answers: number of answers (``n``).
    """

    request: Request
    model: str | None = None
    most: int | None = None
    answers: int = 1


def read_prompt_file(text: str) -> list[PromptRequest]:
    """Return the requests in a text.

    A JSON list of messages, or a JSON object with ``messages``, ``prompt`` or ``input``, is one request. So
    is each such line of JSONL, also as the ``body`` of a batch line. Any other text is one prompt.

    Raises:
        click.UsageError: a line of JSONL is not a request; the message names the line.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return [_prompt(text)]
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _lines(text)
    if (
        isinstance(document, list)
        and document
        and all(isinstance(each, dict) and "role" in each for each in document)
    ):
        return [PromptRequest(Request(CHAT, params={"messages": document}))]
    found = _request(document)
    if found is None and isinstance(document, list):
        listed = [_request(each) for each in document]
        if document and None not in listed:
            return [each for each in listed if each is not None]
    return [_prompt(text)] if found is None else [found]


def _lines(text: str) -> list[PromptRequest]:
    """Read JSONL. If the first line is not a JSON object, the text is one prompt."""
    found: list[PromptRequest] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        request = _request(row)
        if request is None and not found and not isinstance(row, dict):
            return [_prompt(text)]
        if request is None:
            raise click.UsageError(
                f"line {number} is not a request: it must be a JSON object with messages, prompt or input, "
                "or have such an object as its body."
            )
        found.append(request)
    return found


def _prompt(text: str) -> PromptRequest:
    return PromptRequest(Request(CHAT, params={"messages": [{"role": "user", "content": text}]}))


def _request(row: Any) -> PromptRequest | None:
    if not isinstance(row, dict):
        return None
    body = row.get("body", row)
    if not isinstance(body, dict):
        return None
    method = _method(row.get("url"), body)
    if method is None:
        return None
    model, answers = body.get("model"), body.get("n")
    limits = (body.get(name) for name in _LIMITS)
    return PromptRequest(
        Request(method, params={key: value for key, value in body.items() if key != "model"}),
        model if isinstance(model, str) and model else None,
        next((most for most in limits if _is_count(most)), None),
        answers if _is_count(answers) and answers else 1,
    )


def _method(url: Any, body: Mapping[str, Any]) -> ApiMethod | None:
    if isinstance(url, str):
        ends = (end for end in _URLS if url.rstrip("/").endswith(end))
        known = max(ends, key=len, default=None)
        return None if known is None else _URLS[known]
    if "messages" in body:
        return CHAT
    if "prompt" in body:
        return COMPLETION
    return RESPONSE if "input" in body else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
