"""An OpenAI-compatible upstream that counts what it bills, to compare with a ledger.

Each prompt begins with the identifier of its call. The usage of an answer is the number of words of its
prompt, and a length that follows from the identifier. Some requests fail once, with 500, 429 or a reset, so
that callers retry.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter, defaultdict
from random import Random
from typing import Any, NamedTuple

from loopback_server import Forgetful, OpenAIServer, Received, Wire, events, reply

_CALL = re.compile(r"call-(\d+) ")
#: Shares of the requests that fail in each way.
_FAILING = {"status 500": 0.004, "status 429": 0.004, "reset": 0.002}


class Billed(NamedTuple):
    """The usage of one answer that was sent."""

    prompt: int
    completion: int


class CountingUpstream(OpenAIServer):
    """The server as a context manager.

    Args:
        failing: whether some requests fail.

    Attributes:
        billed: the usage of each completely sent answer, by the call's identifier.
        begun: the number of requests that reached the upstream, by the call's identifier.
        failed: the number of refused and reset requests, by the way.
    """

    def __init__(self, *, failing: bool = True) -> None:
        super().__init__(self._respond)
        self.requests = Forgetful()
        self.billed: dict[int, list[Billed]] = defaultdict(list)
        self.begun: Counter[int] = Counter()
        self.failed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._random = Random(11)
        self._ways = _FAILING if failing else {}

    async def _respond(self, received: Received, wire: Wire) -> None:
        found = _CALL.search(received.body.decode(errors="replace"))
        call = int(found[1]) if found else -1
        with self._lock:
            self.begun[call] += 1
            failing = self._failing() if call >= 0 and self.begun[call] == 1 else ""
            if failing:
                self.failed[failing] += 1
        if failing == "reset":
            wire.reset()
        elif failing:
            error = {"message": failing, "type": "server_error", "param": None, "code": None}
            status = int(failing.split()[1])
            await reply(status, {"error": error}, {"retry-after-ms": "20"})(received, wire)
        else:
            await self._answer(received, wire, call)

    def _failing(self) -> str:
        drawn = self._random.random()
        for way, share in self._ways.items():
            if drawn < share:
                return way
            drawn -= share
        return ""

    async def _answer(self, received: Received, wire: Wire, call: int) -> None:
        payload = received.json
        n = payload.get("n") or 1
        words = len(payload["messages"][0]["content"].split())
        usage = Billed(prompt=words, completion=n * (1 + call % 12))
        body = {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
        }
        frame = {"id": f"up-{call}", "created": 1, "model": payload["model"]}
        parts = [f"w{call}-{place} " for place in range(1 + call % 12)]
        if payload.get("stream"):
            frame["object"] = "chat.completion.chunk"
            pieces = [_event({**frame, "choices": [_choice({"content": word})]}) for word in parts]
            pieces.append(_event({**frame, "choices": [_choice({}, "stop")]}))
            pieces.append(_event({**frame, "choices": [], "usage": body}) + b"data: [DONE]\n\n")
            await events(*pieces, gap=0.02)(received, wire)
        else:
            await asyncio.sleep(0.05)
            message = {"role": "assistant", "content": "".join(parts)}
            choices = [{"index": i, "finish_reason": "stop", "message": message} for i in range(n)]
            whole = {**frame, "object": "chat.completion", "choices": choices, "usage": body}
            await reply(200, whole)(received, wire)
        with self._lock:
            self.billed[call].append(usage)


def _choice(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"
