"""An OpenAI-compatible upstream for tests of the response cache: answers have the number of their request."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from loopback_server import OpenAIServer, Received, Wire, events, reply
from openai_calls import RESPONSE, VECTOR

#: A call that may be kept, and its prompt.
MESSAGES = [{"role": "user", "content": "hi"}]
ASK: dict[str, Any] = {"model": "mine/m-large", "messages": MESSAGES, "temperature": 0, "cache": True}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


class NumberedUpstream(OpenAIServer):
    """The server as a context manager, of chat completions, completions, responses and embeddings.

    Args:
        delay_s: seconds before an answer begins.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(self._answer)
        self._numbers = count(1)
        self._delay_s = delay_s

    async def _answer(self, received: Received, wire: Wire) -> None:
        number, payload = next(self._numbers), received.json
        await asyncio.sleep(self._delay_s)
        kind = received.path.rpartition("/v1")[2]
        make = {
            "/chat/completions": _chat,
            "/completions": _completion,
            "/embeddings": _embedding,
            "/responses": _response,
        }[kind]
        whole, chunks = make(number, payload["model"], payload)
        if payload.get("stream"):
            await events(*chunks, headers={"x-request-id": f"req-{number}"})(received, wire)
        else:
            headers = {"x-request-id": f"req-{number}", "x-ratelimit-remaining-requests": "7"}
            await reply(200, whole, headers)(received, wire)


def _event(body: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(body)}\n\n".encode()


def _chat(number: int, model: str, payload: Any) -> tuple[Any, list[bytes]]:
    frame = {"id": f"chat-{number}", "created": 1, "model": model}
    choices = [
        {
            "index": index,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": f"answer {number}", "x_vendor": [1, None]},
        }
        for index in range(payload.get("n") or 1)
    ]
    whole = {**frame, "object": "chat.completion", "choices": choices, "usage": USAGE}
    return whole, _chunks({**frame, "object": "chat.completion.chunk"}, number, payload, chat=True)


def _completion(number: int, model: str, payload: Any) -> tuple[Any, list[bytes]]:
    frame = {"id": f"cmpl-{number}", "created": 1, "model": model, "object": "text_completion"}
    choice = {"index": 0, "finish_reason": "length", "logprobs": None, "text": f"answer {number}"}
    return {**frame, "choices": [choice], "usage": USAGE}, _chunks(frame, number, payload, chat=False)


def _chunks(frame: Any, number: int, payload: Any, *, chat: bool) -> list[bytes]:
    pieces = [*"answer ", str(number)]
    made = [{"delta": {"content": piece}} if chat else {"text": piece} for piece in pieces]
    choices = [{"index": 0, "finish_reason": None, **each} for each in made]
    choices.append({"index": 0, "finish_reason": "stop", **({"delta": {}} if chat else {"text": ""})})
    found = [_event({**frame, "choices": [choice]}) for choice in choices]
    if (payload.get("stream_options") or {}).get("include_usage"):
        found.append(_event({**frame, "choices": [], "usage": USAGE}))
    return [*found, b"data: [DONE]\n\n"]


def _embedding(number: int, model: str, _: Any) -> tuple[Any, list[bytes]]:
    data = [{"object": "embedding", "index": 0, "embedding": VECTOR}]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return {"object": "list", "model": model, "data": data, "usage": usage, "x_number": number}, []


def _response(number: int, model: str, _: Any) -> tuple[Any, list[bytes]]:
    whole = {**RESPONSE, "id": f"resp_{number}", "model": model}
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    item = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    listed: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        *(
            {"type": "response.output_text.delta", "delta": each, "logprobs": [], **item}
            for each in ("hel", "lo")
        ),
        {"type": "response.completed", "response": whole},
    ]
    return whole, [
        _event({**event, "sequence_number": place}, event["type"]) for place, event in enumerate(listed)
    ]


def entries(cache: dict[str, Any]) -> int:
    """Return the number of answers in the file of a ``[cache]`` table."""
    if not Path(cache["store"]).exists():
        return 0
    with closing(sqlite3.connect(cache["store"])) as connection:
        return connection.execute("SELECT COUNT(*) FROM cached_answers").fetchone()[0]
