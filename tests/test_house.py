"""Rules for the source tree: layers, light imports, public names, module docstrings, and names."""

from __future__ import annotations

import ast
import collections
import functools
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest
from paths import ROOT

import specclient

PACKAGES = ("specclient", "local/specclient_local", "cli/specclient_cli")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_layers_are_respected() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-logo"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import specclient",
        "import specclient; specclient.OpenAI(); specclient.AsyncOpenAI",
        "import specclient_local",
        "import specclient_local.api.backend as backend; backend.create({}).models()",
        "import specclient_cli.main",
    ],
)
def test_imports_load_no_heavy_packages(code: str) -> None:
    heavy = "torch transformers tokenizers tiktoken sqlalchemy genai_prices"
    if "cli" not in code:
        heavy += " click rich"
    loaded = _python(f"{code}\nimport sys\nprint(*sorted(set({heavy.split()!r}) & set(sys.modules)))")
    assert loaded.split() == []


def test_every_public_name_can_be_imported() -> None:
    for name in specclient.__all__:
        assert getattr(specclient, name) is not None
    assert set(specclient.__all__) <= set(dir(specclient))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        specclient.nothing_like_it  # noqa: B018


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_every_module_begins_with_a_docstring() -> None:
    assert SOURCES
    assert [str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(_tree(path))] == []


def test_only_http_transport_imports_httpx() -> None:
    users = [
        path.relative_to(ROOT)
        for path in SOURCES
        if re.search(r"^\s*(import|from) httpx", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert users
    assert all(path.parts[:2] == ("specclient", "http_transport") for path in users)


#: Folders of tests that concern several packages.
ACROSS = ("sdk/against_openai", "sdk/lifetimes", "local/exactness", "sdk/serving/faults")
MIRRORED = {"sdk": "specclient", "local": "local/specclient_local", "cli": "cli/specclient_cli"}


def test_tests_mirror_the_source() -> None:
    tests = ROOT / "tests"
    found = [path for top in MIRRORED for path in (tests / top).rglob("test_*.py")]
    assert found
    for path in found:
        folder = path.parent.relative_to(tests)
        if folder.as_posix().startswith(ACROSS):
            continue
        source = ROOT / MIRRORED[folder.parts[0]] / Path(*folder.parts[1:])
        assert (source / "__init__.py").exists(), f"{path} must mirror a package, but {source} does not exist"


def test_make_quick_has_tests_of_every_package() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    quick = makefile[makefile.index("QUICK_SDK :=") : makefile.index("quick: ")]
    rooms = {path.parent.name for path in (ROOT / "tests" / "sdk").glob("*/test_*.py")}
    rooms |= {path.parent.name for path in (ROOT / "tests" / "local").glob("*/test_*.py")}
    rooms -= {Path(folder).name for folder in ACROSS}
    named = set(re.findall(r"(\w+)/", quick))
    assert rooms <= named
    for path in re.findall(r"[\w/]+test_\w+\.py", quick):
        assert list((ROOT / "tests").rglob(path.removeprefix("tests/"))), path


#: Folders with classes named as in the openai package, where some names occur several times.
OPENAI_NAMES = ("specclient/types/", "specclient/resources/", "specclient/structured/", "specclient/lib/")


def test_class_names_are_unique() -> None:
    homes = collections.defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path.relative_to(ROOT).as_posix())
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    ours = {
        name: paths
        for name, paths in twice.items()
        if not all(path.startswith(OPENAI_NAMES) for path in paths)
    }
    assert not ours


@pytest.mark.parametrize("package", ["specclient", "specclient_local", "specclient_cli"])
def test_there_are_no_import_cycles(package: str) -> None:
    """Imports inside functions and for type checkers count, too."""
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {
        module: graph.find_modules_directly_imported_by(module) & graph.modules for module in graph.modules
    }
    while leaves := {module for module, found in imports.items() if not found}:
        imports = {module: found - leaves for module, found in imports.items() if module not in leaves}
    assert not imports, "these modules are in a cycle, or import one that is"
