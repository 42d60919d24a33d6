"""Fixtures of the SDK's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from ledger_fixtures import make_call, postgres, postgres_url  # noqa: F401 - fixtures
from loopback_server import OpenAIServer
from websocket_server import SocketServer, running_socket_server

settings.register_profile("no-clock", deadline=None)  # load on the machine must not fail a test
settings.load_profile("no-clock")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def one_socket_server() -> Iterator[SocketServer]:
    """The WebSocket server that all tests share; use :func:`socket_server`."""
    with running_socket_server() as server:
        yield server


@pytest.fixture
def socket_server(one_socket_server: SocketServer) -> SocketServer:
    """A WebSocket server on loopback without a script; see ``websocket_server.py``."""
    one_socket_server.reset()
    return one_socket_server


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    """A fresh OpenAI-compatible server on loopback; see ``loopback_server.py``."""
    with OpenAIServer() as server:
        yield server
