"""Checkpoints in 4 bits go to the packed form with their own numbers; other layouts are dequantised."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack

import pytest
import torch
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.dequantisation import StoredMatrices
from specclient_local.model.int4_rows import int4_parts, int4_rows
from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import PackedWeights, interleave_gates, scratch_for_rows
from specclient_local.model.stored_format import StoredFormat
from specclient_local.model.weights import layer_weights, load_weights, tensor_reader
from stored_formats import COMPRESSED, FORMATS, PACKED, groups, packed, quantised

from specclient.errors import CheckpointError

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler")

SHAPE = {"hidden_size": 64, "intermediate_size": 96, "spread": 0.2}
IDS = list(range(5, 30))


def symmetric(weight, group, extremes=False):
    """Return numbers from 0 to 15 ``[out, in]``, scales in bfloat16, and the weight that they make."""
    blocks = weight.view(len(weight), -1, group)
    scale = (blocks.abs().amax(-1) / 7).to(torch.bfloat16).float()
    numbers = (blocks / scale[..., None]).round().clamp(-8, 7) + 8
    if extremes:  # the scale is then found again by rounding
        numbers[..., 0] = 0
    exact = ((numbers - 8) * scale[..., None]).view(weight.shape)
    return numbers.view(weight.shape), scale, exact


def asymmetric(weight, group=32):
    """Return the same and zero points ``[out, groups]`` from 1 to 15."""
    blocks = weight.view(len(weight), -1, group)
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    scale = ((high - low) / 14).to(torch.bfloat16).float()
    zeros = (-low / scale).round().clamp(1, 15)
    numbers = ((blocks / scale[..., None]).round() + zeros[..., None]).clamp(0, 15)
    exact = ((numbers - zeros[..., None]) * scale[..., None]).view(weight.shape)
    return numbers.view(weight.shape), scale, zeros, exact


def gptq(weight, group=32, turned=False):
    numbers, scale, exact = symmetric(weight, group)
    order = torch.arange(weight.shape[1]) // group
    tensors = {
        "qweight": packed(numbers, 4).t(),
        "qzeros": packed(torch.full((scale.shape[1], len(weight)), 7), 4),
        "scales": scale.t().half(),
        "g_idx": (order.flip(0) if turned else order).int(),
    }
    return tensors, exact


def gptq_with_zeros(weight):
    numbers, scale, zeros, exact = asymmetric(weight)
    tensors = {
        "qweight": packed(numbers, 4).t(),
        "qzeros": packed(zeros.t() - 1, 4),
        "scales": scale.t().half(),
    }
    return tensors | {"g_idx": (torch.arange(weight.shape[1]) // 32).int()}, exact


def columns(rows):
    return packed(rows.reshape(len(rows), -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].flatten(1), 4)


def awq(weight, group=32):
    numbers, scale, exact = symmetric(weight, group)
    zeros = columns(torch.full((scale.shape[1], len(weight)), 8.0))
    return {"qweight": columns(numbers.t()), "qzeros": zeros, "scales": scale.t().half()}, exact


def awq_with_zeros(weight):
    numbers, scale, zeros, exact = asymmetric(weight)
    return {"qweight": columns(numbers.t()), "qzeros": columns(zeros.t()), "scales": scale.t().half()}, exact


def compressed_with_zeros(weight):
    numbers, scale, zeros, exact = asymmetric(weight)
    stored = {"weight_packed": packed(numbers, 4), "weight_scale": scale.to(torch.bfloat16)}
    return stored | {"weight_zero_point": packed(zeros.t(), 4).t().contiguous()}, exact


def compressed(weight, group=32):
    numbers, scale, exact = symmetric(weight, group)
    return {"weight_packed": packed(numbers, 4), "weight_scale": scale.to(torch.bfloat16)}, exact


GPTQ = {"quant_method": "gptq", "bits": 4}
KEPT = {
    "gptq": (gptq, GPTQ),
    "awq": (awq, {"quant_method": "awq", "bits": 4}),
    "compressed-tensors": (compressed, COMPRESSED | PACKED | groups(4, group_size=32)),
    "gptq with zero points": (gptq_with_zeros, GPTQ),
    "awq with zero points": (awq_with_zeros, {"quant_method": "awq", "bits": 4}),
    "compressed-tensors with zero points": (
        compressed_with_zeros,
        COMPRESSED | PACKED | groups(4, group_size=32),
    ),
}
DEQUANTISED = {
    "smaller groups": (lambda w: gptq(w, group=16), GPTQ),
    "another order of inputs": (lambda w: gptq(w, turned=True), GPTQ),
    "8 bits": FORMATS["gptq 8 bits"],
}


def dequantised(rows):
    """Return the weights of rows of bytes."""
    pairs, scale, zeros = int4_parts(rows)
    numbers = torch.cat((pairs & 15, pairs >> 4), dim=-1).float() - zeros.float()[..., None]
    return (numbers * scale.float()[..., None]).flatten(1)


def products(linear, width):
    """Return the product of the identity, which is the matrix ``[out, in]`` that was packed."""
    return product(linear, torch.eye(width)).t()


def product(linear, x):
    run, x, found = library().specclient_linear, x.contiguous(), torch.empty(len(x), linear.outputs)
    scratch = scratch_for_rows([linear], len(x))
    run.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] + [ctypes.c_void_p] * 2 + [ctypes.c_int64]
    run(ctypes.addressof(linear), x.data_ptr(), len(x), found.data_ptr(), scratch.data_ptr(), 1)
    return found


@pytest.mark.parametrize("outputs", [64, 80, 24])
def test_panels_have_the_bytes_that_rounding_finds_for_numbers_that_fit(outputs):
    weight = torch.randn(outputs, 96, generator=torch.Generator().manual_seed(0))
    numbers, scale, exact = symmetric(weight, 32, extremes=True)
    rows = int4_rows(numbers, scale, torch.full_like(scale, 8))
    for arranged, inputs in ((None, 0), (interleave_gates, 0), (None, 128)):
        own, rounded = (PackedWeights([(2 * outputs + 64, 128)], "int4") for _ in range(2))
        one = own.linear(rows, None, arranged=arranged, inputs=inputs)
        other = rounded.linear(exact, None, arranged=arranged, inputs=inputs)
        assert (one.outputs, one.inputs, one.kind) == (other.outputs, other.inputs, other.kind)
        assert own.used == rounded.used
        if arranged is None and outputs % 16 == 0 and not inputs:
            assert torch.equal(own.memory[: own.used], rounded.memory[: own.used])
        width = one.inputs
        torch.testing.assert_close(products(one, width), products(other, width), atol=0, rtol=0)


@pytest.mark.parametrize("outputs", [64, 80, 24])
def test_products_with_zero_points_are_exact_and_the_same_in_any_batch(outputs):
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(n, 96, generator=generator) + 0.3 for n in (outputs, 13))
    numbers, scale, zeros, exact = asymmetric(weight)
    own = PackedWeights([(outputs, 96)], "int4")
    linear = own.linear(int4_rows(numbers, scale, zeros), None)
    size = -(-outputs // 16) * 16 * 3 * 19  # bytes for 32 weights
    assert own.used == -(-size // 64) * 64
    torch.testing.assert_close(products(linear, 96), exact, atol=1e-6, rtol=1e-6)
    found = product(linear, x)
    largest = x.view(13, 3, 32).abs().amax(-1, keepdim=True)
    rounded = ((x.view(13, 3, 32) * (127 / largest)).round() * largest / 127).view(13, 96)
    torch.testing.assert_close(found.double(), rounded.double() @ exact.double().t(), atol=1e-4, rtol=1e-4)
    for count in range(1, 13):
        assert torch.equal(product(linear, x[:count]), found[:count])


@pytest.mark.parametrize("name", KEPT)
def test_a_layer_keeps_the_numbers_and_scales_of_the_file(name, checkpoint, tmp_path):
    folder, exact = quantised(checkpoint(**SHAPE), tmp_path / "quantised", *KEPT[name])
    config = read_config(folder)
    expected = load_weights(exact, config).layers[1]
    with ExitStack() as stack:
        take = tensor_reader(folder, config, stack, torch.float32, "cpu", keep_int4=True)
        layer = layer_weights(take, 1, config)
    for field in ("qkv", "o", "gate_up", "down"):
        rows, wanted = getattr(layer, field), getattr(expected, field)
        assert rows.dtype == torch.uint8
        assert rows.shape == (len(wanted), wanted.shape[1] * 19 // 32), "halves of bytes, and 3 a group"
        assert torch.equal(dequantised(rows), wanted)


@pytest.mark.parametrize("name", KEPT)
@torch.inference_mode()
def test_logits_are_closer_than_those_of_matrices_that_are_rounded_again(name, checkpoint, tmp_path):
    """Rows are rounded to 8 bits in both; the reference is the dequantised path."""
    folder, exact = quantised(checkpoint(**SHAPE), tmp_path / "quantised", *KEPT[name])
    wanted, own, again = (
        load_model(path, ModelPlacement(quantize=kind), slots=1, context=64).read(0, IDS)
        for path, kind in ((folder, None), (folder, "int4"), (exact, "int4"))
    )
    assert (own - wanted).abs().mean() < 0.7 * (again - wanted).abs().mean()
    assert torch.nn.functional.cosine_similarity(own, wanted, dim=1).min() > 0.99


@pytest.mark.parametrize("name", DEQUANTISED)
@torch.inference_mode()
def test_other_layouts_are_dequantised_and_rounded_as_before(name, checkpoint, tmp_path):
    folder, _ = quantised(checkpoint(**SHAPE), tmp_path / "quantised", *DEQUANTISED[name])
    config = read_config(folder)
    with ExitStack() as stack:
        take = tensor_reader(folder, config, stack, torch.float32, "cpu", keep_int4=True)
        kept = layer_weights(take, 0, config)
    for field in ("qkv", "o", "gate_up", "down"):
        assert torch.equal(getattr(kept, field), getattr(load_weights(folder, config).layers[0], field))
    load_model(folder, ModelPlacement(quantize="int4"), slots=1, context=64).read(0, IDS)


def stored(tensors):
    """Return the matrices of a layer, each of which has these tensors."""
    return StoredMatrices(
        StoredFormat("gptq", zero_offset=1),
        lambda name: name.rpartition(".")[2] in tensors,
        lambda name: tensors[name.rpartition(".")[2]],
        lambda name: "model.safetensors",
    )


@pytest.mark.parametrize("groups", [1, 3, 93])
def test_one_scale_of_any_number_of_groups_is_repeated_for_each(groups):
    """93 is a number whose reciprocal's reciprocal is less in floating point."""
    weight = torch.randn(8, 32 * groups, generator=torch.Generator().manual_seed(0))
    tensors, exact = gptq(weight, group=32 * groups)
    rows = stored(tensors).int4_rows("model.layers.0.mlp.down_proj.weight", tuple(weight.shape))
    assert torch.equal(dequantised(rows), exact)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("scales", torch.ones(3, 64)),
        ("scales", torch.ones(1)),
        ("scales", torch.ones(2, 0)),
        ("qzeros", torch.tensor(7)),
        ("qzeros", torch.ones(0, 8)),
        ("qweight", torch.tensor(7)),
        ("g_idx", torch.zeros(0, dtype=torch.int32)),
        ("g_idx", torch.zeros(1, 5, dtype=torch.int32)),
    ],
    ids=lambda value: value if isinstance(value, str) else str(list(value.shape)),
)
def test_tensors_that_make_no_matrix_are_errors_of_one_line(name, tensor, checkpoint, tmp_path):
    def broken(weight):
        tensors, exact = gptq(weight)
        return tensors | {name: tensor.to(tensors[name].dtype).clone()}, exact

    folder, _ = quantised(checkpoint(**SHAPE), tmp_path / "quantised", broken, GPTQ)
    with pytest.raises(CheckpointError) as caught:
        load_model(folder, ModelPlacement(quantize="int4"), slots=1, context=64)
    assert "\n" not in str(caught.value)
    assert "_proj" in str(caught.value)


@pytest.mark.parametrize("scale", [torch.nan, torch.inf])
def test_scales_that_are_not_finite_are_named(scale, checkpoint, tmp_path):
    def broken(weight):
        tensors, exact = gptq(weight)
        return tensors | {"scales": torch.full_like(tensors["scales"], scale)}, exact

    folder, _ = quantised(checkpoint(**SHAPE), tmp_path / "quantised", broken, GPTQ)
    with pytest.raises(CheckpointError, match=r"q_proj\.weight contains 128 non-finite numbers"):
        load_model(folder, ModelPlacement(quantize="int4"), slots=1, context=64)
