"""Environments of the checked libraries: the library, the SDK's dependencies, and the engine by links.

torch and what the engine needs with it are taken from the environment that runs this, because they are large:
a folder of links to their files is the last entry of each environment's path, so that a version which the
library itself requires comes first.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from libraries.catalogue import CheckedLibrary
from specclient.version import VERSION

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "libraries"
_INSTALL_S: Final = 900.0


class InstallError(Exception):
    """A library could not be installed; the message is the installer's."""


def prepare(library: CheckedLibrary, *, fresh: bool) -> None:
    """Make a library's environment, unless it exists and ``fresh`` is false.

    Raises:
        InstallError: the installer failed.
    """
    folder = BUILD / library.name
    ready = folder / "ready"
    if fresh or not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if library.node:
            _install(["npm", "install", "--silent", "--prefix", str(folder), *library.requirements])
        else:
            environment = folder / "env"
            _install([str(_uv()), "venv", "--quiet", "--python", sys.executable, str(environment)])
            wanted = [*library.requirements, *_sdk_requirements()]
            _install(
                [str(_uv()), "pip", "install", "--quiet", "--python", str(python(library)), *wanted],
            )
            link_checkout(next(environment.glob("lib/python*/site-packages")))
        ready.touch()


def link_checkout(site: Path) -> None:
    """Put the checkout and the engine's links on the path of an environment, with the SDK's metadata.

    Args:
        site: the environment's ``site-packages``.
    """
    paths = [ROOT, ROOT / "local", ROOT / "cli", _engine_links()]
    (site / "specclient-checkout.pth").write_text("\n".join(map(str, paths)) + "\n", encoding="utf-8")
    metadata = site / f"specclient-{VERSION}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: specclient\nVersion: {VERSION}\n")
    groups = _project()["entry-points"].items()
    rows = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in groups]
    (metadata / "entry_points.txt").write_text("\n".join(rows), encoding="utf-8")


def python(library: CheckedLibrary) -> Path:
    """Return the interpreter of a library's environment."""
    return BUILD / library.name / "env" / "bin" / "python"


def versions(library: CheckedLibrary) -> dict[str, str]:
    """Return the installed versions of the library and, in Python, of openai, by package name."""
    if library.node:
        file = BUILD / library.name / "node_modules" / library.package / "package.json"
        return {library.package: json.loads(file.read_text(encoding="utf-8"))["version"]}
    site = next((BUILD / library.name / "env").glob("lib/python*/site-packages"))
    found = {d.name.lower(): d.version for d in importlib.metadata.distributions(path=[str(site)])}
    return {name: found[name] for name in (library.package, "openai") if name in found}


def _sdk_requirements() -> list[str]:
    """Return the SDK's dependencies; the SDK itself is used from the checkout."""
    requirements: list[str] = _project()["dependencies"]
    return requirements


def _project() -> dict[str, Any]:
    """Return the table ``[project]`` of the checkout's settings."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project: dict[str, Any] = settings["project"]
    return project


def _engine_links() -> Path:
    """Return a folder of links to the distributions of the extra ``local`` and their dependencies."""
    folder = BUILD / ".engine"
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    pending, seen = ["torch", "transformers", "llguidance", "jinja2", "safetensors"], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a requirement of another platform
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(str(distribution.locate_file(top)))
        pending += [
            re.split(r"[^\w.-]", line, maxsplit=1)[0]
            for line in distribution.requires or ()
            if "extra ==" not in line
        ]
    return folder


def _uv() -> Path:
    """Return the installer, which shares one cache among the environments; installed at its first use."""
    folder = BUILD / ".installer"
    found = folder / "bin" / "uv"
    if not found.exists():
        _install([sys.executable, "-m", "venv", str(folder)])
        _install([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
    return found


def _install(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False, cwd=ROOT)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise InstallError(" ".join(lines[-3:])[:400])
