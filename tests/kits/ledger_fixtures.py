"""Fixtures for ledger tests: finished calls and a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from postgres_server import PostgresServer

from specclient.types.call import Call
from specclient.types.route import Candidate, Decision

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def build_call(id: str = "c1", route: str = "openai/gpt-4.1", **values: Any) -> Call:  # noqa: A002
    provider, _, model = route.partition("/")
    decision = Decision(
        chosen=route, provider=provider, model=model, candidates=(Candidate(route, verdict="chosen"),)
    )
    defaults: dict[str, Any] = {"started_at": AT, "operation": "chat", "model": route, "status": "ok"}
    return Call(id=id, route=decision, **(defaults | values))


@pytest.fixture
def make_call():
    return build_call


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Run a PostgreSQL server."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """Create an empty database; the value is its URL."""
    return f"postgresql://me@/{postgres.create_database()}?host={postgres.folder}&port={postgres.port}"
