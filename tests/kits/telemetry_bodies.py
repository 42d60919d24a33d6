"""Test cases from ``tests/data/telemetry``: servers' responses and the speculation figures in them."""

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
    """One response of one server.

    Attributes:
        server: the name of the server, which is that of the file.
        name: the name of the case.
        expected: the known fields of the Speculation; None if the response has no speculation figures.
        operation: the operation of the request.
        prediction: whether the request has a ``prediction``.
        record: whether the response belongs to none of OpenAI's endpoints.
        body: the whole response; empty if there is none.
        events: the same response in chunks; empty if there are none.
        headers: the response's headers.
        cached: the number of prompt tokens read from a cache.
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
    """Return a parametrisation over the cases for which ``which`` is true."""
    return pytest.mark.parametrize("case", [case for case in CASES if which(case)], ids=str)


def check(found: Speculation | None, expected: dict[str, Any] | None) -> None:
    """Check all fields of a Speculation; fields that are not expected must be unknown."""
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
