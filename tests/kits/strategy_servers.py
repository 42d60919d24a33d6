"""Loopback server behaviours for strategies: verify, refuse or ignore predictions, and continue answers."""

from __future__ import annotations

import difflib
import json
from typing import Any

from loopback_server import Behaviour, Received, Wire, events, reply

ANSWER = "The quick brown fox jumps over the lazy dog and then it sleeps."


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = value["content"]
    return value if isinstance(value, str) else "".join(part["text"] for part in value)


def aligned(prediction: str, answer: str) -> tuple[int, int]:
    """Return the numbers of words of a prediction that match the answer, at any position, and that do not."""
    mine, theirs = prediction.split(), answer.split()
    same = sum(b.size for b in difflib.SequenceMatcher(None, mine, theirs).get_matching_blocks())
    return same, len(mine) - same


def chat_body(payload: Any, text: str, usage: dict[str, Any], **choice: Any) -> dict[str, Any]:
    if "messages" in payload:
        content = {"message": {"role": "assistant", "content": text}}
        kind = "chat.completion"
    else:
        content, kind = {"text": text}, "text_completion"
    row = {"index": 0, "finish_reason": "stop", **content, **choice}
    return {
        "id": "c1",
        "object": kind,
        "created": 1,
        "model": payload["model"],
        "choices": [row],
        "usage": usage,
    }


def frames(payload: Any, pieces: list[str], usage: dict[str, Any]) -> list[bytes]:
    chat = "messages" in payload
    kind = "chat.completion.chunk" if chat else "text_completion"
    base = {"id": "c1", "object": kind, "created": 1, "model": payload["model"]}
    rows: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}] if chat else []
    rows += [{"delta": {"content": piece}} if chat else {"text": piece} for piece in pieces]
    rows.append({"delta": {}, "finish_reason": "stop"} if chat else {"text": "", "finish_reason": "stop"})
    sent = [{**base, "choices": [{"index": 0, "finish_reason": None, **row}]} for row in rows]
    if (payload.get("stream_options") or {}).get("include_usage"):
        sent.append({**base, "choices": [], "usage": usage})
    return [b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in sent] + [b"data: [DONE]\n\n"]


def _words(text: str) -> list[str]:
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]


def verifying(answer: str = ANSWER) -> Behaviour:
    """Answer with a text, and verify the request's prediction word by word, counted as by OpenAI."""

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        words = len(answer.split())
        given = payload.get("prediction") or payload.get("speculation")
        accepted, rejected = aligned(_text(given), answer) if given else (0, 0)
        usage = {
            "prompt_tokens": 10,
            "completion_tokens": words + rejected,
            "total_tokens": 10 + words + rejected,
            "completion_tokens_details": {
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": rejected,
            },
        }
        await answering(answer, usage)(received, wire)

    return run


def answering(text: str, usage: dict[str, Any] | None = None, **choice: Any) -> Behaviour:
    """Answer with a text, whole or streamed word by word."""

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        words = len(text.split())
        usage_counts = usage or {"prompt_tokens": 10, "completion_tokens": words, "total_tokens": 10 + words}
        if payload.get("stream"):
            await events(*frames(payload, _words(text), usage_counts))(received, wire)
        else:
            await reply(200, chat_body(payload, text, usage_counts, **choice), {"x-request-id": "req-1"})(
                received, wire
            )

    return run


def refusing(message: str = "Unrecognized request argument supplied: prediction") -> Behaviour:
    """Refuse with status 400, as a server that does not support ``prediction``."""
    error = {"message": message, "type": "invalid_request_error", "param": "prediction", "code": None}
    return reply(400, {"error": error})


def continuing(whole: str = ANSWER, *, echo: bool = False) -> Behaviour:
    """Continue the assistant's last turn, or the prompt after ``|``; with ``echo``, send it again, too."""

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        begun = (
            payload["messages"][-1]["content"]
            if "messages" in payload
            else payload["prompt"].partition("|")[2]
        )
        rest = whole.removeprefix(begun) if whole.startswith(begun) else f"<lost:{begun}>"
        await answering(begun + rest if echo else rest)(received, wire)

    return run
