"""Turn the recorded bodies under ``tests/data/telemetry`` into cases: what was said, and what it means."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
from paths import DATA

from specclient.types.usage import Speculation

FOLDER = DATA / "telemetry"


@dataclass(frozen=True)
class Case:
    """One answer of one server.

    Attributes:
        operation: the route it is an answer of.
        prediction: whether the request carries a ``prediction``.
        record: whether it comes over no route of OpenAI's.
        body: the whole answer; events: the same in chunks; empty where it is not recorded so.
        expected: the fields of the Speculation that are known; None for nothing at all.
        cached: prompt tokens read from a cache.
    """

    server: str
    name: str
    expected: dict[str, Any] | None
    operation: str = "chat"
    prediction: bool = False
    record: bool = False
    body: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    cached: int | None = None

    def __str__(self) -> str:
        return f"{self.server}: {self.name}"


def _load() -> list[Case]:
    return [
        Case(path.stem, **case)
        for path in sorted(FOLDER.glob("*.json"))
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]
    ]


CASES = _load()


def cases(which: Callable[[Case], Any]) -> pytest.MarkDecorator:
    """Return a parametrisation over those of the cases that ``which`` names."""
    return pytest.mark.parametrize("case", [case for case in CASES if which(case)], ids=str)


def check(found: Speculation | None, expected: dict[str, Any] | None) -> None:
    """Compare field by field; what is not expected must be unknown."""
    if expected is None:
        assert found is None
        return
    assert found is not None
    for each in fields(Speculation):
        wanted = expected.get(each.name)
        value = getattr(found, each.name)
        if isinstance(wanted, list):
            assert value == pytest.approx(tuple(wanted)), each.name
        elif isinstance(wanted, float):
            assert value == pytest.approx(wanted), each.name
        else:
            assert value == wanted, each.name
