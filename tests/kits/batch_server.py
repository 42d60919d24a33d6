"""A loopback server for batches: it echoes prompts, and fails or waits if a prompt requests it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from pathlib import Path
from typing import Any

from loopback_server import Behaviour, OpenAIServer, Received, Wire, reply


class _Always(deque[Behaviour]):
    """A script that never ends."""

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__([behaviour])

    def popleft(self) -> Behaviour:
        return self[0]


class BatchServer(OpenAIServer):
    """Answers every prompt with the same text in capitals.

    A prompt ``fail N`` is refused with status N until ``recovered`` is true. One with ``slow`` takes 0.2 s.
    Usage is one token per word.

    Args:
        gap: the time per answer in seconds.

    Attributes:
        request_counts: number of requests by prompt.
        max_running: the largest number of concurrent calls.
    """

    def __init__(self, gap: float = 0.0) -> None:
        super().__init__()
        self.request_counts: Counter[str] = Counter()
        self.running = self.max_running = 0
        self.gap = gap
        self.recovered = False
        self._script = _Always(self._behave)

    async def _behave(self, received: Received, wire: Wire) -> None:
        request = received.json
        prompt = (
            request["messages"][-1]["content"]
            if "messages" in request
            else request.get("prompt", request.get("input"))
        )
        self.request_counts[prompt] += 1
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            await asyncio.sleep(0.2 if "slow" in prompt else self.gap)
        finally:
            self.running -= 1
        if prompt.startswith("fail") and not self.recovered:
            error = {"message": f"no {prompt}", "type": "invalid_request_error", "param": None, "code": "bad"}
            return await reply(int(prompt.split()[1]), {"error": error}, {"x-request-id": "req-f"})(
                received, wire
            )
        return await reply(200, body(request, received.path, prompt), {"x-request-id": "req-1"})(
            received, wire
        )

    def configuration(self, folder: Path) -> Path:
        """Write a configuration in which this server is ``mine/m``, at a dollar per thousand tokens."""
        file = folder / "specclient.toml"
        file.write_text(
            f'default_model = "mine/m"\n[providers.mine]\nbase_url = "{self.base_url}"\n'
            '[prices."mine/m"]\ninput = 1000\noutput = 1000\n[policies.cheap]\n'
        )
        return file


def body(request: Any, path: str, prompt: str) -> dict[str, Any]:
    words = len(prompt.split())
    usage = {"prompt_tokens": words, "completion_tokens": words, "total_tokens": 2 * words}
    base = {"id": "x", "created": 1, "model": request["model"], "usage": usage}
    text = prompt.upper()
    if path.endswith("/embeddings"):
        row = {"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}
        return {
            **base,
            "object": "list",
            "data": [row],
            "usage": {"prompt_tokens": words, "total_tokens": words},
        }
    if path.endswith("/responses"):
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        counts = {"input_tokens": words, "output_tokens": words, "total_tokens": 2 * words}
        return {**base, "object": "response", "created_at": 1, "output": [message], "status": "completed",
                "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": counts}  # fmt: skip
    if path.endswith("/chat/completions"):
        message = {"role": "assistant", "content": text}
        if request.get("tools"):
            call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return {**base, "object": "chat.completion", "choices": [choice]}
    choice = {"index": 0, "finish_reason": "stop", "text": text}
    return {**base, "object": "text_completion", "choices": [choice]}


def write_lines(file: Path, lines: list[Any]) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
