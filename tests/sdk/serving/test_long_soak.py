"""An hour of mixed requests: memory is flat, the ledger has every call, and no budget is passed.

The server runs in two worker processes. Clients with keys request whole and streamed answers of an upstream
and of the engine, 1 % of them disconnect in the middle, and 1 % send a hostile request. ``make soak`` runs an
hour of it (``SOAK_SECONDS``) and prints the counts.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from counting_upstream import CountingUpstream
from hostile_requests import HostileRequest, hostile_requests
from hypothesis import HealthCheck, Phase, given, settings
from watched_server import WatchedServer

from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.soak,
    pytest.mark.timeout(10_000),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc"),
]

CLIENTS = 24
#: Shares of the requests; the rest asks the upstream for a whole answer.
SHARES = {"hostile": 0.01, "vanishing": 0.01, "engine": 0.06, "streamed": 0.4}
#: Dollars that each key may spend; None for a key without a budget.
BUDGETS = {"free": None, "cent": "0.01", "dollar": "1"}
#: Dollars for each prompt and completion token of the upstream; the configuration has them for a million.
PRICES = Decimal("0.000002"), Decimal("0.000008")
GROWTH_MB = 64
PATIENCE_S = 1.0


@dataclass
class Sent:
    """The calls that were sent, by their identifiers.

    Attributes:
        key: the name of the key of each call.
        complete: calls to the upstream whose whole answer arrived.
        counts: the number of requests, by their kind and status.
    """

    key: dict[int, str] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)


class Clients:
    """Concurrent clients of the server, each of which sends one request after the other."""

    def __init__(self, server: WatchedServer, keys: dict[str, str], hostile: list[HostileRequest]) -> None:
        self._server, self._keys, self._hostile = server, keys, hostile
        self._url = f"http://127.0.0.1:{server.port}/v1"
        self._identifiers = count()
        self.sent = Sent()

    async def run(self, seconds: float) -> None:
        """Send requests for so many seconds, from the first answer of the engine on."""
        async with httpx.AsyncClient(base_url=self._url, timeout=60, trust_env=False) as client:
            await asyncio.gather(*(self._ask_engine(client) for _ in range(4)))
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._client(Random(number), end) for number in range(CLIENTS)))

    async def _client(self, random: Random, end: float) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=60, trust_env=False) as client:
            while time.monotonic() < end:
                drawn, kind = random.random(), "whole"
                for each, share in SHARES.items():
                    if drawn < share:
                        kind = each
                        break
                    drawn -= share
                if kind == "hostile":
                    await self._send_hostile(random.choice(self._hostile))
                elif kind == "engine":
                    await self._ask_engine(client)
                else:
                    await self._ask(client, random, kind)

    async def _send_hostile(self, request: HostileRequest) -> None:
        line, _, rest = request.content.partition(b"\r\n")
        key = f"authorization: Bearer {self._keys['free']}\r\n".encode()
        content = b"%b\r\n%b%b" % (line, key, rest)
        seconds = 0 if request.leaves else PATIENCE_S
        status, body = await asyncio.to_thread(self._server.send, content, seconds=seconds, then=request.then)
        assert status != 500, (request.shown, body[:500])
        self.sent.counts[f"hostile {status}"] += 1

    async def _ask_engine(self, client: httpx.AsyncClient) -> None:
        body = {"model": "local/demo", "prompt": "def f(x):", "temperature": 0, "max_tokens": 16}
        answer = await client.post("/completions", json=body, headers=self._headers("free"))
        assert answer.status_code == 200, answer.text
        self.sent.counts["engine 200"] += 1

    async def _ask(self, client: httpx.AsyncClient, random: Random, kind: str) -> None:
        call, key = next(self._identifiers), random.choice(sorted(self._keys))
        self.sent.key[call] = key
        content = f"call-{call} " + "word " * random.randrange(90)
        body: dict[str, Any] = {
            "model": "mine/m-large",
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 12,
            "specclient": {"session": str(call)},
        }
        if kind == "whole":
            body["n"] = random.randrange(1, 4)
            answer = await client.post("/chat/completions", json=body, headers=self._headers(key))
            status, whole = answer.status_code, answer.status_code == 200
        else:
            body["stream"] = True
            leaves_after = random.randrange(1, 4) if kind == "vanishing" else None
            status, whole = await self._stream(client, body, key, leaves_after)
        self.sent.counts[f"{kind} {status}"] += 1
        if whole:
            self.sent.complete.add(call)
        else:
            assert kind == "vanishing" or (status, key != "free") == (429, True), (status, key)

    async def _stream(
        self, client: httpx.AsyncClient, body: Any, key: str, leaves_after: int | None
    ) -> tuple[int, bool]:
        """Return the status, and whether the whole stream arrived."""
        async with client.stream(
            "POST", "/chat/completions", json=body, headers=self._headers(key)
        ) as answer:
            read = 0
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    return answer.status_code, True
                read += line.startswith("data: ")
                if leaves_after is not None and read >= leaves_after:
                    break
        return answer.status_code, False

    def _headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self._keys[key]}"}


async def test_an_hour_of_mixed_requests_loses_no_row_no_budget_and_no_memory(
    tmp_path: Path, native_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", "3600"))
    with CountingUpstream() as upstream:
        server = WatchedServer(tmp_path, native_folder, upstream.base_url, bystanders=False)
        keys = {name: server.command(*_creation(name, budget)) for name, budget in BUDGETS.items()}
        with server:
            clients = Clients(server, keys, _draw(1000))
            async with _memory(server, seconds) as sizes:
                await clients.run(seconds)
            assert server.living() == server.workers, server.log()[-2000:]
    rows = _rows(server.ledger)
    _check_rows(clients.sent, upstream, rows)
    spent = _spent(clients.sent, upstream)
    grown = _grown_mb(sizes)
    with capsys.disabled():
        counts = dict(sorted(clients.sent.counts.items()))
        print(f"\n{sum(counts.values())} requests: {counts}")
        print(f"upstream: {sum(upstream.begun.values())} requests, failed {dict(upstream.failed)}")
        print(f"ledger: {len(rows)} calls; spent {spent}; memory grown by {grown:.0f} MB")
    for name, budget in BUDGETS.items():
        assert budget is None or spent[name] <= Decimal(budget), name
    assert grown <= GROWTH_MB, sizes


def _creation(name: str, budget: str | None) -> list[str]:
    return ["serve", "keys", "create", name, *(["--budget", f"{budget}/total"] if budget else [])]


def _draw(count: int) -> list[HostileRequest]:
    """Return hostile requests, the same ones each time."""
    found: list[HostileRequest] = []

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(request=hostile_requests())
    def draw(request: HostileRequest) -> None:
        found.append(request)

    draw()
    return found


@asynccontextmanager
async def _memory(server: WatchedServer, seconds: float) -> AsyncIterator[list[dict[int, float]]]:
    """Measure the memory of the workers 60 times while the clients run, and once after them."""
    sizes: list[dict[int, float]] = []

    async def measure() -> None:
        while True:
            await asyncio.sleep(seconds / 60)
            sizes.append(await asyncio.to_thread(server.resident_mb))

    task = asyncio.create_task(measure())
    try:
        yield sizes
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        sizes.append(await asyncio.to_thread(server.resident_mb))


def _grown_mb(sizes: list[dict[int, float]]) -> float:
    """Return the growth after the first third, in which caches fill."""
    filled = sizes[len(sizes) // 3]
    return max(sizes[-1][pid] - filled[pid] for pid in filled)


def _rows(file: Path) -> dict[int, list[LedgerRow]]:
    """Return the ledger's calls to the upstream by their identifiers."""
    rows: dict[int, list[LedgerRow]] = defaultdict(list)
    ledger = Ledger(str(file))
    for row in ledger.iterate():
        if row.session is not None and row.session.isdecimal() and row.parent is None:
            rows[int(row.session)].append(row)
    ledger.close()
    return rows


def _check_rows(sent: Sent, upstream: CountingUpstream, rows: dict[int, list[LedgerRow]]) -> None:
    """Check that each call has one row, with the upstream's own count."""
    begun = {call for call in upstream.begun if call in sent.key}
    assert [call for call in begun if len(rows[call]) != 1] == []
    assert [call for call in begun if rows[call][0].attempts != upstream.begun[call]] == []
    assert [call for call in sent.complete if len(upstream.billed[call]) != 1] == []
    wrong = [call for call in sent.complete if _tokens(rows[call][0]) != upstream.billed[call][0]]
    assert wrong == []
    assert len(sent.complete) > 5


def _tokens(row: LedgerRow) -> tuple[int | None, int | None]:
    return row.prompt_tokens, row.completion_tokens


def _spent(sent: Sent, upstream: CountingUpstream) -> dict[str, Decimal]:
    """Return the dollars that the upstream has billed each key for."""
    spent = dict.fromkeys(BUDGETS, Decimal(0))
    for call, billed in upstream.billed.items():
        if call in sent.key:
            spent[sent.key[call]] += sum(p * PRICES[0] + c * PRICES[1] for p, c in billed)
    return spent
