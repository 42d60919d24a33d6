"""Priors: published speeds, those that size and hardware imply, and their weight beside measurements."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from specclient import Settings
from specclient.client.core import ClientCore
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.priors import PRIORS, RoutePrior
from specclient.routing.prior_catalogue import PriorCatalogue, hardware_prior

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOCAL = {
    "big": {"path": "meta-llama/Llama-3.1-8B-Instruct", "draft": "meta-llama/Llama-3.2-1B-Instruct"},
    "alone": {"path": "meta-llama/Llama-3.1-8B-Instruct", "device": "cuda:1"},
    "odd": {"path": "/models/mine", "device": "cpu"},
    "other": {"path": "org/some-7b", "device": "tpu"},
}


def _catalogue() -> PriorCatalogue:
    return PriorCatalogue(Settings.model_validate({"local": {"models": LOCAL}}))


def test_published_speeds_by_provider_and_size() -> None:
    priors = _catalogue()
    large, small = priors.get("groq/llama-3.3-70b-versatile"), priors.get("groq/llama-3.1-8b-instant")
    assert large is not None
    assert small is not None
    assert (large.ttft_s, 1 / large.token_s) == pytest.approx((0.15, 300))
    assert 1 < large.token_s / small.token_s < 70 / 8
    assert large.first_s(20_000) == pytest.approx(1.15)
    for route in ("openai/gpt-4.1", "groq/whisper", "nobody/llama-70b", "openai/o3-70big"):
        assert priors.get(route) is None
    assert priors.get("local/demo") == PRIORS["local/demo"]


def test_size_and_hardware_imply_a_local_models_speed() -> None:
    priors = _catalogue()
    slow, fast = priors.get("local/big"), priors.get("local/alone")
    assert slow is not None
    assert fast is not None
    assert slow.token_s == pytest.approx(16 / 30)
    assert slow.token_s > 10 * fast.token_s
    assert 0 < (slow.cost_ratio or 0) < 1
    assert fast.cost_ratio is None
    assert [priors.get(f"local/{name}") for name in ("odd", "other", "missing")] == [None] * 3
    assert hardware_prior(8, "tpu") is None


def test_a_published_speed_counts_as_much_as_two_calls() -> None:
    prior = RoutePrior(0.2, 0.01, prompt_token_s=0.0001, calls=2)
    estimates = Estimator(priors={"a/m": prior}, now=lambda: NOW)
    assert estimates.of("a/m", "chat", prompt_tokens=10_000).ttft_s == pytest.approx(1.2, rel=0.1)
    seen = []
    for number in range(12):
        estimates.learn(
            CallSample(
                route="a/m", at=NOW.timestamp() - 60 + number, task="chat", ttft_s=0.4, latency_s=3.4,
                prompt_tokens=10, completion_tokens=100,
            )
        )  # fmt: skip
        seen.append(estimates.of("a/m", "chat", prompt_tokens=10).token_s or 0.0)
    assert seen[0] < 0.012
    assert seen[-1] == pytest.approx(0.03, rel=0.1)
    grown = estimates.of("a/m", "chat", prompt_tokens=10_000).ttft_s
    assert grown is not None
    assert grown > 3 * 0.4, "first tokens of one length leave the growth as published"


def test_a_clients_routes_have_priors() -> None:
    tables = {"ledger": "off", "candidates": ["groq/llama-3.3-70b-versatile"]}
    core = ClientCore({"config": Settings.model_validate(tables), "api_key": "k"})
    estimate = core.shared.estimates.of("groq/llama-3.3-70b-versatile")
    assert estimate.assumed
    assert estimate.token_s == pytest.approx(1 / 300)
