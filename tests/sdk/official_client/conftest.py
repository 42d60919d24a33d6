"""Official clients over the transport, with httpx and httpx2, to a provider on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import httpx
import httpx2
import openai
import pytest
from gateway_server import upstream_settings
from loopback_server import OpenAIServer

import specclient

Connect = Callable[..., openai.OpenAI]


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> ModuleType:
    """The HTTP library of the official client."""
    found: ModuleType = request.param
    return found


@pytest.fixture
def connect(openai_server: OpenAIServer) -> Iterator[Connect]:
    """Create official clients of ``openai_server``, which is the provider ``mine``, over the transport."""
    with ExitStack() as stack:

        def made(
            library: ModuleType = httpx, *, tables: Any = None, official: Any = None, **options: Any
        ) -> openai.OpenAI:
            options.setdefault("config", upstream_settings(openai_server, **(tables or {})))
            http_client = library.Client(transport=specclient.transport(**options))
            chosen = {"base_url": openai_server.base_url, "api_key": "sk-caller", **(official or {})}
            return stack.enter_context(openai.OpenAI(http_client=http_client, **chosen))

        yield made


@pytest.fixture
def direct(openai_server: OpenAIServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=openai_server.base_url, api_key="sk-caller")
