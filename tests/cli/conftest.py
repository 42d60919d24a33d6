"""Fixtures of the command line's tests: a loopback server, tiny models, and runners of commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import forked_program
import pytest
from forked_program import COMMAND
from loopback_server import OpenAIServer

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process; return its exit code, stdout and stderr."""
    from specclient_cli.main import run as run_here

    def runner(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_here(arguments)
        return code, *capsys.readouterr()

    return runner


@pytest.fixture
def shell() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command line in a process of its own with piped output."""

    def runner(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        return forked_program.run([*COMMAND, *arguments], **{"text": True, "timeout": 120, **options})

    return runner


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder without configuration, and limit the engine to one thread."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONWARNINGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "SPECCLIENT_LEDGER" in os.environ
    return folder


@pytest.fixture
def hosted(openai_server: OpenAIServer, in_empty_folder: Path) -> OpenAIServer:
    """A configuration in which ``mine/m-large`` and ``mine/m-small`` are served on loopback."""
    (in_empty_folder / "specclient.toml").write_text(
        'candidates = ["mine/m-large", "mine/m-small"]\n'
        f'[providers.mine]\nbase_url = "{openai_server.base_url}"\nmodels = ["m-large"]\n'
        '[prices."mine/m-large"]\ninput = 2\noutput = 8\n'
        '[prices."mine/m-small"]\ninput = 1\noutput = 4\n'
        '[policies.cheap]\nminimize = "cost"\n'
    )
    return openai_server


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A random target and a random draft with different seeds and the same vocabulary."""
    from tiny_models import write_checkpoint

    folder = tmp_path_factory.mktemp("pair")
    target = write_checkpoint(folder / "target", max_position_embeddings=512, eos_token_id=None)
    return target, write_checkpoint(
        folder / "draft", seed=0, num_hidden_layers=1, max_position_embeddings=512
    )


@pytest.fixture
def local(pair: tuple[Path, Path], in_empty_folder: Path) -> Path:
    """A configuration in which ``local/demo`` and ``local/demo-target`` are tiny random models."""
    target, draft = pair
    file = in_empty_folder / "specclient.toml"
    file.write_text(
        f'[local]\nthreads = 1\n[local.models.demo]\npath = "{target}"\ndraft = "{draft}"\n'
        f'[local.models.demo-target]\npath = "{target}"\ndraft = "{draft}"\nmethod = "plain"\n'
    )
    return file
