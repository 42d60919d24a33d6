"""Copies of dataclass objects with other values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from specclient.runtime.replaced import replaced
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A class that checks its values."""

    low: int
    high: int = field(default=9, repr=False)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


def test_it_is_the_same_as_replace() -> None:
    request = Request(CHAT, "a/b", {"n": 1}, options=PerCallOptions(tags={"a": "b"}))
    assert replaced(request, model="c") == replace(request, model="c")
    assert replaced(request) == request
    assert request.model == "a/b"


def test_values_are_checked_again() -> None:
    assert replaced(Checked(low=1), low=2) == Checked(low=2)
    with pytest.raises(ValueError, match="above"):
        replaced(Checked(low=1), low=10)
    with pytest.raises(FrozenInstanceError):
        replaced(Checked(low=1)).low = 3  # type: ignore[misc]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError):
        replaced(Checked(low=1), middle=2)
