"""Fixtures of all tests: an empty home, no API keys, no configuration, and a separate ledger."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

#: Repetitive tests, for which coverage is not measured: measuring takes two fifths of their time, and other
#: tests cover the same lines.
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


@pytest.fixture(scope="session", autouse=True)
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let HTTP clients load one authority's certificate instead of all.

    Each new httpx client loads them anew, which takes 20 ms, and no test connects to a public server.
    """
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(certifi.contents().partition(end)[0] + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifi, "where", lambda: str(file))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections, and exclude what is there afterwards from later ones.

    Modules and ten thousand tests are a million objects, which otherwise take a fifth of that time,
    and half a second of each test that collects garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exclude repetitive tests from coverage."""
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(_REPEATING):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def native_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shared folder for compiled passes, so that not every process of a test compiles them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def clean_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native_folder: Path) -> Path:
    """Set HOME to an empty folder, and remove environment variables with the user's keys and settings."""
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
