"""The sampling transform, against its definition and against transformers' warpers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specclient_local.config import SamplingParams
from specclient_local.model.sampling import distributions, probabilities


def logits(rows=5, vocab=50, seed=0):
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [0, 1, 7, 50, 99])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.4, 1e-9])
def test_it_equals_the_warpers_of_transformers(temperature, top_k, top_p):
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    expected = TemperatureLogitsWarper(temperature)(None, logits().double())
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1.0:
        expected = TopPLogitsWarper(top_p)(None, expected)
    got = probabilities(logits(), SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p))
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, torch.softmax(expected, -1), atol=1e-12, rtol=0)


def test_temperature_zero_is_the_first_of_the_largest():
    rows = torch.tensor([[1.0, 3.0, 3.0], [5.0, 0.0, 1.0]])
    assert distributions(rows, SamplingParams(temperature=0.0)) == [1, 0]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-308, 5e-324])
def test_it_is_also_the_limit_of_small_temperatures(temperature):
    rows = distributions(logits(), SamplingParams(temperature=temperature))
    for row, greedy in zip(rows, distributions(logits(), SamplingParams()), strict=True):
        assert row[greedy] == 1.0
        assert row.sum() == 1.0


def test_a_large_temperature_is_nearly_uniform():
    (row,) = distributions(logits(rows=1), SamplingParams(temperature=1e300))
    np.testing.assert_allclose(row, 1 / 50)
