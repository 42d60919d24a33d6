"""What every test starts from: an empty home, no keys, no configuration, a ledger of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_PREFIXES = ("OPENAI_", "SPECCLIENT_", "TIKTOKEN_", "HF_")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def clean_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point HOME at an empty folder and drop every variable that could lead outside the test."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("SPECCLIENT_LEDGER", str(tmp_path / "ledger.sqlite3"))
    return home
