"""The compiled check for numbers that are not finite says what torch says, wherever such a number is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from specclient_local.model.native import build, value_check
from specclient_local.model.native.build import library
from specclient_local.model.native.value_check import all_finite

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PIECE = 1 << 18  # bytes that one thread checks
pytestmark = pytest.mark.skipif(library() is None, reason="there is no C compiler")


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    return request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 7, 1000, PIECE, PIECE + 3])
def test_a_number_that_is_not_finite_is_found_anywhere(dtype: torch.dtype, count: int, threads: int) -> None:
    tensor = torch.linspace(-3, 3, count).to(dtype)
    assert all_finite(tensor)
    for at in {0, count // 3, count // 2, PIECE // dtype.itemsize, count - 1} & set(range(count)):
        for wrong in (torch.inf, -torch.inf, torch.nan):
            other = tensor.clone()
            other[at] = wrong
            assert not all_finite(other), (at, wrong)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_and_smallest_numbers_are_finite(dtype: torch.dtype) -> None:
    """Their sum is infinite, which must not be taken for an infinite number."""
    info = torch.finfo(dtype)
    tensor = torch.tensor([info.max, info.max, info.min, info.smallest_normal, 0.0, -0.0], dtype=dtype)
    assert all_finite(tensor)


def test_other_tensors_are_checked_by_torch() -> None:
    """Columns are not contiguous, float64 is of another width; both are checked, too."""
    matrix = torch.zeros(8, 8)
    matrix[3, 4] = torch.nan
    assert all_finite(matrix.T[0])
    assert not all_finite(matrix.T[4])
    assert not all_finite(torch.tensor([1.0, torch.inf], dtype=torch.float64))
    assert all_finite(torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_nothing_is_compiled_for_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("the library was asked for")

    refuse.cache_info = lambda: type("Info", (), {"currsize": 0})  # type: ignore[attr-defined]
    monkeypatch.setattr(build, "library", refuse)
    found: Callable[[torch.Tensor], bool] = value_check.all_finite
    assert found(torch.ones(3))
    assert not found(torch.tensor([torch.nan]))
