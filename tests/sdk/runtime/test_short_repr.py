"""The repr of values from outside, whatever their size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.runtime.short_repr import short_repr

_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner)
)


@given(VALUES, st.integers(1, 200))
def test_it_is_the_beginning_of_the_repr(value: Any, most: int) -> None:
    text, found = repr(value), short_repr(value, most)
    if found.endswith("…") and len(found) == most + 1:
        assert len(text) > most
        # The quote of a cut text depends on the characters that are left.
        assert found[:-1] == text[:most] or "'" in text
    else:
        assert found == text


class Counted(list[Any]):
    """An array that counts the values that are read."""

    read = 0

    def __iter__(self) -> Any:
        for each in super().__iter__():
            self.read += 1
            yield each


def test_the_rest_of_a_large_value_is_not_read() -> None:
    value = Counted(["x" * 30] * 10_000)
    assert short_repr(value) == repr(list(value))[:80] + "…"
    assert value.read - 10_000 <= 4  # `list(value)` reads all of them


@pytest.mark.parametrize("container", [list, dict])
def test_deep_nesting_is_cut(container: type) -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value] if container is list else {"a": value}
    assert "…" in short_repr(value, 1000)
