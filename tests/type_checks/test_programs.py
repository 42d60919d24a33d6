"""Type checkers accept and refuse the same programs with this package as with `openai`.

They run in `make typing`, because each of them takes as long as a tenth of the suite.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from type_checkers import Place, mypy_errors, pyright_errors, refused_places, write_programs

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
REFUSED = sorted((HERE / "refused").glob("*.py"))

pytestmark = pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")

Checker = Callable[[Path], dict[Place, str]]


def _check(library: str, checker: Checker, folder: Path) -> None:
    errors = checker(write_programs([*PROGRAMS, *REFUSED], library, folder))
    wanted = refused_places(REFUSED)
    assert {place: message for place, message in errors.items() if place not in wanted} == {}
    assert wanted - errors.keys() == set()


def test_there_are_programs_of_every_kind() -> None:
    assert len(PROGRAMS) >= 30
    assert len(refused_places(REFUSED)) >= 25


@pytest.mark.soak
@pytest.mark.parametrize("library", ["openai", "specclient"])
@pytest.mark.parametrize("checker", [mypy_errors, pyright_errors])
def test_both_checkers_agree_on_both_libraries(library: str, checker: Checker, tmp_path: Path) -> None:
    if checker is pyright_errors and find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    _check(library, checker, tmp_path)
