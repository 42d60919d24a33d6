"""Products of pairs of bfloat16 and of int8 and int4 groups: numbers, layout and exact rows."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.int4_rows import GROUP_INPUTS
from specclient_local.model.native import build, packed_weights
from specclient_local.model.native.packed_weights import PackedWeights, scratch_for_rows
from specclient_local.model.native.structs import LinearStruct
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree

pytestmark = pytest.mark.skipif(build.library() is None, reason="there is no C compiler")

BFLOAT16 = pytest.param(
    None,
    marks=pytest.mark.skipif(
        build.library() is None or not packed_weights.multiplies_bfloat16(),
        reason="this processor does not multiply bfloat16",
    ),
)
LIMITS = {"int8": 128, "int4": 8}
SIZES = [(64, 32), (80, 40), (150, 100), (7, 5), (256, 321)]
"""Outputs and inputs: whole groups, single panels, and sizes that fill neither."""


def matrix(out: int, width: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(out, width, generator=torch.Generator().manual_seed(seed))


def product(
    linear: LinearStruct, x: torch.Tensor, threads: int = 1, library: ctypes.CDLL | None = None
) -> torch.Tensor:
    run = (library or build.library()).specclient_linear
    run.argtypes = [*(ctypes.c_void_p,) * 2, ctypes.c_int64, *(ctypes.c_void_p,) * 2, ctypes.c_int64]
    run.restype = None
    x, y = x.contiguous(), torch.empty(len(x), linear.outputs)
    scratch = scratch_for_rows([linear], len(x))
    run(ctypes.addressof(linear), x.data_ptr(), len(x), y.data_ptr(), scratch.data_ptr(), threads)
    return y


def packed(weight: torch.Tensor, kind: str | None, bias: torch.Tensor | None = None):
    panels = PackedWeights([tuple(weight.shape)], kind)
    return panels, panels.linear(weight, bias)


def unpacked(panels: PackedWeights, out: int, width: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers ``[out, groups, 32]`` and scales ``[out, groups]`` of a packed matrix."""
    groups, size = -(-width // GROUP_INPUTS), GROUP_INPUTS if kind == "int8" else GROUP_INPUTS // 2
    numbers, scales, at, done = [], [], 0, 0
    while done < out:
        side = 64 if done + 64 <= out else 16
        block = panels.memory[at : at + groups * side * (size + 2)].view(groups, side * (size + 2))
        values = block[:, : side * size].reshape(groups, size // 4, side, 4).permute(2, 0, 1, 3)
        values = values.reshape(side, groups, size).int()
        numbers.append(values if kind == "int8" else torch.cat((values & 15, values >> 4), dim=2))
        scales.append(block[:, side * size :].contiguous().view(torch.bfloat16).float().t())
        at, done = at + groups * side * (size + 2), done + side
    return torch.cat(numbers)[:out] - LIMITS[kind], torch.cat(scales)[:out]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", LIMITS)
def test_packed_weights_are_the_nearest_numbers_of_their_group(kind, size, dtype):
    out, width = size
    weight = matrix(out, width).to(dtype)
    panels, _ = packed(weight, kind)
    numbers, scales = unpacked(panels, out, width, kind)
    padded = torch.nn.functional.pad(weight.float(), (0, -width % GROUP_INPUTS)).view(numbers.shape)
    error, largest = (numbers * scales[..., None] - padded).abs(), padded.abs().amax(-1)
    step = largest / LIMITS[kind]
    assert (error <= step[..., None] * 1.6 + 1e-7).all(), "the opposite of the largest weight is one step off"
    near = padded.abs() < 0.7 * largest[..., None]
    assert (error <= step[..., None] * 0.51 + 1e-7)[near].all()
    if kind == "int4":  # smaller scales reduce the error of a group
        plain = (padded / step[..., None].clamp(min=1e-9)).round().clamp(-8, 7) * step[..., None]
        assert error.square().sum() < 0.95 * (plain - padded).square().sum() or width < GROUP_INPUTS


def rows_in_groups(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows as int8 numbers ``[rows, groups, 32]``, and their scales."""
    padded = torch.nn.functional.pad(x, (0, -x.shape[1] % GROUP_INPUTS)).view(len(x), -1, GROUP_INPUTS)
    largest = padded.abs().amax(-1)
    numbers = (padded * (127 / largest.clamp(min=1e-30))[..., None]).round()
    return numbers, largest / 127


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", LIMITS)
def test_products_of_groups_are_exact_sums_of_rounded_factors(kind, size):
    out, width = size
    bias, x = matrix(1, out, 3)[0], matrix(15, width, 2)
    panels, linear = packed(matrix(out, width), kind, bias)
    numbers, scales = unpacked(panels, out, width, kind)
    own, own_scales = rows_in_groups(x)
    dots = torch.einsum("rgi,ogi->rog", own.double(), numbers.double())
    expected = (dots * scales.double() * own_scales.double()[:, None]).sum(-1) + bias
    torch.testing.assert_close(product(linear, x).double(), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [BFLOAT16])
def test_products_of_pairs_are_sums_of_rounded_factors(kind, size):
    weight, x = matrix(*size).bfloat16(), matrix(15, size[1], 2)
    _, linear = packed(weight, kind, bias := matrix(1, size[0], 3)[0])
    expected = x.bfloat16().double() @ weight.double().t() + bias
    torch.testing.assert_close(product(linear, x).double(), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [BFLOAT16, *LIMITS])
def test_a_row_has_the_same_bits_in_any_product(kind):
    x = matrix(20, 321, 2)
    _, linear = packed(matrix(150, 321).bfloat16(), kind)
    alone = torch.cat([product(linear, row[None]) for row in x])
    for count in (*range(2, 15), 20):
        for threads in (1, 2):
            assert torch.equal(product(linear, x[:count], threads), alone[:count])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("kind", [BFLOAT16, *LIMITS])
def test_a_row_that_is_not_finite_gives_results_that_are_not_finite(kind, value):
    x = matrix(3, 40, 2)
    _, linear = packed(matrix(80, 40).bfloat16(), kind)
    x[1, 33] = value
    found = product(linear, x).isfinite()
    assert found[[0, 2]].all()
    assert not found[1].any()


@pytest.mark.parametrize("flag", ["-march=x86-64-v3", "-march=x86-64"])
def test_processors_without_dot_products_compute_the_same(monkeypatch, tmp_path: Path, flag):
    compiler = build._compiler()
    monkeypatch.setattr(build, "_TUNED", (flag,))
    monkeypatch.setattr(build, "_FLAGS", tuple("-O0" if each == "-O3" else each for each in build._FLAGS))
    try:
        build._compile(compiler, build._FOLDER / "entry_points.c", tmp_path / "other.so")
    except (OSError, build.subprocess.SubprocessError) as error:
        pytest.skip(f"this compiler has no {flag}: {error}")
    other = ctypes.CDLL(str(tmp_path / "other.so"))
    assert not other.specclient_multiplies_bfloat16()
    for kind in LIMITS:
        weight, x = matrix(150, 321), matrix(9, 321, 2)
        _, linear = packed(weight, kind)
        found = product(linear, x, library=other)
        torch.testing.assert_close(found, product(linear, x), atol=1e-5, rtol=1e-5)
        assert torch.equal(found[:1], product(linear, x[:1], library=other))


SHAPES = {
    "no width is whole groups": {
        "hidden_size": 36,
        "intermediate_size": 53,
        "vocab_size": 301,
        "head_dim": 6,
    },
    "biases": {"attention_bias": True, "mlp_bias": True, "hidden_size": 96, "intermediate_size": 160},
}


@pytest.mark.parametrize("kind", [BFLOAT16, *LIMITS])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_a_model_are_bit_identical_in_any_pass(checkpoint, shape, kind):
    runner = load_model(
        checkpoint(**SHAPES[shape]), ModelPlacement("bfloat16", "cpu", kind), slots=2, context=64
    )
    prompt = torch.randint(0, 300, (33,), generator=torch.Generator().manual_seed(2)).tolist()
    alone = torch.cat([runner.score(0, [token]) for token in prompt])
    for cut in (1, 5, 12, 32):
        for slot in (0, 1):
            runner.truncate(slot, 0)
        first = runner.score_all(
            [SlotInput(0, [3], TokenTree.chain([4, 5])), SlotInput(1, prompt[:cut], every=True)]
        )
        assert torch.equal(torch.cat([first[1], runner.read(1, prompt[cut:])]), alone)


@pytest.mark.parametrize(("kind", "largest"), [(None, 0.06), ("int8", 0.2), ("int4", 0.8)])
def test_logits_are_near_those_of_the_unrounded_model(checkpoint, kind, largest):
    folder = checkpoint(hidden_size=96, intermediate_size=160)
    ids = list(range(40))
    exact, found = (
        load_model(folder, ModelPlacement(dtype, "cpu", own), slots=1, context=64).read(0, ids)
        for dtype, own in (("float32", None), ("bfloat16", kind))
    )
    assert 0 < (found - exact).norm() / exact.norm() < largest
