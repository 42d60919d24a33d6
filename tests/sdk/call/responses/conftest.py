"""The bundled pair in this process and behind the server, each with a ledger of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from gateway_server import Served
from stored_responses import local_settings

import specclient


@pytest.fixture(scope="session", autouse=True)
def _no_keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("OPENAI_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("responses")


@pytest.fixture(scope="session")
def here(_no_keys: None, folder: Path) -> Iterator[specclient.OpenAI]:
    """Our client, with the bundled pair in this process."""
    with specclient.OpenAI(config=local_settings(folder / "here.sqlite3")) as client:
        yield client


@pytest.fixture(scope="session")
def there(_no_keys: None, folder: Path) -> Iterator[openai.OpenAI]:
    """The official client of a server of the bundled pair: the oracle."""
    with (
        Served(local_settings(folder / "there.sqlite3")) as served,
        openai.OpenAI(base_url=served.base_url, api_key="any", max_retries=0) as client,
    ):
        yield client
