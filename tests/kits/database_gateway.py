"""A server whose ledger, keys and budgets are in PostgreSQL behind a proxy, and clients that keep calling it.

with DatabaseGateway(upstream, postgres) as gateway:
    gateway.make("small", usd=Decimal(1))          # a key, made without the proxy
    gateway.proxy.stall()
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Self

import httpx
from counting_upstream import CountingUpstream
from gateway_server import Served, upstream_settings
from postgres_server import PostgresServer
from slow_proxy import SlowProxy

from specclient.budgets.accounts import BudgetStatus
from specclient.budgets.budgets import Budgets
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.key import new_key, new_token
from specclient.serving.keys.store import KeyStore

#: Dollars for a million tokens of the upstream.
PRICES = {"mine/m-large": {"input": 200, "output": 800}}
MAX_TOKENS = 12


def key_store(url: str) -> KeyStore:
    """Return the keys in a database."""
    store = KeyStore.of(url)
    assert store is not None
    return store


class DatabaseGateway:
    """The server as a context manager.

    Args:
        upstream: the default provider.
        postgres: the database server.
        patience_s: seconds that budgets and keys wait for the database.

    Attributes:
        proxy: is between the server and the database.
        keys: the names of the keys, and what clients send.
    """

    def __init__(
        self, upstream: CountingUpstream, postgres: PostgresServer, *, patience_s: float = 1.0
    ) -> None:
        self.upstream, self.postgres, self._patience_s = upstream, postgres, patience_s
        self.keys: dict[str, str] = {}
        database = postgres.create_database()
        self.url = postgres.url_of(database)
        self._store = key_store(self.url)
        self.proxy = SlowProxy(postgres.port)
        self._database = database

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._stack.enter_context(self.proxy)
        url = self.postgres.url_of(self._database, self.proxy.port)
        self.settings = upstream_settings(self.upstream, ledger=url, prices=PRICES, candidates=[])
        keys = KeyCache(key_store(url), fresh_s=0.5, wait_s=self._patience_s)
        self.served = self._stack.enter_context(Served(self.settings, keys=keys))
        self.served.client.core.shared.ensure_budgets().patience_s = self._patience_s
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.go_on()
        self._stack.close()
        self._store.close()

    def make(self, name: str, **granted: Any) -> str:
        """Make a key and return it."""
        token = self.keys[name] = new_token()
        self._store.add(new_key(name, token, datetime.now(UTC), **granted))
        return token

    def revoke(self, name: str) -> None:
        self._store.revoke(name, datetime.now(UTC))

    def ask(self, key: str, identifier: int = 0) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        url = f"{self.served.base_url}/chat/completions"
        return httpx.post(url, json=body(identifier), headers=headers, timeout=60, trust_env=False)

    def rows(self) -> list[LedgerRow]:
        """Return the rows that are in the database."""
        ledger = Ledger(self.url)
        try:
            return ledger.rows()
        finally:
            ledger.close()

    def standing(self, name: str) -> BudgetStatus:
        """Return the status of the budget of a key."""
        (budget,) = (key.budget for key in self._store.all() if key.name == name)
        assert budget is not None
        ledger = Ledger(self.url)
        try:
            (found,) = Budgets([budget], Prices(self.settings), Estimator(), ledger).standings()
        finally:
            ledger.close()
        return found


def body(identifier: int) -> dict[str, Any]:
    """Return a request whose answer follows from its identifier."""
    messages = [{"role": "user", "content": f"call-{identifier} of a client"}]
    return {"model": "mine/m-large", "messages": messages, "max_tokens": MAX_TOKENS}


@dataclass
class Seen:
    """The answers that the clients of a key received.

    Attributes:
        statuses: the number of responses by status and code.
        slowest_s: the longest time of a response in seconds.
        errors: a refused response of each code.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    errors: dict[str, httpx.Response] = field(default_factory=dict)


class Load:
    """Clients of a gateway, each of which sends one call after the other; a context manager.

    Args:
        gateway: the server.
        clients: the number of clients of each key.

    Attributes:
        seen: what the clients of each key received.
        pings_s: the longest time of a request for ``/health`` in seconds.
    """

    def __init__(self, gateway: DatabaseGateway, clients: dict[str, int]) -> None:
        self._gateway, self._clients = gateway, clients
        self._numbers = count()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.seen: dict[str, Seen] = defaultdict(Seen)
        self.pings_s = 0.0

    def statuses(self, name: str) -> Counter[str]:
        """Return the number of responses to a key by status and code until now."""
        return Counter(self.seen[name].statuses)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a client still waits"

    async def _run(self) -> None:
        async with httpx.AsyncClient(
            base_url=self._gateway.served.url, timeout=60, trust_env=False
        ) as client:
            callers = [
                self._call(client, name) for name, number in self._clients.items() for _ in range(number)
            ]
            await asyncio.gather(self._ping(client), *callers)

    async def _call(self, client: httpx.AsyncClient, name: str) -> None:
        headers = {"authorization": f"Bearer {self._gateway.keys[name]}"}
        seen = self.seen[name]
        while not self._ended.is_set():
            begun = time.monotonic()
            sent = body(next(self._numbers))
            response = await client.post("/v1/chat/completions", json=sent, headers=headers)
            seen.slowest_s = max(seen.slowest_s, time.monotonic() - begun)
            code = ""
            if response.status_code != 200:
                code = response.json()["error"]["code"]
                seen.errors[code] = response
            seen.statuses[f"{response.status_code} {code}".strip()] += 1
            await asyncio.sleep(0.1)

    async def _ping(self, client: httpx.AsyncClient) -> None:
        while not self._ended.is_set():
            begun = time.monotonic()
            assert (await client.get("/health")).status_code == 200
            self.pings_s = max(self.pings_s, time.monotonic() - begun)
            await asyncio.sleep(0.05)
