"""The files generated from the `openai` package are current, and the generator's functions."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from specclient import openai_api
from specclient.openai_api import endpoints
from specclient.resources.table import index, overlay

ROOT = Path(__file__).parents[2]
PINNED = re.search(r'"openai==([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
at_the_pinned_version = pytest.mark.skipif(
    PINNED is None or version("openai") != PINNED[1],
    reason="the installed openai package is not the pinned version",
)


def test_the_pinned_version_is_the_generated_one() -> None:
    assert PINNED is not None
    assert PINNED[1] == openai_api.VERSION


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the generator's modules importable, and return their folder."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return ROOT / "tools"


@at_the_pinned_version
def test_generated_files_are_current(
    tool: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sync_openai

    monkeypatch.setattr(sys, "argv", ["sync_openai.py", "--check"])
    assert sync_openai.main() == 0, capsys.readouterr().out


def test_a_file_is_current_whatever_its_format_and_import_order(tool: Path, tmp_path: Path) -> None:
    import sync_openai

    path = tmp_path / "one.py"
    path.write_text("from b import (\n    y,\n    x,\n)\nfrom a import z\n\nN = {'k':  1}\n")
    assert sync_openai._is_current(path, 'from a import z\nfrom b import x, y\n\nN = {"k": 1}\n')
    assert not sync_openai._is_current(path, 'from a import z\nfrom b import x, y\n\nN = {"k": 2}\n')
    assert not sync_openai._is_current(path, 'from a import z\nfrom b import x\n\nN = {"k": 1}\n')
    assert not sync_openai._is_current(tmp_path / "none.py", "")


def test_long_strings_are_split_between_words(tool: Path) -> None:
    from openai_sync.literals import source

    value = {"a": " ".join(["word"] * 40), "b": ["x", True], "c": {"d": "two  spaces " * 9}}
    literal = source(value)
    assert eval(literal) == value
    assert max(map(len, literal.partition("'b'")[0].splitlines())) < 100


@pytest.mark.parametrize(
    ("annotation", "ours"),
    [
        ("Optional[List[str]]", "list[str] | None"),
        ("Union[str, Literal['a', 'b'], None]", "str | None"),
        ("Union[int, object]", "Lenient[int]"),
        ("Dict[str, object]", "dict[str, Any]"),
        ("Literal['a']", "Literal['a']"),
    ],
)
def test_annotations_are_translated(tool: Path, annotation: str, ours: str) -> None:
    import ast

    from openai_sync.annotations import Translator
    from openai_sync.names import Catalogue
    from openai_sync.sources import Sources

    translator = Translator(Sources(Catalogue()), of_responses=True)
    assert translator.text("chat.chat_completion", ast.parse(annotation, mode="eval").body) == ours


def test_equal_definitions_are_grouped(tool: Path) -> None:
    from openai_sync.models import _groups

    definitions = {"a.Part": "text: str", "b.Part": "text: str", "c.Part": "text: int"}
    definitions |= {f"{module}.Whole": f"part: <{module}.Part>" for module in "abc"}
    groups = _groups(definitions)
    assert groups["a.Part"] == groups["b.Part"] != groups["c.Part"]
    assert groups["a.Whole"] == groups["b.Whole"] != groups["c.Whole"]


def test_the_overlay_refers_only_to_existing_endpoints() -> None:
    rows = {
        row.name
        for root in endpoints.ROOTS
        for resource in index._by_resource(root).values()
        for row in resource.values()
    }
    assert rows >= overlay.METERED
    assert rows >= overlay.INSTEAD.keys()
