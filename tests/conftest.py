"""Fixtures of all tests: an empty home, no API keys, no configuration, and a separate ledger."""

from __future__ import annotations

import gc
import os
import sys
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
# Tests start hundreds of programs, each of which would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_PREFIXES = (
    "OPENAI_",
    "SPECCLIENT_",
    "TIKTOKEN_",
    "HF_",
    "GOOGLE_",
    "GCLOUD_",
    "CLOUDSDK_",
    "CLOUD_ML_",
    "AWS_",
)


@pytest.fixture(scope="session", autouse=True)
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let HTTP clients load one authority's certificate instead of all.

    Each new client loads them anew, which takes 20 ms, and no test connects to a public server. Clients read
    ``SSL_CERT_FILE``, which the user's environment may set and programs of the tests inherit, or ask certifi.
    """
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(certifi.contents().partition(end)[0] + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifi, "where", lambda: str(file))
        patch.setenv("SSL_CERT_FILE", str(file))
        patch.delenv("SSL_CERT_DIR", raising=False)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections, and exclude what is there afterwards from later ones.

    Modules and ten thousand tests are a million objects, which otherwise take a fifth of that time,
    and half a second of each test that collects garbage. Later collections come less often than usual, which
    saves a tenth of the time of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
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


class _Homes:
    """Folders that are HOME, each used until a test has written to it.

    Most tests write nothing, and making and removing four folders takes longer than many of them.
    """

    def __init__(self, base: Path, native: Path) -> None:
        self._base, self._native, self._count = base, native, 0
        self._make()

    def empty(self) -> Path:
        """Return a home that holds nothing but a link to the compiled passes."""
        expected = ((self._folder, "home"), (self._home, ".cache"), (self._cache, "specclient"),
                    (self._cache / "specclient", "native"))  # fmt: skip
        if any([path.name for path in folder.iterdir()] != [name] for folder, name in expected):
            self._make()
        return self._home

    def _make(self) -> None:
        self._count += 1
        self._folder = self._base / str(self._count)
        self._home = self._folder / "home"
        self._cache = self._home / ".cache"
        (self._cache / "specclient").mkdir(parents=True)
        (self._cache / "specclient" / "native").symlink_to(self._native, target_is_directory=True)


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory, native_folder: Path) -> _Homes:
    return _Homes(tmp_path_factory.mktemp("homes"), native_folder)


@pytest.fixture(autouse=True)
def clean_home(monkeypatch: pytest.MonkeyPatch, _homes: _Homes) -> Path:
    """Set HOME to an empty folder, and remove environment variables with the user's keys and settings."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else google-auth looks for the machine's credentials
    home = _homes.empty()
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("SPECCLIENT_LEDGER", str(home.parent / "ledger.sqlite3"))
    return home
