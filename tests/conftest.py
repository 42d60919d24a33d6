"""What every test starts from: an empty home, no keys, no configuration, a ledger of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Tests that do the same thing many times, in which lines are not counted: counting takes two fifths of the
#: time, and other tests go through the same lines.
_REPEATING = (
    "sdk/against_openai/",
    "sdk/types/",
    "sdk/structured/",
    "sdk/routing/simulate/",
    "sdk/serving/test_fuzz_routes",
    "sdk/call/strategies/remote/",
    "local/drafting/test_vocabulary_match",
    "local/exactness/",
)
_PREFIXES = ("OPENAI_", "SPECCLIENT_", "TIKTOKEN_", "HF_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave repeating tests out of the coverage that is shown."""
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(_REPEATING):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def native_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the compiled passes: made once, not by each program that a test starts."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def clean_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native_folder: Path) -> Path:
    """Point HOME at a folder with nothing of the user's, and drop what could lead outside the test."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    cache = home / ".cache"
    (cache / "specclient").mkdir(parents=True)
    (cache / "specclient" / "native").symlink_to(native_folder, target_is_directory=True)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("SPECCLIENT_LEDGER", str(tmp_path / "ledger.sqlite3"))
    return home
