"""Devices and dtypes: device names, placement of tensors, and mixed dtypes of draft and target."""

from __future__ import annotations

import pytest
import torch
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.loading.model_loader import (
    ModelPlacement,
    computes_in_float32,
    load_model,
    rounded_cache_dtype,
)
from specclient_local.model import weights
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.devices import available_devices, resolve_device
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree
from tiny_models import load, run, sequence

from specclient.errors import ConfigurationError


def accelerators(monkeypatch, cuda=0, mps=False):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


def test_auto_is_the_first_cuda_device_or_the_cpu_but_never_mps(monkeypatch):
    accelerators(monkeypatch, mps=True)
    assert available_devices() == ("cpu", "mps")
    assert resolve_device("auto") == torch.device("cpu")
    assert resolve_device("mps") == torch.device("mps")
    accelerators(monkeypatch, cuda=2)
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda:0")
    assert resolve_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["cuda:2", "mps", "cuda:07"])
def test_an_unavailable_device_is_rejected_with_the_available_ones(monkeypatch, name):
    accelerators(monkeypatch, cuda=2)
    with pytest.raises(
        ConfigurationError, match=f"device is '{name}', .*; available are cpu, cuda:0, cuda:1"
    ):
        resolve_device(name)


def test_the_engine_checks_the_devices_of_target_and_draft(checkpoint, monkeypatch):
    accelerators(monkeypatch)
    folder = checkpoint(eos_token_id=None)
    with pytest.raises(
        ConfigurationError, match="device is 'cuda', which is not available; available are cpu"
    ):
        load(folder, device="cuda")
    with pytest.raises(ConfigurationError, match="device is 'mps'"):
        load(folder, folder, draft_device="mps")


_OTHER = {"sliding_window": 24, "head_dim": 16, "pad_token_id": 1}


@pytest.mark.parametrize(
    "shape",
    [
        {"kind": "mistral", "sliding_window": None},
        {"kind": "mistral", "sliding_window": 24},
        {"kind": "gemma2", **_OTHER},
        {"kind": "gemma3_text", "layer_types": ["full_attention", "sliding_attention"], **_OTHER},
        {"kind": "olmo2", "pad_token_id": 1},
    ],
    ids=lambda shape: f"{shape['kind']}-{shape.get('sliding_window')}",
)
@torch.inference_mode()
def test_every_tensor_of_a_pass_is_on_the_models_device(checkpoint, monkeypatch, shape):
    """The device is ``meta``, on which an operation with a tensor of another device fails."""
    monkeypatch.setattr(weights, "check_values", lambda *_: None)  # meta tensors have no values
    folder = checkpoint(**shape)
    runner = DecoderRunner.load(folder, dtype="bfloat16", slots=2, context=96, device="meta")
    tree = TokenTree()
    for parent, token in [(-1, 7), (-1, 8), (0, 9)]:
        tree.add(parent, token)
    runner.prefill(0, list(range(40)))
    logits = runner.score_all([SlotInput(0, [5], tree), SlotInput(1, [5, 6], TokenTree.chain([7, 8]))])
    assert [(rows.device.type, rows.shape) for rows in logits] == [("meta", (4, 300)), ("meta", (3, 300))]
    runner.keep(0, 40, [1])
    assert runner.cache.rows.device.type == "meta"
    assert runner.cache.rows.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("dtype", "draft_dtype"), [("float32", "bfloat16"), ("bfloat16", "float32"), ("float16", "bfloat16")]
)
def test_draft_and_target_can_have_different_dtypes(checkpoint, dtype, draft_dtype):
    folder = checkpoint(intermediate_size=64, spread=0.2)
    target = load_model(folder, ModelPlacement(dtype), slots=1, context=64)
    draft = load_model(folder, ModelPlacement(draft_dtype), slots=1, context=64, exact=False)
    for runner, requested in ((target, dtype), (draft, draft_dtype)):
        device = runner.device.type
        computed = "float32" if computes_in_float32(runner.config, requested, device, "auto") else requested
        assert runner.decoder.dtype == getattr(torch, computed)
        rounded = rounded_cache_dtype(runner.config, requested, None, device)
        assert runner.cache.rows.dtype == getattr(torch, rounded or computed)
    expected = run(Speculator(target), sequence([7, 8, 9], method="plain", max_tokens=20))
    target.truncate(0, 0)
    request = sequence([7, 8, 9], max_tokens=20, draft_length=3)
    assert run(Speculator(target, {"draft": DraftModel(draft, 300)}), request) == expected
    assert request.counts.accepted > 5
