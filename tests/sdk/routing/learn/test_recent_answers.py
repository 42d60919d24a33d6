"""The newest answers of routes, as budgets read them."""

from __future__ import annotations

from typing import Any

import pytest
from finished_calls import call, estimates

from specclient.routing.learn import recent_answers
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.recent_answers import RecentAnswers
from specclient.types.usage import Usage


def test_the_longest_of_the_newest_answers_of_a_route_counts() -> None:
    made = estimates(*[call(f"c{n}", tokens=n) for n in (900, 3, 40)], call("d", route="x/z", tokens=7))
    assert (made.longest("x/y"), made.longest("x/z"), made.longest("x/none")) == (900, 7, None)
    for number in range(50):
        made.observe(call(f"e{number}", tokens=5))
    assert made.longest("x/y") == 5


@pytest.mark.parametrize(
    "values", [{"status": "error"}, {"status": "cancelled"}, {"purpose": "draft"}, {"tokens": 0}]
)
def test_failed_and_partial_answers_do_not_count(values: dict[str, Any]) -> None:
    assert estimates(call(**values)).longest("x/y") is None


def test_the_pace_of_prompts_without_an_answer_is_that_of_the_slowest() -> None:
    without = {"usage": Usage(prompt=10, completion=0)}
    slow, slower, other = (
        call(engine_s=1.0, **without),
        call("d", engine_s=2.0, **without),
        call("e", engine_s=9.0),
    )
    made = estimates(slow, slower, other)
    assert made.prompt_pace("x/y") == 0.2
    assert estimates(call(**without)).prompt_pace("x/y") is None, "of a hosted call"


def test_reading_a_length_learns_nothing_and_loses_nothing() -> None:
    made = estimates(call(tokens=100))
    assert made.longest("x/y") == 100
    assert made.predict("x/y").evidence == 1
    assert made.longest("x/y") == 100


def test_a_sample_that_is_learned_from_counts_too() -> None:
    made = estimates()
    sample = CallSample.of(call(tokens=70))
    assert sample is not None
    made.learn(sample)
    assert made.longest("x/y") == 70


def test_the_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_answers, "_ROUTES", 2)
    answers = RecentAnswers()
    for route in ("a", "b", "c"):
        answers.note_call(call(route=f"x/{route}"))
    assert [answers.longest(f"x/{route}") for route in ("a", "b", "c")] == [None, 100, 100]
