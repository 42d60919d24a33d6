"""Fixtures of tests of the response cache: an upstream, and clients with a cache of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_upstream import NumberedUpstream
from gateway_server import upstream_settings

from specclient import AsyncOpenAI


@pytest.fixture
def upstream() -> Iterator[NumberedUpstream]:
    with NumberedUpstream() as server:
        yield server


@pytest.fixture
def slow() -> Iterator[NumberedUpstream]:
    with NumberedUpstream(delay_s=0.2) as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, Any]:
    return {"store": str(tmp_path / "cache.sqlite3")}


@pytest.fixture
def tables(cache: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    return {"cache": cache, "ledger": str(tmp_path / "ledger.sqlite3")}


@pytest.fixture
async def client(upstream: NumberedUpstream, tables: dict[str, Any]) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(config=upstream_settings(upstream, **tables)) as made:
        yield made


@pytest.fixture
async def slow_client(slow: NumberedUpstream, tables: dict[str, Any]) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(config=upstream_settings(slow, **tables), max_retries=0) as made:
        yield made
