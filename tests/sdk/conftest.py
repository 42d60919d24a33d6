"""Fixtures of the SDK's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from ledger_fixtures import make_call, postgres, postgres_url  # noqa: F401 - fixtures
from loopback_server import OpenAIServer

settings.register_profile("no-clock", deadline=None)  # load on the machine must not fail a test
settings.load_profile("no-clock")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    """A fresh OpenAI-compatible server on loopback; see ``loopback_server.py``."""
    with OpenAIServer() as server:
        yield server
