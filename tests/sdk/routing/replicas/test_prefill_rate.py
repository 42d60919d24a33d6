"""The seconds of prefill of one token."""

from __future__ import annotations

import random

import pytest

from specclient.routing.replicas.prefill_rate import PrefillRate


def test_it_is_found_beneath_waits() -> None:
    rate, dice = PrefillRate(), random.Random(2)
    for _ in range(600):
        tokens = dice.randrange(100, 8000)
        rate.add(tokens, 0.3 + tokens * 0.0005 + dice.expovariate(1.0))
    assert rate.token_s == pytest.approx(0.0005, rel=0.1)


def test_it_is_unknown_without_different_prompts() -> None:
    rate = PrefillRate()
    for _ in range(20):
        rate.add(100, 0.5)
    assert rate.token_s is None
    few = PrefillRate()
    few.add(100, 0.1)
    few.add(900, 0.9)
    assert few.token_s is None, "nor from two calls"
    falling = PrefillRate()
    for tokens in range(100, 1100, 50):
        falling.add(tokens, 2 - tokens / 1000)
    assert falling.token_s == 0.0
