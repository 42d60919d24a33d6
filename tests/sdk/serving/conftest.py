"""Server fixtures: one shared server of the bundled pair, and a gateway to a loopback upstream per test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import openai
import pytest
from gateway_server import Served, upstream_settings
from loopback_server import OpenAIServer

from specclient.config import Settings


@pytest.fixture(scope="session")
def local_server() -> Iterator[Served]:
    """A server of ``local/demo`` and ``local/demo-target``, the bundled pair."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("OPENAI_")]:
            patch.delenv(name)
        with Served(Settings.model_validate({"ledger": "off", "local": {"threads": 1}})) as served:
            yield served


@pytest.fixture
def gateway(openai_server: OpenAIServer) -> Iterator[Served]:
    """A gateway to ``openai_server``, which is the provider ``mine``."""
    with Served(upstream_settings(openai_server)) as served:
        yield served


@pytest.fixture
def connect() -> Iterator[Callable[[str], openai.OpenAI]]:
    """Create official clients for a base URL, without retries."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(openai.OpenAI(base_url=url, api_key="any", max_retries=0))
