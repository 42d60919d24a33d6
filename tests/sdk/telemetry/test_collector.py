"""Telemetry collection: each format gives one record; missing or impossible figures are unknown, not zero."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_bodies import CASES, Case, cases, check

from specclient.telemetry import formats
from specclient.telemetry.collector import TelemetryCollector, extract_speculation
from specclient.telemetry.formats import TELEMETRY_FORMATS
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.usage import Speculation

LLAMA_CPP = {"cache_n": 236, "prompt_n": 1, "predicted_n": 35, "draft_n": 60, "draft_n_accepted": 41}
VLLM = {
    "mean_acceptance_length": 2.0,
    "draft_acceptance_rate": 0.5,
    "acceptance_histogram": [1, 1, 1, 0],
    "num_spec_steps": 3,
    "num_accepted_draft_tokens": 3,
    "num_draft_tokens": 9,
    "num_spec_tokens": 3,
    "per_step_accepted": [2, 0, 1],
    "per_step_drafted": [3, 3, 3],
}
SGLANG = {
    "spec_accept_rate": 0.7,
    "spec_accept_length": 3.1,
    "spec_verify_ct": 16,
    "spec_num_correct_drafts": 34,
    "spec_num_proposed_drafts": 48,
    "spec_correct_drafts_histogram": [2, 2, 4, 8],
    "spec_accept_token_num": 34,
    "spec_draft_token_num": 48,
    "spec_accept_histogram": [2, 2, 4, 8],
}
TOTALS = {"acceptance_rate": "0.84", "total_accepted_draft_tokens": "42", "total_draft_tokens": "50"}
LM_STUDIO = {
    "draft_model": "small",
    "total_draft_tokens_count": 60,
    "accepted_draft_tokens_count": 41,
    "rejected_draft_tokens_count": 15,
    "ignored_draft_tokens_count": 4,
}
FIREWORKS = {
    "speculation-prompt-tokens": "40",
    "speculation-prompt-matched-tokens": 33,
    "speculation-generated-tokens": 50,
    "speculation-acceptance": "0:12/20,1:7/20",
}
OWN = {
    "method": "draft",
    "drafted": 60,
    "accepted": 41,
    "steps": 20,
    "acceptance_rate": 0.7,
    "mean_accepted_length": 3.05,
    "per_position": [0.9, 0.7],
    "predicted_accepted": 1,
    "predicted_rejected": 2,
}
PREDICTION = {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 4}


def predicted(accepted: Any, rejected: Any) -> dict[str, Any]:
    details = {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}
    return {"usage": {"completion_tokens": 77, "prompt_tokens": 124, "completion_tokens_details": details}}


# --- recorded bodies


@cases(lambda case: case.body)
def test_a_recorded_body_is_read(case: Case) -> None:
    check(extract_speculation(case.body, predicted=case.prediction, headers=case.headers), case.expected)


@cases(lambda case: case.operation == "chat" and case.body and not case.record)
def test_a_decoded_response_is_read_like_its_body(case: Case) -> None:
    answer = ChatCompletion.received(json.dumps(case.body).encode())
    check(extract_speculation(answer, predicted=case.prediction, headers=case.headers), case.expected)


@cases(lambda case: case.operation == "chat" and case.events)
def test_recorded_stream_chunks_are_read(case: Case) -> None:
    seen = TelemetryCollector(predicted=case.prediction)
    for event in case.events:
        seen.add_answer(ChatCompletionChunk.received(json.dumps(event).encode()))
    check(seen.speculation(), case.expected)


def test_every_format_of_the_table_occurs_in_a_recorded_body() -> None:
    unread = set(formats.FORMATS)
    for case in CASES:
        seen = TelemetryCollector(predicted=case.prediction)
        seen.add_answer(case.body)
        seen.add_headers(case.headers)
        if case.expected is not None:
            unread -= {formats.FORMATS[number] for number, _ in seen._reports}
    assert not unread
    sources = {case.expected["source"] for case in CASES if case.expected is not None}
    assert set(TELEMETRY_FORMATS) <= sources


# --- figures that a format leaves unknown


def test_vllm_positions_are_unknown_if_some_rounds_drafted_fewer_tokens() -> None:
    body = VLLM | {"num_draft_tokens": 8, "per_step_accepted": None}
    found = extract_speculation({"metrics": {"speculative_decoding": body}})
    assert found is not None
    assert (found.drafted, found.per_position) == (8, None)


@pytest.mark.parametrize("histogram", [None, [2, 1], [1, 1, 1, "x"], "x", [2, 1, 1, 0], [0, 3, 0, 0, 0]])
@pytest.mark.parametrize("steps", [None, [1], [1, 0, 1], [2, 0, 9], [2, 0, -1], "x", [[1], [2], [3]]])
def test_inconsistent_lists_do_not_affect_other_figures(histogram: Any, steps: Any) -> None:
    body = VLLM | {"acceptance_histogram": histogram, "per_step_accepted": steps}
    found = extract_speculation({"metrics": {"speculative_decoding": body}})
    assert found is not None
    assert (found.accepted, found.per_position) == (3, None)


def test_a_round_that_accepted_more_than_it_drafted_is_ignored() -> None:
    body = VLLM | {"per_step_drafted": [1, 4, 4], "acceptance_histogram": None}
    found = extract_speculation({"metrics": {"speculative_decoding": body}})
    assert found is not None
    assert (found.accepted, found.per_position) == (3, None)


def test_an_impossibly_long_accepted_length_is_ignored() -> None:
    assert extract_speculation({"choices": [{"avg_decoded_tokens_per_iter": 1e9}]}) is None
    details = {"spec_verify_ct": 7, "spec_num_correct_drafts": 10**9}
    assert extract_speculation({"sglext": {"spec_tokens_details": details}}) is None


def test_an_impossibly_long_draft_is_ignored() -> None:
    body = VLLM | {
        "per_step_drafted": [10**12, 0, 0],
        "per_step_accepted": [3, 0, 0],
        "num_draft_tokens": 10**12,
    }
    found = extract_speculation({"metrics": {"speculative_decoding": body}})
    assert found is not None
    assert found.per_position is None


def test_position_rates_count_only_rounds_that_drafted_the_position() -> None:
    body = VLLM | {"num_draft_tokens": 6, "per_step_drafted": [3, 1, 2]}
    found = extract_speculation({"metrics": {"speculative_decoding": body}})
    assert found is not None
    assert found.per_position == (2 / 3, 1 / 2, 0.0)


def test_lm_studios_drafted_count_is_of_verified_tokens() -> None:
    def drafted(**stats: Any) -> int | None:
        found = extract_speculation({"stats": LM_STUDIO | stats})
        return None if found is None else found.drafted

    assert drafted() == 56
    assert drafted(rejected_draft_tokens_count=None) == 56
    assert drafted(ignored_draft_tokens_count=None) == 56
    assert drafted(rejected_draft_tokens_count=None, ignored_draft_tokens_count=None) is None
    assert drafted(total_draft_tokens_count=50) is None  # fewer than were verified: inconsistent, so unknown


@pytest.mark.parametrize(
    "shares",
    [
        "0:12/20,2:7/20",
        "0:7/20,1:12/20",
        "0:21/20",
        "0:1/0",
        "0.6,0.35",
        "",
        "0:1",
        "5:1/2",
        0.6,
        [0.6],
        "٣:١/٢",
    ],
)
def test_invalid_fireworks_shares_are_ignored(shares: Any) -> None:
    assert extract_speculation({"perf_metrics": {"speculation-acceptance": shares}}) is None


def test_fireworks_older_header_name_is_read() -> None:
    headers = {"fireworks-speculation-prompt-tokens": "40", "fireworks-speculation-matched-tokens": "33"}
    found = extract_speculation({}, predicted=True, headers=headers)
    assert found is not None
    assert (found.predicted_accepted, found.predicted_rejected) == (33, 7)


def test_a_prediction_with_more_matched_than_sent_tokens_is_ignored() -> None:
    body = {"speculation-prompt-tokens": 5, "speculation-prompt-matched-tokens": 6}
    assert extract_speculation({"perf_metrics": body}, predicted=True) is None


def test_a_rate_alone_leaves_the_counts_unknown() -> None:
    assert extract_speculation({"usage": {"acceptance_rate": 0.71}}) == Speculation(
        acceptance_rate=0.71, source="sambanova"
    )


# --- predictions


def test_predictions_are_separate_from_drafts() -> None:
    assert extract_speculation(predicted(6, 4)) == Speculation(
        method="prediction", predicted_accepted=6, predicted_rejected=4, source="openai"
    )
    found = extract_speculation(predicted(6, 4) | {"timings": LLAMA_CPP})
    assert found == Speculation(
        drafted=60,
        accepted=41,
        acceptance_rate=41 / 60,
        predicted_accepted=6,
        predicted_rejected=4,
        source="llamacpp, openai",
    )


def test_zero_prediction_counts_are_kept_only_if_a_prediction_was_sent() -> None:
    assert extract_speculation(predicted(0, 0)) is None
    assert extract_speculation(predicted(0, None)) is None
    found = extract_speculation(predicted(0, 0), predicted=True)
    assert found is not None
    assert (found.predicted_accepted, found.predicted_rejected) == (0, 0)
    assert extract_speculation(predicted(None, None), predicted=True) is None
    assert extract_speculation({"usage": {"completion_tokens": 5}}, predicted=True) is None
    alone = extract_speculation(predicted(0, 0) | {"timings": LLAMA_CPP})
    assert alone is not None
    assert (alone.predicted_accepted, alone.source) == (None, "llamacpp")


# --- several formats in one response


def test_equal_figures_of_two_formats_are_not_added() -> None:
    body = {"metrics": {"speculative_decoding": VLLM}, "timings": {"draft_n": 9, "draft_n_accepted": 3}}
    found = extract_speculation(body)
    assert found is not None
    assert (found.drafted, found.accepted, found.steps) == (9, 3, 3)
    assert found.source == "vllm, llamacpp"


def test_counts_of_two_formats_are_not_combined_into_a_rate() -> None:
    body = {"timings": {"draft_n": 10}, "sglext": {"spec_tokens_details": {"spec_num_correct_drafts": 12}}}
    found = extract_speculation(body)
    assert found is not None
    assert (found.drafted, found.accepted, found.acceptance_rate) == (None, 12, None)


def test_a_rate_comes_from_the_same_format_as_its_counts() -> None:
    stated = {"draft_acceptance_rate": 0.9}
    found = extract_speculation({"metrics": {"speculative_decoding": stated}, "timings": LLAMA_CPP})
    assert found is not None
    assert (found.acceptance_rate, found.source) == (41 / 60, "vllm, llamacpp")


def test_figures_missing_in_one_format_come_from_another() -> None:
    body = {
        "choices": [{"index": 0, "avg_decoded_tokens_per_iter": 2.5}],
        "usage": {"acceptance_rate": 0.5},
        "timings": {"draft_n": 60, "draft_n_accepted": 41},
    }
    found = extract_speculation(body)
    assert found == Speculation(
        drafted=60,
        accepted=41,
        acceptance_rate=41 / 60,
        mean_accepted_length=2.5,
        source="tensorrt, llamacpp, sambanova",
    )


def test_repeated_figures_keep_the_last_value_and_ignore_null() -> None:
    seen = TelemetryCollector()
    for drafted in (3, 30):
        seen.add_answer({"timings": {"draft_n": drafted, "draft_n_accepted": 2}})
    seen.add_answer({"timings": None, "choices": []})
    found = seen.speculation()
    assert found is not None
    assert found.drafted == 30


# --- impossible figures


@pytest.mark.parametrize(
    "answer",
    [{}, None, [], "text", {"usage": None}, {"timings": []}, {"metrics": "none"}, {"choices": [None, 1]}],
)
def test_a_response_without_telemetry_gives_no_record(answer: Any) -> None:
    assert extract_speculation(answer, predicted=True) is None


def test_zero_drafted_tokens_give_no_acceptance_rate() -> None:
    found = extract_speculation({"timings": {"draft_n": 0, "draft_n_accepted": 0}})
    assert found is not None
    assert (found.drafted, found.acceptance_rate) == (0, None)


@pytest.mark.parametrize(
    "timings",
    [
        {"draft_n": 5, "draft_n_accepted": 6},
        {"draft_n": -1, "draft_n_accepted": -2},
        {"draft_n": "five", "draft_n_accepted": True},
        {"draft_n": float("nan")},
        {"draft_n": float("inf")},
        {"draft_n": 10**400},
        {"draft_n": 4.5},
        {"draft_n": "1_000"},
    ],
)
def test_impossible_counts_are_ignored(timings: Any) -> None:
    assert extract_speculation({"timings": timings}) is None


@pytest.mark.parametrize(
    "rate", [-0.1, 1.1, math.nan, math.inf, "high", "71%", True, None, [0.7], {"p": 1}, ""]
)
def test_impossible_rates_are_ignored(rate: Any) -> None:
    assert extract_speculation({"usage": {"acceptance_rate": rate}}) is None


@pytest.mark.parametrize("length", [0.99, -3, 0, math.nan, math.inf, "long", True, None, [2.0]])
def test_impossible_lengths_are_ignored(length: Any) -> None:
    assert extract_speculation({"choices": [{"avg_decoded_tokens_per_iter": length}]}) is None


def test_accepted_tokens_without_a_round_are_ignored() -> None:
    assert extract_speculation({"metrics": {"speculative_decoding": VLLM | {"num_spec_steps": 0}}}) is None


def test_counts_may_be_text_or_whole_floats() -> None:
    found = extract_speculation({"timings": {"draft_n": 4.0, "draft_n_accepted": " 1 "}})
    assert found is not None
    assert found.acceptance_rate == 0.25


# --- arbitrary input

numbers = st.integers(-3, 60) | st.floats() | st.sampled_from([10**30, "7", "0.5", "1e3", "nan", True, None])
anything = st.recursive(
    numbers | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def like(body: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of objects with these fields, whose values are valid or arbitrary."""
    each = {name: st.just(value) | anything for name, value in body.items()}
    return st.fixed_dictionaries({}, optional=each) | anything


CHOICE = {
    "index": 0,
    "meta_info": SGLANG,
    "avg_decoded_tokens_per_iter": 2.5,
    "speculative_decoding": TOTALS,
}
answers = st.fixed_dictionaries(
    {},
    optional={
        "metrics": st.fixed_dictionaries({"speculative_decoding": like(VLLM)}) | anything,
        "sglext": st.fixed_dictionaries({"spec_tokens_details": like(SGLANG)}) | anything,
        "meta_info": like(SGLANG),
        "speculative_decoding": like(TOTALS | {"num_spec_steps": 20}),
        "timings": like(LLAMA_CPP),
        "stats": like(LM_STUDIO),
        "perf_metrics": like(FIREWORKS | {"speculative_decoding": TOTALS}),
        "specclient": st.fixed_dictionaries({"speculation": like(OWN)}) | anything,
        **{name: st.just(value) | anything for name, value in TOTALS.items()},
        "choices": st.lists(like(CHOICE), max_size=3) | anything,
        "usage": like({"acceptance_rate": 0.5}) | like({"completion_tokens_details": PREDICTION}),
    },
)
headers = st.dictionaries(
    st.sampled_from([f"fireworks-{name}" for name in FIREWORKS]),
    st.sampled_from(["40", "33", "0:12/20,1:7/20"]) | st.text(max_size=6),
)


def check_possible(found: Speculation) -> None:
    """Assert that the figures are possible."""
    counts = (found.drafted, found.accepted, found.steps, found.predicted_accepted, found.predicted_rejected)
    assert all(count is None or (type(count) is int and count >= 0) for count in counts)
    if found.accepted is not None and found.drafted is not None:
        assert found.accepted <= found.drafted
    assert found.acceptance_rate is None or 0 <= found.acceptance_rate <= 1
    assert found.mean_accepted_length is None or 1 <= found.mean_accepted_length < math.inf
    assert found.per_position is None or (found.per_position and all(0 <= x <= 1 for x in found.per_position))
    names = (found.source or "").split(", ")
    assert set(names) <= set(TELEMETRY_FORMATS)
    assert len(set(names)) == len(names)
    assert found != Speculation(method=found.method, source=found.source)


@given(answer=answers | anything, headers=headers, sent=st.booleans())
@settings(max_examples=200)
def test_no_response_raises_or_gives_impossible_figures(
    answer: Any, headers: dict[str, str], sent: bool
) -> None:
    found = extract_speculation(answer, predicted=sent, headers=headers)
    if found is not None:
        check_possible(found)


@given(chunks=st.lists(answers, max_size=4))
def test_no_stream_raises_or_gives_impossible_figures(chunks: list[Any]) -> None:
    seen = TelemetryCollector()
    for chunk in chunks:
        seen.add_answer(chunk)
    if (found := seen.speculation()) is not None:
        check_possible(found)
