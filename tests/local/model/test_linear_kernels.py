"""Linear kernels: correct products, and a chooser that prefers kernels with batch-independent rows."""

from __future__ import annotations

import pytest
import torch
from specclient_local.model.linear_kernels import KERNELS, KernelChooser, is_row_stable


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("out", "width"), [(48, 32), (1024, 64), (700, 64), (7, 3)])
@pytest.mark.parametrize("rows", [1, 2, 5, 33])
def test_every_kernel_computes_a_linear_layer(name, out, width, rows):
    weight, bias, x = torch.randn(out, width), torch.randn(out), torch.randn(rows, width)
    expected = x.double() @ weight.double().T
    with torch.inference_mode():
        torch.testing.assert_close(KERNELS[name](weight, None)(x).double(), expected, atol=1e-4, rtol=1e-4)
        got = KERNELS[name](weight, bias)(x).double()
    torch.testing.assert_close(got, expected + bias.double(), atol=1e-4, rtol=1e-4)


def batch_dependent(kernel):
    """Return a kernel whose rows depend on the number of rows in the call."""
    return lambda weight, bias: lambda x: kernel(weight, bias)(x) + 1e-6 * len(x)


def test_a_target_gets_a_kernel_with_batch_independent_rows_if_there_is_one(monkeypatch):
    for name in ("plain", "columns"):
        monkeypatch.setitem(KERNELS, name, batch_dependent(KERNELS[name]))
    weight = torch.randn(64, 32)
    assert not is_row_stable(KERNELS["plain"](weight, None), weight)
    monkeypatch.setitem(KERNELS, "packed", lambda weight, bias: lambda x: torch.zeros(len(x), len(weight)))
    choose = KernelChooser(clock=iter(range(10**6)).__next__)
    choose(weight)
    assert choose.chosen == {(64, 32): "packed"}


def test_a_draft_gets_the_fastest_kernel(monkeypatch):
    now = [0.0]

    def slow(seconds, kernel):
        def build(weight, bias):
            def run(x):
                now[0] += seconds
                return kernel(weight, bias)(x)

            return run

        return build

    for name, seconds in (("plain", 3.0), ("packed", 2.0), ("columns", 1.0)):
        monkeypatch.setitem(KERNELS, name, slow(seconds, batch_dependent(KERNELS[name])))
    choose = KernelChooser(exact=False, clock=lambda: now[0])
    choose(torch.randn(8, 4))
    assert choose.chosen == {(8, 4): "columns"}


def test_a_kernel_that_the_machine_does_not_support_is_skipped(monkeypatch):
    def missing(weight, bias):
        raise RuntimeError("no such kernel")

    monkeypatch.setitem(KERNELS, "packed", missing)
    choose, weight, x = KernelChooser(), torch.randn(8, 4), torch.randn(3, 4)
    torch.testing.assert_close(choose(weight)(x), x @ weight.T)
    assert choose.chosen[8, 4] != "packed"


def test_rows_are_computed_one_by_one_if_no_kernel_has_batch_independent_rows(monkeypatch):
    for name in ("plain", "packed", "columns"):
        monkeypatch.setitem(KERNELS, name, batch_dependent(KERNELS["plain"]))
    weight, bias = torch.randn(700, 320), torch.randn(700)
    choose = KernelChooser()
    assert is_row_stable(choose(weight, bias), weight)
