"""Masks that CUDA's attention kernels can read, and the kernels that masked calls may use."""

from __future__ import annotations

import pytest
import torch
from specclient_local.model import attention_backends, eager_passes, weights
from specclient_local.model.attention_backends import aligned_mask, masked_attention
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.token_tree import TokenTree

ALIGNMENT = 16
"""Bytes that the memory-efficient kernel reads at once."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("context", [96, 101])
@torch.inference_mode()
def test_masks_on_a_device_are_aligned_at_every_position(checkpoint, monkeypatch, dtype, context):
    monkeypatch.setattr(weights, "check_values", lambda *_: None)  # meta tensors have no values
    folder = checkpoint(kind="mistral", sliding_window=24)
    runner = DecoderRunner.load(folder, dtype=dtype, slots=1, context=context, device="meta")
    branching = TokenTree()
    for parent, token in [(-1, 7), (-1, 8), (0, 9)]:
        branching.add(parent, token)
    for start in range(40, 57):
        for part in (SlotInput(0, [1]), SlotInput(0, [1, 2, 3]), SlotInput(0, [1], branching)):
            runner.assume_length(0, start)
            span = runner._span(part, 0, [])
            for mask in (span.mask, span.window_mask):
                each = mask.element_size()
                assert mask.storage_offset() * each % ALIGNMENT == 0
                assert mask.stride(0) * each % ALIGNMENT == 0


def test_masks_on_a_cpu_are_not_copied():
    table = torch.zeros(4, 200)
    view = table[:2, 7:71]
    assert aligned_mask(view) is view


def test_masked_attention_on_cuda_does_not_use_cudnn():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with masked_attention(torch.device("cuda:0")):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() == before
    with masked_attention(torch.device("cpu")):
        assert torch.backends.cuda.cudnn_sdp_enabled() == before


def test_passes_restrict_the_kernels_of_their_device(checkpoint, monkeypatch):
    used = []
    monkeypatch.setattr(
        eager_passes, "masked_attention", lambda device: used.append(device) or masked_attention(device)
    )
    monkeypatch.setattr(attention_backends, "sdpa_kernel", None)  # never needed on a CPU
    runner = DecoderRunner.load(checkpoint(), dtype="bfloat16", slots=1, context=64)
    runner.prefill(0, [5, 6, 7])
    assert used == [torch.device("cpu")]
