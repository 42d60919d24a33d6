"""Fixtures of the SDK's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from servers import OpenAIServer

settings.register_profile("no-clock", deadline=None)  # a busy machine is no failure
settings.load_profile("no-clock")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    """A fresh OpenAI-compatible server on loopback; see ``servers.py``."""
    with OpenAIServer() as server:
        yield server
