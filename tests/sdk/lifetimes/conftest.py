"""Fixtures: a server in another process, and Python programs run in subprocesses."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_program import DEVELOPMENT, STRICT, ForkedProgram
from paths import KITS

HEAD = """
    import asyncio, atexit, gc, os, signal, sys, threading, time
    from specclient import AsyncOpenAI, OpenAI
    ASK = [{{"role": "user", "content": "hello"}}]
    URL = {url!r}
    def create(client, model="m"):
        return client.chat.completions.create(model=model, messages=ASK)
    def stream(client, model="m"):
        return client.chat.completions.create(model=model, messages=ASK, stream=True)
"""


class ForkedChild(ForkedProgram):
    """A fork of an interpreter with imported modules, which is killed when its test fails."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


class FreshChild(ForkedChild):
    """A new interpreter, for programs whose imports are what is tested."""

    _execute_child = subprocess.Popen._execute_child  # type: ignore[attr-defined]


Begin = Callable[..., subprocess.Popen[str]]
Program = Callable[..., str]


@pytest.fixture(scope="session")
def far_server() -> Iterator[str]:
    """The base URL of a server in a separate process; the model's name selects its response."""
    command = [sys.executable, str(KITS / "far_server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Start a program with warnings as errors and piped output; with ``url``, it begins with ``HEAD``.

    It is a fork of an interpreter that has imported the package, unless it is to be ``fresh``. Without
    ``dev`` it is a fresh one without Python's development mode.
    """

    def start(code: str, url: str = "", *, dev: bool = True, fresh: bool = False) -> subprocess.Popen[str]:
        path = tmp_path / "program.py"
        head = textwrap.dedent(HEAD).format(url=url) if url else ""
        path.write_text(head + textwrap.dedent(code))
        kind = FreshChild if fresh or not dev else ForkedChild
        return kind(
            [sys.executable, *(DEVELOPMENT if dev else STRICT), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    return start


@pytest.fixture
def program(begin: Begin) -> Program:
    """Run a program to its end and return its output; it must exit with 0 and write nothing to stderr."""

    def run(code: str, url: str = "", *, timeout_s: float = 120, **options: bool) -> str:
        with begin(code, url, **options) as process:
            out, err = process.communicate(timeout=timeout_s)
        assert (process.returncode, unexpected_lines(err)) == (0, []), err
        return out.strip()

    return run


def unexpected_lines(err: str) -> list[str]:
    """Return the lines of stderr, without asyncio's slow-step warnings and warnings of unknown prices."""
    lines = err.splitlines()
    return [line for line in lines if not line.startswith("Executing <") and "unpriced" not in line]
