"""The end of an error about an unknown name."""

from __future__ import annotations

import pytest

from specclient.runtime.allowed_names import allowed_names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("methd", "did you mean 'method'? Allowed are path, method"),
        ("colour", "allowed are path, method"),
        ("", "allowed are path, method"),
    ],
)
def test_a_near_name_is_suggested_before_all_allowed_ones(name: str, expected: str) -> None:
    assert allowed_names(name, ["path", "method"]) == expected
