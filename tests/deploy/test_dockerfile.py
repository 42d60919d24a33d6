"""The ``Dockerfile``: stages, user, commands, sources and extras; with hadolint where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import pairwise
from pathlib import Path

import click
import pytest
from paths import ROOT
from specclient_cli.main import cli

FILE = ROOT / "Dockerfile"
Instruction = tuple[str, str]


def _stages() -> dict[str, list[Instruction]]:
    """Return the instructions of each stage by its name; those before the first stage by ''."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    stages: dict[str, list[Instruction]] = {"": []}
    for line in text.splitlines():
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            stages[arguments.partition(" AS ")[2]] = []
        if name:
            list(stages.values())[-1].append((name, arguments.strip()))
    return stages


STAGES = _stages()
TARGETS = ("engine", "slim")


def _chain(stage: str) -> list[Instruction]:
    """Return the instructions of a stage after those of the stages that it begins from."""
    found = STAGES[stage]
    base = found[0][1].partition(" AS ")[0]
    return [*(_chain(base) if base in STAGES else []), *found]


def _last(stage: str, name: str) -> str:
    return [arguments for instruction, arguments in _chain(stage) if instruction == name][-1]


def _sources() -> list[str]:
    """Return what is copied from the repository."""
    found = [a.split()[:-1] for stage in STAGES.values() for name, a in stage if name == "COPY"]
    return [source for words in found if not words[0].startswith("--from=") for source in words]


def test_hadolint_has_no_complaint() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed (the extra `deploy`)")
    done = subprocess.run([program, FILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("target", TARGETS)
def test_images_contain_no_build_tools_and_run_without_privileges(target: str) -> None:
    assert _chain(target)[0][1].startswith("python:${PYTHON}-slim-")
    assert not any(name == "COPY" and not a.startswith("--from=") for name, a in _chain(target))
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", _last(target, "USER"))  # a number, and not root's
    assert list(STAGES)[-1] == "slim"


def test_base_images_have_versions() -> None:
    defaults = dict(a.split("=") for name, a in STAGES[""] if name == "ARG")
    assert re.fullmatch(r"3\.\d+", defaults["PYTHON"])
    for stage in STAGES.values():
        for image in [a.partition(" ")[0] for name, a in stage if name == "FROM"]:
            assert image in STAGES or re.fullmatch(r"python:\$\{PYTHON\}-slim-\w+", image)


@pytest.mark.parametrize("target", TARGETS)
def test_commands_are_in_exec_form_and_exist(target: str) -> None:
    """In exec form the server is the first process, which receives SIGTERM."""
    words = json.loads(_last(target, "ENTRYPOINT")) + json.loads(_last(target, "CMD"))
    assert words[:2] == ["specclient", "serve"]
    command = cli.get_command(click.Context(cli), "serve")
    assert command is not None
    context = command.make_context("serve", words[2:], resilient_parsing=True)
    assert context.params["port"] == int(_last(target, "EXPOSE"))
    assert context.params["host"] == "0.0.0.0"
    probe = json.loads(_last(target, "HEALTHCHECK").partition(" CMD ")[2])
    assert probe[:2] == ["python", "-c"]
    compile(probe[2], "probe", "exec")
    assert f"{context.params['port']}" in probe[2]


def test_copied_sources_exist_and_are_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    sources = [source for source in _sources() if source != "./"]
    assert kept == set(sources)
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.parametrize("target", TARGETS)
def test_installed_extras_exist(target: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (named,) = [a for name, a in STAGES[f"build-{target}"] if name == "ARG" and a.startswith("EXTRAS=")]
    installed = set(named.removeprefix("EXTRAS=").split(","))
    assert installed <= extras.keys()
    assert {"server", "postgres", "redis"} <= installed
    assert ("local" in installed) == (target == "engine")
    assert any(f"--from=build-{target} " in a for name, a in STAGES[target] if name == "COPY")


def test_the_copied_files_make_the_wheel(tmp_path: Path) -> None:
    """The first stage's own command, with the files that it has, in this interpreter."""
    pytest.importorskip("hatchling")
    for source in _sources():
        made = ROOT / source
        if made.is_dir():
            shutil.copytree(made, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(made, tmp_path)
    runs = " && ".join(a for name, a in STAGES["build"] if name == "RUN").split(" && ")
    words = runs[0].split()
    assert words[:2] == ["pip", "wheel"]
    # Nothing is fetched: the environment of the tests has the build backend.
    command = [sys.executable, "-m", *words, "--no-build-isolation", "--no-index", "--quiet"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    folder = dict(pairwise(words))["--wheel-dir"]
    (wheel,) = (tmp_path / folder).glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "specclient/serving/app.py",
        "specclient_cli/main.py",
        "specclient_local/engine/engine.py",
    ):
        assert needed in names
    assert any(name.startswith("specclient_local/bundled/target/") for name in names)
