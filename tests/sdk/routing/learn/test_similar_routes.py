"""Similar routes: a route that has not answered starts from what its provider and its model showed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.similar_routes import SimilarRoutes, model_billions
from specclient.routing.learn.speed import TypicalSpeed


def _known(**speeds: float) -> SimilarRoutes:
    """Return what routes showed, ``provider__model`` each with its seconds per token."""
    made = SimilarRoutes()
    for name, token_s in speeds.items():
        made.note(name.replace("__", "/"), 2, TypicalSpeed(0.5, token_s))
    return made


def _token_s(made: SimilarRoutes, route: str) -> float:
    prior = made.prior(route)
    assert prior is not None
    assert prior.similar
    return prior.token_s


def test_provider_and_model_each_have_an_effect() -> None:
    made = _known(slow__x=0.08, slow__y=0.08, slow__v=0.08, fast__y=0.01, fast__v=0.01, fast__z=0.01)
    assert _token_s(made, "slow/z") > 1.5 * _token_s(made, "fast/x") > 1.5 * 0.01
    by_model = _known(p__light=0.01, q__light=0.01, p__heavy=0.05, q__heavy=0.05)
    assert _token_s(by_model, "r/heavy") > 1.5 * _token_s(by_model, "r/light")


def test_one_similar_route_counts_for_less_than_many() -> None:
    rest = {f"o{n}__m{n}": 0.02 for n in range(4)}
    one = _token_s(_known(**rest, fast__a=0.005), "fast/new")
    many = _token_s(_known(**rest, fast__a=0.005, fast__b=0.005, fast__c=0.005), "fast/new")
    assert 0.005 < many < one < 0.02


def test_a_larger_model_of_a_provider_is_expected_to_be_slower() -> None:
    made = SimilarRoutes()
    made.note("groq/llama-3.1-8b-instant", 2, TypicalSpeed(0.2, 0.002))
    assert _token_s(made, "groq/llama-3.3-70b-versatile") == pytest.approx(0.002 * (70 / 8) ** 0.5)


def test_nothing_is_implied_by_strangers_or_for_this_machine() -> None:
    made = _known(a__m=0.01, local__n=0.01)
    assert made.prior("b/other") is None
    assert made.prior("local/m") is None
    assert made.prior("local/other") is None


def test_the_new_route_of_a_known_provider_is_estimated_and_its_calls_replace_that() -> None:
    estimates = Estimator(priors={})
    at = estimates._seconds() - 100

    def learn(route: str, token_s: float, count: int = 1) -> None:
        for number in range(count):
            estimates.learn(
                CallSample(route=route, at=at + number, ttft_s=0.3, latency_s=0.3 + 100 * token_s,
                           prompt_tokens=50, completion_tokens=100)
            )  # fmt: skip

    before = estimates.of("new/b")
    assert before.ttft_s is None
    learn("new/a", 0.01, 8)
    expected = estimates.of("new/b")
    assert expected.token_s == pytest.approx(0.01, rel=0.1)
    assert (expected.similar, expected.assumed, expected.evidence) == (True, True, 0)
    learn("new/b", 0.03, 12)
    measured = estimates.of("new/b")
    assert measured.token_s == pytest.approx(0.03, rel=0.1)
    assert not measured.similar


def test_a_published_speed_comes_before_that_of_similar_routes() -> None:
    estimates = Estimator(priors={"new/b": RoutePrior(0.1, 0.005)})
    now = estimates._seconds()
    for number in range(4):
        estimates.learn(
            CallSample(route="new/a", at=now + number, ttft_s=1, latency_s=9, completion_tokens=100)
        )
    assert estimates.of("new/b").token_s == 0.005
    assert not estimates.of("new/b").similar


@given(st.dictionaries(st.sampled_from(["a/m", "a/n", "b/m", "c/o"]), st.floats(1e-4, 10.0), min_size=1))
def test_a_prediction_is_within_the_range_of_what_was_seen(speeds: dict[str, float]) -> None:
    made = SimilarRoutes()
    for route, token_s in speeds.items():
        made.note(route, 4, TypicalSpeed(token_s, token_s))
    prior = made.prior("a/new")
    seen = [token_s for route, token_s in speeds.items() if route.startswith("a/")]
    assert (prior is None) == (not seen)
    if prior is not None:
        assert min(speeds.values()) * 0.999 <= prior.token_s <= max(speeds.values()) * 1.001


@pytest.mark.parametrize(
    ("name", "billions"), [("llama-3.3-70b-versatile", 70), ("smollm-135M", 0.135), ("gpt-4.1", None)]
)
def test_the_size_is_read_from_the_name(name: str, billions: float | None) -> None:
    assert model_billions(name) == billions
