"""The growth of the time to the first token with the prompt is learned within few calls, at any level."""

from __future__ import annotations

import random

import pytest

from specclient.routing.learn.prefill import PrefillModel


def learned(
    each: float, count: int, *, spread: float = 0.3, seed: int = 1, level: float = 0.4
) -> PrefillModel:
    """Return the model of calls with prompts of 500 to 60,000 tokens, log-uniform, and log-normal noise."""
    made, rng = PrefillModel(), random.Random(seed)
    for _ in range(count):
        prompt = round(500 * 120 ** rng.random())
        made.add(prompt, level * (1 + each * prompt) * rng.lognormvariate(0, spread))
    return made


@pytest.mark.parametrize("each", [5e-5, 3e-4, 1.5e-3])
def test_the_growth_is_known_after_sixty_calls(each: float) -> None:
    for seed in range(8):
        made = learned(each, 60, seed=seed)
        for prompt in (2_000, 20_000, 100_000):
            usual = made.times(prompt) / made.times(5_000)
            assert usual == pytest.approx((1 + each * prompt) / (1 + each * 5_000), rel=0.35)
        assert made.spread < 0.6


def test_before_any_call_long_prompts_take_longer() -> None:
    made = PrefillModel()
    made.add(100, 0.4)
    assert made.times(20_000) / made.times(100) > 4
    assert made.prompt == pytest.approx(100)


def test_calls_without_growth_show_none() -> None:
    assert learned(0.0, 150).each == 0.0


def test_the_growth_does_not_depend_on_the_level() -> None:
    made, rng = PrefillModel(), random.Random(3)
    for n in range(240):
        level = 0.4 if n < 120 else 2.0  # the host became slower
        prompt = round(500 * 120 ** rng.random())
        made.add(prompt, level * (1 + 4e-4 * prompt) * rng.lognormvariate(0, 0.3))
    assert made.each == pytest.approx(4e-4, rel=0.4)


def test_an_unusual_prompt_could_well_take_less_than_expected_until_calls_show_it() -> None:
    few, many = learned(3e-4, 3), learned(3e-4, 200)
    for prompt in (100, 100_000):
        assert few.optimistic_speedup(prompt) > many.optimistic_speedup(prompt) >= 1
    assert many.optimistic_speedup(100_000) < 1.5
    assert PrefillModel().optimistic_speedup(5000) == many.optimistic_speedup(None) == 1


def test_prompts_of_unknown_length_teach_nothing() -> None:
    made = learned(3e-4, 50)
    before = made.each
    made.add(0, 9.0)
    made.add(500, 0.0)
    assert made.each == before
