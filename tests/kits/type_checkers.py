"""mypy and pyright over programs that import `openai` or, in its place, this package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from paths import ROOT

#: Lines with this comment must be refused.
REFUSED = "# refused"
_MYPY_ERROR = re.compile(r"^(\w+\.py):(\d+): error: (.*)$", re.MULTILINE)
#: What mypy read of the libraries is kept between runs, as for `make check`.
_CACHE = ROOT / ".mypy_cache" / "programs"
_CONFIG = {"typeCheckingMode": "standard", "enableTypeIgnoreComments": False}

Place = tuple[str, int]


def write_programs(programs: Iterable[Path], library: str, folder: Path) -> Path:
    """Write copies of programs that import a library, ``openai`` or ``specclient``; return their folder."""
    target = folder / library
    target.mkdir()
    for path in programs:
        text = path.read_text(encoding="utf-8")
        if library != "openai":
            text = re.sub(r"^import openai$", f"import {library} as openai", text, flags=re.MULTILINE)
            text = re.sub(r"^from openai\b", f"from {library}", text, flags=re.MULTILINE)
        (target / path.name).write_text(text, encoding="utf-8")
    (target / "pyrightconfig.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    return target


def refused_places(programs: Iterable[Path]) -> set[Place]:
    """Return the names and line numbers of the lines that must be refused."""
    return {
        (path.name, number)
        for path in programs
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if REFUSED in line
    }


def mypy_errors(folder: Path) -> dict[Place, str]:
    """Return the errors that ``mypy --strict`` reports for a folder of programs."""
    options = ("--strict", "--no-error-summary", "--hide-error-context", "--config-file", os.devnull)
    output = _run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(_CACHE / folder.name), "."], folder
    )
    return {(name, int(line)): message for name, line, message in _MYPY_ERROR.findall(output)}


def pyright_errors(folder: Path) -> dict[Place, str]:
    """Return the errors that pyright (as built by basedpyright) reports for a folder of programs."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "."]
    found = json.loads(_run(command, folder))["generalDiagnostics"]
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"]
        for one in found
        if one["severity"] == "error"
    }


def _run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout
