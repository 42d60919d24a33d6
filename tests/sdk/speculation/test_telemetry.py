"""Each dialect becomes one record; what a server does not tell, or tells wrongly, is unknown, never zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.speculation.telemetry import recognise
from specclient.types.chat import ChatCompletion
from specclient.types.usage import Speculation

#: The sample of vLLM's documentation (docs/features/speculative_decoding/acceptance_metrics.md).
VLLM = {
    "mean_acceptance_length": 1.2326,
    "draft_acceptance_rate": 0.0775,
    "acceptance_histogram": [39, 1, 0, 3],
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129,
    "num_spec_tokens": 3,
}
#: llama.cpp's server, from its README.
LLAMA_CPP = {"cache_n": 236, "prompt_n": 1, "predicted_n": 35, "draft_n": 60, "draft_n_accepted": 41}


def predicted(accepted, rejected):
    details = {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}
    return {"usage": {"completion_tokens": 77, "prompt_tokens": 124, "completion_tokens_details": details}}


def test_vllm():
    found = recognise({"metrics": {"speculative_decoding": VLLM}})
    assert (found.drafted, found.accepted, found.steps, found.source) == (129, 10, 43, "metrics")
    assert found.acceptance_rate == pytest.approx(VLLM["draft_acceptance_rate"], abs=1e-4)
    assert found.mean_accepted_length == pytest.approx(VLLM["mean_acceptance_length"], abs=1e-4)
    assert found.per_position == (4 / 43, 3 / 43, 3 / 43)
    assert found.method is None  # it does not say


def test_vllm_positions_are_unknown_where_some_rounds_drafted_less():
    found = recognise({"metrics": {"speculative_decoding": VLLM | {"num_draft_tokens": 120}}})
    assert found.drafted == 120
    assert found.per_position is None


@pytest.mark.parametrize("histogram", [None, [39, 1], [39, 1, 0, "3"], "x", [40, 1, 0, 3]])
def test_vllm_with_an_unfit_histogram_keeps_the_rest(histogram):
    found = recognise({"metrics": {"speculative_decoding": VLLM | {"acceptance_histogram": histogram}}})
    assert found.accepted == 10
    assert found.per_position is None


def test_vllm_null_for_several_answers_is_unknown():
    assert recognise({"metrics": {"speculative_decoding": None}}) is None
    assert recognise({"metrics": None}) is None


def test_llama_cpp():
    assert recognise({"timings": LLAMA_CPP}) == Speculation(
        drafted=60, accepted=41, acceptance_rate=41 / 60, source="timings"
    )


def test_llama_cpp_leaves_the_keys_out_where_it_did_not_draft():
    assert recognise({"timings": {"prompt_n": 1, "predicted_n": 35}}) is None


def test_predictions_are_kept_apart_from_drafts():
    assert recognise(predicted(6, 4)) == Speculation(
        method="prediction", predicted_accepted=6, predicted_rejected=4, source="usage"
    )


def test_zero_and_zero_mean_something_only_where_a_prediction_was_sent():
    assert recognise(predicted(0, 0)) is None
    found = recognise(predicted(0, 0), predicted=True)
    assert (found.predicted_accepted, found.predicted_rejected) == (0, 0)
    assert recognise(predicted(None, None), predicted=True) is None
    assert recognise({"usage": {"completion_tokens": 5}}, predicted=True) is None


def test_drafts_and_a_prediction_together():
    found = recognise(predicted(6, 4) | {"timings": LLAMA_CPP})
    assert (found.drafted, found.accepted, found.predicted_accepted, found.predicted_rejected) == (
        60,
        41,
        6,
        4,
    )
    assert found.source == "timings, usage"
    assert found.method is None


def test_a_decoded_answer_is_read_like_its_body():
    body = {"choices": [], "timings": LLAMA_CPP, "metrics": {"speculative_decoding": VLLM}} | predicted(6, 4)
    assert recognise(ChatCompletion.model_validate(body)) == recognise(body)


@pytest.mark.parametrize(
    "answer", [{}, None, [], "text", {"usage": None}, {"timings": []}, {"metrics": "none"}]
)
def test_nothing_told_is_nothing(answer):
    assert recognise(answer, predicted=True) is None


def test_a_drafter_that_drafted_nothing_has_no_rate():
    found = recognise({"timings": {"draft_n": 0, "draft_n_accepted": 0}})
    assert (found.drafted, found.acceptance_rate) == (0, None)


@pytest.mark.parametrize(
    "timings",
    [
        {"draft_n": 5, "draft_n_accepted": 6},
        {"draft_n": -1, "draft_n_accepted": -2},
        {"draft_n": "5", "draft_n_accepted": True},
        {"draft_n": float("nan")},
    ],
)
def test_figures_that_cannot_be_right_count_as_not_given(timings):
    assert recognise({"timings": timings}) is None


def test_whole_numbers_written_as_fractions_are_counts():
    assert recognise({"timings": {"draft_n": 4.0, "draft_n_accepted": 1.0}}).acceptance_rate == 0.25


anything = st.none() | st.booleans() | st.integers(-5, 50) | st.floats() | st.text(max_size=3) | st.just([1])


@given(
    draft=st.fixed_dictionaries({}, optional=dict.fromkeys(LLAMA_CPP, anything)),
    metrics=st.fixed_dictionaries({}, optional=dict.fromkeys(VLLM, anything)),
    prediction=st.tuples(anything, anything),
    sent=st.booleans(),
)
def test_no_answer_breaks_it_and_no_figure_is_absurd(draft, metrics, prediction, sent):
    answer = predicted(*prediction) | {"timings": draft, "metrics": {"speculative_decoding": metrics}}
    found = recognise(answer, predicted=sent)
    if found is None:
        return
    for count in (
        found.drafted,
        found.accepted,
        found.steps,
        found.predicted_accepted,
        found.predicted_rejected,
    ):
        assert count is None or (type(count) is int and count >= 0)
    assert found.acceptance_rate is None or 0 <= found.acceptance_rate <= 1
    assert found.mean_accepted_length is None or found.mean_accepted_length >= 1
    assert found != Speculation()
