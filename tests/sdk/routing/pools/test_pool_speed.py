"""The speed of a pool by load, prompt and task."""

from __future__ import annotations

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specclient.routing.pools.pool_speed import PoolSample, PoolSpeed
from specclient.types.criterion import PromptTask

TASKS = get_args(PromptTask)


def sample(
    n: float, token_s: float, *, task: str = "code", prompt: int = 100, first_s: float | None = 0.1
) -> PoolSample:
    first = 0.0 if first_s is None else first_s
    return PoolSample(n, task, prompt, 51, first_s, first + 50 * token_s)


def test_a_line_in_the_number_of_requests_is_learned() -> None:
    speed, dice = PoolSpeed(), random.Random(1)
    for _ in range(400):
        n = dice.choice((1, 2, 3, 5, 8, 13, 20))
        speed.add(sample(n, (0.010 + 0.002 * n) * dice.uniform(0.9, 1.1)))
    for n in (1, 2, 4, 6, 10, 16, 20):
        assert speed.token_s(n, "code") == pytest.approx(0.010 + 0.002 * n, rel=0.1)
    assert speed.token_s(40, "code") == pytest.approx(0.010 + 0.002 * 40, rel=0.25)


def test_a_flat_beginning_and_a_rise_are_learned() -> None:
    """As on a GPU, where steps take the same time until computation dominates."""
    speed = PoolSpeed()
    for _ in range(30):
        for n in (1, 2, 4, 8, 16, 32, 64):
            speed.add(sample(n, max(0.020, 0.002 * n)))
    assert speed.token_s(6, "code") == pytest.approx(0.020, rel=0.02)
    assert speed.token_s(48, "code") == pytest.approx(0.096, rel=0.02)


def test_tasks_have_factors_at_every_load() -> None:
    speed = PoolSpeed()
    for _ in range(40):
        speed.add(sample(2, 0.010, task="code"))
        speed.add(sample(8, 0.020, task="code"))
        speed.add(sample(2, 0.015, task="chat"))
    code, chat = (speed.token_s(8, task) for task in ("code", "chat"))
    assert code is not None
    assert chat is not None
    assert chat / code == pytest.approx(1.5, rel=0.12)


def test_long_prompts_delay_the_first_token() -> None:
    speed, dice = PoolSpeed(), random.Random(2)
    for _ in range(200):
        prompt = dice.choice((50, 500, 2000))
        speed.add(sample(2, 0.01, prompt=prompt, first_s=0.05 * (1 + 0.002 * prompt)))
    assert speed.seconds(2, "code", 4000, 1) == pytest.approx(0.05 * 9, rel=0.2)
    assert speed.seconds(2, "code", 50, 101) == pytest.approx(0.05 * 1.1 + 1.0, rel=0.1)


def test_answers_without_streams_teach_the_whole() -> None:
    speed = PoolSpeed()
    for _ in range(20):
        speed.add(sample(1, 0.01, first_s=None))
    assert speed.seconds(1, "code", 100, 51) == pytest.approx(0.5, rel=0.02)


def test_a_change_is_followed() -> None:
    speed = PoolSpeed()
    for _ in range(100):
        speed.add(sample(4, 0.01))
    for _ in range(100):
        speed.add(sample(4, 0.03))
    assert speed.token_s(4, "code") == pytest.approx(0.03, rel=0.2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 300),
            st.floats(1e-4, 10),
            st.sampled_from(TASKS),
            st.integers(0, 10**6),
            st.booleans(),
        ),
        max_size=25,
    )
)
def test_time_never_falls_with_the_load(calls: list[tuple[float, float, str, int, bool]]) -> None:
    speed = PoolSpeed()
    assert speed.seconds(1, None, 10, 10) is None
    for n, token_s, task, prompt, streamed in calls:
        speed.add(sample(n, token_s, task=task, prompt=prompt, first_s=0.1 if streamed else None))
    if calls:
        times = [speed.token_s(n, "code") for n in (0.5, 1, 1.5, 2, 7, 30, 200, 1000)]
        assert all(each is not None and each > 0 for each in times)
        assert times == sorted(times)


def test_the_factor_of_a_little_known_task_is_drawn_to_one() -> None:
    speed = PoolSpeed()
    for _ in range(40):
        speed.add(sample(2, 0.010, task="code"))
    speed.add(sample(2, 0.030, task="chat"))
    code, chat = (speed.token_s(2, task) for task in ("code", "chat"))
    assert code is not None
    assert chat is not None
    assert 1.1 < chat / code < 1.6, "one call that took three times as long counts as a fifth"


def test_a_mix_of_tasks_does_not_move_the_pool() -> None:
    """First many slow chats, then only code: the factor of chats explains them."""
    speed = PoolSpeed()
    for _ in range(60):
        speed.add(sample(2, 0.010, task="code"))
        speed.add(sample(2, 0.040, task="chat"))
    before = speed.token_s(2, "code")
    for _ in range(30):
        speed.add(sample(2, 0.040, task="chat"))
    assert before is not None
    assert speed.token_s(2, "code") == pytest.approx(before, rel=0.05)


def test_beyond_the_known_loads_a_step_grows_in_proportion_at_most() -> None:
    speed = PoolSpeed()
    for _ in range(20):
        speed.add(sample(4, 0.010))
        speed.add(sample(8, 0.100))
    known, beyond = speed.token_s(8, "code"), speed.token_s(16, "code")
    assert known is not None
    assert beyond == pytest.approx(2 * known, rel=0.01)


def test_one_outlier_moves_a_known_speed_little() -> None:
    speed = PoolSpeed()
    for _ in range(20):
        speed.add(sample(2, 0.010))
    speed.add(sample(2, 10.0))
    assert speed.token_s(2, None) == pytest.approx(0.010, rel=0.12)
