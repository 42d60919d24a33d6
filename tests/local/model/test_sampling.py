"""The sampling transform, against its definition and against transformers' warpers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specclient_local.model.sampling import all_distributions, distributions, probabilities
from specclient_local.request.params import SamplingParams
from specclient_local.request.sequence import NO_TOKEN, RandomStream

from specclient.errors import EngineError


def logits(rows=5, vocab=50, seed=0):
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [0, 1, 7, 50, 99])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.4, 1e-9])
def test_temperature_top_k_and_top_p_equal_transformers_warpers(temperature, top_k, top_p):
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    expected = TemperatureLogitsWarper(temperature)(None, logits().double())
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1.0:
        expected = TopPLogitsWarper(top_p)(None, expected)
    got = probabilities(logits(), SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p))
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, torch.softmax(expected, -1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("temperature", [0.7, 2.0])
@pytest.mark.parametrize("min_p", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("typical_p", [1.0, 0.95, 0.5, 1e-6])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (20, 1.0), (30, 0.8)])
def test_min_p_and_typical_p_follow_top_k_and_top_p_as_in_transformers(
    temperature, min_p, typical_p, top_k, top_p
):
    from transformers import (
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
        TypicalLogitsWarper,
    )

    requested = SamplingParams(
        temperature=temperature, min_p=min_p, typical_p=typical_p, top_k=top_k, top_p=top_p
    )
    expected = TemperatureLogitsWarper(temperature)(None, logits().double())
    expected = TopKLogitsWarper(top_k)(None, expected) if top_k else expected
    expected = TopPLogitsWarper(top_p)(None, expected) if top_p < 1.0 else expected
    expected = MinPLogitsWarper(min_p)(None, expected)
    expected = TypicalLogitsWarper(typical_p)(None, expected) if typical_p < 1.0 else expected
    got = probabilities(logits(), requested)
    torch.testing.assert_close(got, torch.softmax(expected, -1), atol=1e-12, rtol=0)


def test_nothing_is_sorted_without_truncating_parameters(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "sort", lambda *_, **__: pytest.fail("sorted"))
    monkeypatch.setattr(torch.Tensor, "masked_fill", lambda *_, **__: pytest.fail("masked"))
    (row,) = distributions(logits(rows=1), SamplingParams(temperature=1.0))
    assert (row > 0).all()


def test_temperature_zero_picks_the_first_of_the_largest_logits():
    rows = torch.tensor([[1.0, 3.0, 3.0], [5.0, 0.0, 1.0]])
    assert distributions(rows, SamplingParams(temperature=0.0)) == [1, 0]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-308, 5e-324])
def test_very_small_temperatures_equal_temperature_zero(temperature):
    rows = distributions(logits(), SamplingParams(temperature=temperature))
    for row, greedy in zip(rows, distributions(logits(), SamplingParams()), strict=True):
        assert row[greedy] == 1.0
        assert row.sum() == 1.0


def test_a_large_temperature_is_nearly_uniform():
    (row,) = distributions(logits(rows=1), SamplingParams(temperature=1e300))
    np.testing.assert_allclose(row, 1 / 50)


@pytest.mark.parametrize("top_p", [0.999, 0.9, 0.5, 1e-9])
@pytest.mark.parametrize("levels", [2, 7, 1000])
def test_the_nucleus_equals_that_of_a_full_stable_sort(top_p, levels):
    """Rounded logits have exact ties, also at the boundary of the nucleus."""
    for seed in range(20):
        rows = (logits(rows=3, vocab=400, seed=seed) * levels / 20).round() * 20 / levels
        p = torch.softmax(rows.double(), -1)
        ordered, index = p.sort(dim=-1, descending=True, stable=True)
        ordered[ordered.cumsum(-1) - ordered >= top_p] = 0.0
        expected = torch.zeros_like(p).scatter_(-1, index, ordered)
        got = probabilities(rows, SamplingParams(temperature=1.0, top_p=top_p))
        assert torch.equal(got, expected / expected.sum(-1, keepdim=True))


def test_the_nucleus_computation_sorts_only_a_part_of_the_vocabulary(monkeypatch):
    sizes, original = [], torch.Tensor.sort
    monkeypatch.setattr(torch.Tensor, "sort", lambda t, **kw: sizes.append(t.numel()) or original(t, **kw))
    probabilities(logits(rows=2, vocab=5000) * 3, SamplingParams(temperature=1.0, top_p=0.9))
    assert max(sizes) < 1000


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_non_finite_logits_raise(bad, temperature):
    rows = logits()
    rows[2, 7] = bad
    with pytest.raises(EngineError, match="logits are not finite; load with float32 or bfloat16"):
        distributions(rows, SamplingParams(temperature=temperature))
    masked = logits()
    masked[:, 7] = -torch.inf
    assert len(distributions(masked, SamplingParams(temperature=temperature))) == len(masked)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_allowed_tokens_raises_only_if_it_is_used(temperature):
    rows, requested = logits(), SamplingParams(temperature=temperature)
    rows[2] = -torch.inf
    with pytest.raises(EngineError, match=r"no token may come next.*loosen one"):
        distributions(rows, requested)
    (below,) = all_distributions([rows], [requested], guessed=True)
    assert below[2] == NO_TOKEN
    assert [type(row) for row in below].count(int) == (5 if temperature == 0.0 else 1)
    with pytest.raises(EngineError, match="no token may come next"):
        RandomStream(0).draw(below[2])
    rows[0] = -torch.inf
    (root,) = all_distributions([rows], [requested], guessed=True)
    assert "no token may come next" in str(root)
    rows[1] = torch.nan
    (broken,) = all_distributions([rows], [requested], guessed=True)
    assert "not finite" in str(broken)
