"""Loopback servers as the routes of one client, tried in a given order, and the rows of its ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from loopback_server import Behaviour, OpenAIServer, Received, Wire, events, reply

from specclient import AsyncOpenAI, Policy, Settings
from specclient.ledger.row import LedgerRow
from specclient.types.request import Request
from specclient.types.route import Alternative, Candidate, Decision
from specclient.types.strategy import Strategy

ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
ANSWER = "The quick brown fox jumps over the lazy dog and then it sleeps."
PRICE = {"input": 1, "output": 4}
#: The capability of vLLM and others to continue an answer; tests give it to the second server of a kit.
CONTINUES = {"prefill": "continue_final_message"}


def status(number: int, /, *, message: str = "no", **more: Any) -> Behaviour:
    """Respond with an error status; ``more`` adds fields to the error object."""
    error = {"message": message, "type": None, "param": None, "code": None, **more}
    return reply(number, {"error": error})


def words(text: str) -> list[str]:
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]


def usage_of(text: str) -> dict[str, int]:
    count = len(text.split())
    return {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count}


def frames(payload: Any, text: str, name: str = "c1", finish: str = "stop") -> list[bytes]:
    """Return the events of a stream: role, one event per word, finish reason, and usage if requested."""
    chat = "messages" in payload
    kind = "chat.completion.chunk" if chat else "text_completion"
    base = {"id": name, "object": kind, "created": len(name), "model": payload["model"]}
    rows: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}] if chat else []
    rows += [{"delta": {"content": each}} if chat else {"text": each} for each in words(text)]
    rows.append({"delta": {}, "finish_reason": finish} if chat else {"text": "", "finish_reason": finish})
    sent = [{**base, "choices": [{"index": 0, "finish_reason": None, **row}]} for row in rows]
    if (payload.get("stream_options") or {}).get("include_usage"):
        sent.append({**base, "choices": [], "usage": usage_of(text)})
    return [b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in sent] + [b"data: [DONE]\n\n"]


def answering(text: str = ANSWER, *, name: str = "c1", after_s: float = 0.0) -> Behaviour:
    """Answer with a text after ``after_s`` seconds, whole or streamed word by word."""

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        await asyncio.sleep(after_s)
        if payload.get("stream"):
            return await events(*frames(payload, text, name))(received, wire)
        row: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if "messages" in payload:
            row["message"], kind = {"role": "assistant", "content": text}, "chat.completion"
        else:
            row["text"], kind = text, "text_completion"
        body = {"id": name, "object": kind, "created": 1, "model": payload["model"], "choices": [row]}
        return await reply(200, {**body, "usage": usage_of(text)})(received, wire)

    return run


def continuing(answer: str = ANSWER, *, name: str = "c2", echo: bool = False) -> Behaviour:
    """Answer with the rest of a text whose beginning is the assistant's turn, or the prompt after ``|``.

    With ``echo``, the whole text is sent.
    """

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        given = (
            payload["messages"][-1]["content"]
            if "messages" in payload
            else payload["prompt"].partition("|")[2]
        )
        assert answer.startswith(given), given
        rest = answer if echo else answer.removeprefix(given)
        await answering(rest, name=name)(received, wire)

    return run


def breaking(text: str, *, how: str = "reset", name: str = "c1") -> Behaviour:
    """Stream the beginning of an answer, then ``reset``, ``close``, ``hang``, or send an ``error`` event."""

    async def run(received: Received, wire: Wire) -> None:
        pieces = frames(received.json, text, name)
        pieces = pieces[: len(words(text)) + ("messages" in received.json)]
        await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for piece in pieces:
            await wire.chunk(piece)
        await asyncio.sleep(0.02)  # a reset may discard data that is still in the client's socket buffer
        if how == "error":
            await wire.chunk(b'data: {"error": {"message": "dead", "code": 500, "type": "server_error"}}\n\n')
            await wire.chunk(b"")
        elif how == "reset":
            wire.reset()
        elif how == "hang":
            await wire.client_left()
        wire.keep = False

    return run


class Kit:
    """Servers, routes to them, and a client that tries these in the given order.

    Attributes:
        client: the client; its router's ``decide`` is replaced by :meth:`decide`.
        servers: the loopback servers; the provider of the i-th is ``s<i>``.
        routes: the routes in the order of trial; ``s0/m``, ``s1/m``, … by default.
        policy: the policy of decisions for requests without one.
        patience_s: the patience and latency limit of each alternative, in seconds.
        strategies: strategies by route.
        original_decide: the router's original ``decide``, used for all models except ``auto``.
    """

    def __init__(self, client: AsyncOpenAI, servers: Sequence[OpenAIServer], routes: Sequence[str]) -> None:
        self.client = client
        self.servers = servers
        self.routes = list(routes)
        self.policy = Policy()
        self.patience_s: float | None = None
        self.strategies: dict[str, Strategy] = {}
        self.original_decide = client.router.decide
        client.router.decide = self.decide  # type: ignore[method-assign]

    def decide(self, request: Request) -> Decision:
        """Choose the first route, with the others as its alternatives, in order."""
        if request.model != "auto":
            return self.original_decide(request)
        policy = request.policy if isinstance(request.policy, Policy) else self.policy
        first, *others = [
            Alternative(
                route,
                *route.split("/", 1),
                strategy=self.strategies.get(route),
                patience_s=self.patience_s,
                latency_limit_s=self.patience_s,
            )
            for route in self.routes
        ]
        candidates = [
            Candidate(route, cost=Decimal(i), latency_s=float(i), verdict="left" if i else "chosen")
            for i, route in enumerate(self.routes)
        ]
        return Decision(
            chosen=first.route,
            provider=first.provider,
            model=first.model,
            candidates=candidates,
            reason="the first of all",
            policy=policy,
            taken=first,
            alternatives=tuple(others),
        )

    async def rows(self) -> list[LedgerRow]:
        """Flush the ledger and return its rows, oldest first."""
        await asyncio.to_thread(self.client.core.shared.ledger.flush, 10)
        return sorted(self.client.core.shared.ledger.rows(), key=lambda row: row.started_at)

    def request_counts(self) -> list[int]:
        """Return the number of requests that each server has received."""
        return [len(server.requests) for server in self.servers]


@asynccontextmanager
async def kit(
    folder: Path,
    count: int = 2,
    *,
    routes: Sequence[str] = (),
    capabilities: Callable[[int], dict[str, Any]] = lambda _: {},
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Kit]:
    """Start servers and a client for them.

    Args:
        folder: where the ledger is written.
        count: number of servers.
        routes: routes to try instead of ``s0/m``, ``s1/m``, ….
        capabilities: the capabilities of the i-th server's provider.
        settings: tables that extend or replace those of the configuration.
        options: further options of the client.
    """
    async with AsyncExitStack() as stack:
        servers = [stack.enter_context(OpenAIServer()) for _ in range(count)]
        tables = {
            "candidates": ["s0/m"],
            "providers": {
                f"s{i}": {"base_url": each.base_url, "capabilities": capabilities(i)}
                for i, each in enumerate(servers)
            },
            "prices": {f"s{i}/*": PRICE for i in range(count)},
        }
        config = Settings.model_validate({**tables, **(settings or {})})
        client = AsyncOpenAI(config=config, ledger=str(folder / "l.db"), **{"max_retries": 0, **options})
        await stack.enter_async_context(client)
        yield Kit(client, servers, routes or [f"s{i}/m" for i in range(count)])
