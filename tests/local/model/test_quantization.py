"""Quantised weights: rounding of weights only, batch-independent rows, and unchanged speculation."""

from __future__ import annotations

import sys

import pytest
import torch
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.loading import engine_loader, model_loader
from specclient_local.loading.model_loader import ModelPlacement, load_model
from specclient_local.model.config import read_config
from specclient_local.model.cuda_graphs.triton_ops import TritonOps
from specclient_local.model.eager_passes import EagerPasses
from specclient_local.model.hf.runner import HfRunner
from specclient_local.model.linear_kernels import KernelChooser, is_row_stable
from specclient_local.model.native import passes
from specclient_local.model.quantization import fp8_rows, int8_parts, linear, quantize_weight
from specclient_local.model.weights import load_weights
from specclient_local.request.token_tree import TokenTree
from tiny_models import load, run, sequence
from torch.nn import functional as F

from specclient.errors import ConfigurationError

pytest.importorskip("torchao", reason="the extra quant is not installed")


def rounded(weight):
    """Return a weight after int8 quantisation with one scale per row."""
    numbers, scale = int8_parts(quantize_weight(weight, "int8"))
    return numbers.float() * scale[:, None].float()


def matrix(out=48, width=32):
    return torch.randn(out, width, generator=torch.Generator().manual_seed(1))


def test_int8_rounds_to_256_steps_of_each_row():
    weight = matrix()
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert (rounded(weight) - weight).abs().le(step * 0.51).all()
    assert (rounded(weight) != weight).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_int8_products_round_only_the_weight_and_have_batch_independent_rows(dtype):
    weight, x = matrix().to(dtype), torch.randn(9, 32, generator=torch.Generator().manual_seed(2)).to(dtype)
    bias = torch.arange(48).to(dtype)
    held = quantize_weight(weight, "int8")
    kernel = KernelChooser()(held, bias)
    expected = F.linear(x.float(), rounded(weight), bias.float())
    torch.testing.assert_close(
        kernel(x).float(), expected, atol=1e-4 if dtype == torch.float32 else 0.3, rtol=0
    )
    assert is_row_stable(kernel, weight)


VARIANTS = {
    "llama": {},
    "qwen2-tied": {"kind": "qwen2", "tie_word_embeddings": True},
    "llama-biases-odd-sizes": {"attention_bias": True, "mlp_bias": True, "intermediate_size": 50},
}


@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_a_quantised_model_equals_one_with_rounded_weights(checkpoint, name, monkeypatch):
    """By torch's passes; the reference is transformers' model with each matrix rounded to int8."""
    for module in (model_loader, passes):
        monkeypatch.setattr(module, "library", lambda: None)
    from transformers import AutoModelForCausalLM

    folder = checkpoint(**VARIANTS[name])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight = torch.nn.Parameter(rounded(module.weight.detach()))
    ids = torch.randint(0, 300, (24,), generator=torch.Generator().manual_seed(3)).tolist()
    expected = model(torch.tensor([ids])).logits[0]
    runner = load_model(folder, ModelPlacement(device="cpu", quantize="int8"), slots=1, context=64)
    runner.prefill(0, ids[:15])
    together = runner.score(0, ids[15:16], TokenTree.chain(ids[16:]))
    torch.testing.assert_close(together, expected[15:], atol=1e-4, rtol=0)
    runner.truncate(0, 16)
    alone = torch.cat([runner.score(0, [token]) for token in ids[16:]])
    assert torch.equal(alone, together[1:])


def test_a_tied_models_head_is_quantised_but_its_embedding_is_not(checkpoint):
    folder = checkpoint(kind="qwen2", tie_word_embeddings=True)
    weights = load_weights(folder, read_config(folder), quantize="int8")
    assert type(weights.embedding) is torch.Tensor
    assert int8_parts(weights.head) is not None
    assert int8_parts(weights.embedding) is None


@pytest.mark.parametrize(("runner", "kind"), [("own", "int8"), ("own", "int4"), ("hf", "int8")])
def test_greedy_speculation_with_quantised_models_equals_plain_decoding(checkpoint, runner, kind):
    """A quantised target with the original model as its draft, and vice versa."""
    folder = checkpoint(intermediate_size=64, spread=0.2)

    def opened(quantize, exact):
        return load_model(
            folder, ModelPlacement(quantize=quantize, runner=runner), slots=1, context=100, exact=exact
        )

    for target, draft in (
        (opened(kind, True), opened(None, False)),
        (opened(None, True), opened(kind, False)),
    ):
        expected = run(Speculator(target), sequence([7, 8, 9], method="plain", max_tokens=40))
        target.truncate(0, 0)
        for length in (1, 4):
            speculator = Speculator(target, {"draft": DraftModel(draft, 300)})
            request = sequence([7, 8, 9], max_tokens=40, draft_length=length)
            assert run(speculator, request) == expected
            assert request.counts.accepted > 10
            speculator.end(request)
            target.truncate(0, 0)
            draft.truncate(0, 0)


def test_gpt2_with_transposed_layers_is_quantised(checkpoint):
    folder = checkpoint(kind="gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=128, spread=0.3)
    ids = list(range(40, 60))
    plain, held = (
        HfRunner.load(folder, dtype="float32", slots=1, context=64, quantize=quantize)
        for quantize in (None, "int8")
    )
    difference = (plain.read(0, ids) - held.read(0, ids)).abs().max()
    assert 1e-4 < difference < 0.1 * plain.read(0, ids).abs().max()


def test_fp8_rounds_each_row_by_its_own_scale():
    x = matrix(5, 64) * torch.tensor([1e-3, 1.0, 1e3, 0.0, 7.0])[:, None]
    rows, scale = fp8_rows(x.bfloat16())
    assert (rows.dtype, rows.shape, scale.shape) == (torch.float8_e4m3fn, x.shape, (5, 1))
    error = (rows.float() * scale - x.bfloat16().float()).abs()
    assert (error <= x.abs() / 16 + scale / 512).all(), "three bits of mantissa, and subnormal numbers"
    assert rows.float().abs().amax(dim=1).tolist() == [448.0, 448.0, 448.0, 0.0, 448.0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("kind", "largest"), [("int8", 0.01), ("int4", 0.01), ("fp8", 0.05)])
@torch.inference_mode()
def test_products_with_quantised_weights_on_a_device_are_near_the_exact_ones(kind, largest):
    width = 1200 if kind == "int4" else 512  # no multiple of what a step reads
    weight = torch.randn(320, width, device="cuda").bfloat16()
    held = quantize_weight(weight, kind)
    for rows in (1, 16, 70):
        x, bias = (
            torch.randn(rows, width, device="cuda").bfloat16(),
            torch.randn(320, device="cuda").bfloat16(),
        )
        exact = F.linear(x.double(), held.dequantize().double(), bias.double())
        for product in (linear, TritonOps().product):
            found = product(x, held, bias).double()
            assert (found - exact).norm() / exact.norm() < largest


@pytest.mark.parametrize("given", [{"quantize": "fp8"}, {"draft_quantize": "fp8"}, {"tensor_parallel": 2}])
def test_quantisation_unsupported_by_the_device_is_rejected_with_advice(checkpoint, monkeypatch, given):
    monkeypatch.setattr(engine_loader, "load_model", lambda *_, **__: pytest.fail("weights were read"))
    options = {"quantize": "fp8"} if "tensor_parallel" in given else {}
    with pytest.raises(
        ConfigurationError, match=r"quantize is 'fp8', which cpu does not support; int8 .* CUDA"
    ):
        load(checkpoint(), checkpoint(num_hidden_layers=1), device="cpu", **given, **options)


def test_int4_without_a_compiler_computes_with_widened_weights(checkpoint, monkeypatch):
    for module in (model_loader, passes):
        monkeypatch.setattr(module, "library", lambda: None)
    runner = load_model(checkpoint(), ModelPlacement(device="cpu", quantize="int4"), slots=1, context=64)
    assert isinstance(runner.decoder.passes, EagerPasses)
    together = runner.score(0, [1, 2, 3], TokenTree.chain([4, 5]))
    runner.truncate(0, 3)
    assert torch.equal(torch.cat([runner.score(0, [token]) for token in (4, 5)]), together[1:])


def test_without_torchao_the_error_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(
        ConfigurationError, match=r"torchao is not installed: pip install 'specclient\[quant\]'"
    ):
        quantize_weight(matrix(), "int8")
