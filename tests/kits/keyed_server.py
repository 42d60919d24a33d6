"""A server with stored keys, its upstream, and the database that holds both keys and ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from gateway_server import Served, upstream_settings
from loopback_server import OpenAIServer

from specclient.budgets.budgets import Budgets
from specclient.ledger.ledger import Ledger
from specclient.ledger.sqlite import SQLiteStore
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.key import new_key, new_token
from specclient.serving.keys.store import KeyStore

BODY = {"model": "mine/m-large", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}


class KeyedServer:
    """The server, stopped; ``served`` is its context manager.

    Args:
        upstream: the default provider, ``mine``.
        file: the database.
        tables: tables that replace those of the settings.
        options: further options of :class:`gateway_server.Served`.
    """

    def __init__(
        self, upstream: OpenAIServer, file: Path, tables: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.upstream, self.file = upstream, file
        self.store = KeyStore(SQLiteStore(str(file)))
        keys = KeyCache(KeyStore(SQLiteStore(str(file))), fresh_s=0.0)
        self.settings = upstream_settings(upstream, **{"ledger": str(file), **(tables or {})})
        self.served = Served(self.settings, keys=keys, **options)

    def make(self, name: str = "alice", **granted: Any) -> str:
        token = new_token()
        self.store.add(new_key(name, token, datetime.now(UTC), **granted))
        return token

    def ask(self, key: str, path: str = "/chat/completions", body: Any = BODY, **options: Any) -> Any:
        headers = {"authorization": f"Bearer {key}".encode("latin-1")} if key else {}
        verb = "GET" if body is None else "POST"
        url = self.served.base_url + path
        return httpx.request(verb, url, json=body, headers=headers, timeout=60, trust_env=False, **options)

    def upload(self, key: str, path: str, data: dict[str, Any], files: Any) -> Any:
        """Send a form."""
        headers = {"authorization": f"Bearer {key}"}
        url = self.served.base_url + path
        return httpx.post(url, data=data, files=files, headers=headers, timeout=60, trust_env=False)

    def post(self, key: str, url: str, body: str, headers: dict[str, str]) -> Any:
        """Send a body as it is."""
        headers = {"authorization": f"Bearer {key}", **headers}
        return httpx.post(url, content=body, headers=headers, timeout=60, trust_env=False)

    def models(self, key: str) -> list[str]:
        return [row["id"] for row in self.ask(key, "/models", None).json()["data"]]

    def rows(self) -> list[Any]:
        self.served.client.ledger.flush()
        return Ledger(str(self.file)).rows()

    def standing(self) -> Any:
        """Return the status of the budget of the only key."""
        (key,) = self.store.all()
        ledger = Ledger(str(self.file))
        try:
            (found,) = Budgets([key.budget], Prices(self.settings), Estimator(), ledger).standings()
        finally:
            ledger.close()
        return found
