"""Tests of the remaining time of a stage."""

from __future__ import annotations

from specclient_local.training.time_left import TimeLeft


def test_the_pace_since_a_stages_first_call_gives_the_remaining_time() -> None:
    now = 0.0
    timer = TimeLeft(lambda: now)
    assert timer.left(4, 10) is None
    now = 6.0
    assert timer.left(7, 10) == 6.0
    assert timer.left(0, 8) is None, "another stage"
    now = 7.0
    assert timer.left(1, 8) == 7.0
