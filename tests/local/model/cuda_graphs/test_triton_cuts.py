"""The kernels of top-k and top-p in Triton's interpreter, which needs no device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch
from specclient_local.model.cuda_graphs import device_verify, triton_cuts

triton_cuts._BLOCK = 8  # three blocks a row, the last one not full
torch.manual_seed(0)
logits = torch.randn(4, 2, 19) * 3
logits[:3, 1] = logits[:3, 1].round()
logits[3] *= 1e-6
logits[3, :, ::2] = -0.0

def numbers(*values, dtype=torch.double):
    return torch.tensor(values, dtype=dtype)

shaping = device_verify.SamplingTensors(
    numbers(0.0, 1.0, 1.3, 1.0), numbers(0.5, 0.8, 1.0, 0.4), numbers(0, 0, 5, 7, dtype=torch.long), True
)
for dtype in (torch.bfloat16, torch.float16):
    own = logits.to(dtype)
    p, highest = triton_cuts.cut_probabilities(own, shaping)
    q = device_verify.batch_probabilities(own, shaping)
    assert ((p > 0) == (q > 0)).all() and highest.equal(own.amax(-1).float())
    torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-9)
"""


def test_the_kernels_keep_the_tokens_of_the_sorted_rule():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
