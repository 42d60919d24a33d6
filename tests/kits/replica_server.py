"""A loopback server with a prefix cache, as replicas of vLLM have: it reports cached tokens and metrics."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from typing import Any

from loopback_server import OpenAIServer, Received, Wire, behave, reply

__all__ = ["ReplicaServer"]

_BLOCK = 64


class ReplicaServer(OpenAIServer):
    """A replica whose prefill takes time for each byte that is not in its cache.

    Args:
        blocks: the most blocks of 64 bytes in its cache.
        byte_s: seconds of prefill for each byte.
        reported: requests in progress that other programs have sent, as its page reports them.

    Attributes:
        cached: the cached tokens of each answer, in order.
    """

    def __init__(self, blocks: int = 4096, byte_s: float = 0.0, reported: int = 0) -> None:
        super().__init__(self._behave)
        self.cached: list[int] = []
        self.byte_s = byte_s
        self.reported = reported
        self._most = blocks
        self._cache: OrderedDict[bytes, None] = OrderedDict()

    @property
    def calls(self) -> list[Received]:
        """The requests of calls, those of the page left out."""
        return [request for request in self.requests if request.body]

    async def _behave(self, received: Received, wire: Wire) -> None:
        if received.path.endswith("/metrics"):
            page = (
                f'vllm:num_requests_running{{engine="0"}} {self.reported}\n'
                f'vllm:num_requests_waiting{{engine="0"}} 0\n'
                f'vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="{self._most}"}} 1.0\n'
            )
            await reply(200, page.encode())(received, wire)
            return
        text = "".join(message["content"] for message in received.json["messages"]).encode()
        held = self._read(text)
        await asyncio.sleep((len(text) - held) * self.byte_s)
        self.cached.append(held // 4)
        if received.json.get("stream"):
            await behave(received, wire)
            return
        await reply(200, self._answer(received.json, len(text) // 4, held // 4))(received, wire)

    def _read(self, text: bytes) -> int:
        """Return the bytes of a prompt that are cached, and cache all of it."""
        prefixes = [text[: at + _BLOCK] for at in range(0, len(text) - _BLOCK + 1, _BLOCK)]
        held = 0
        for prefix in prefixes:
            if prefix not in self._cache:
                break
            held += _BLOCK
        for prefix in reversed(prefixes):
            self._cache[prefix] = None
            self._cache.move_to_end(prefix)
        while len(self._cache) > self._most:
            self._cache.popitem(last=False)
        return held

    @staticmethod
    def _answer(payload: Any, prompt: int, cached: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": json.dumps([prompt, cached])}
        usage = {"prompt_tokens": prompt, "completion_tokens": 8, "total_tokens": prompt + 8}
        return {
            "id": "cmpl-1", "object": "chat.completion", "created": 1, "model": payload["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}},
        }  # fmt: skip
