"""Prometheus counters: two readings give the speculation in between, or nothing if they are inconsistent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specclient.call.recorder import CallRecorder
from specclient.config import load
from specclient.prices.prices import Prices
from specclient.telemetry.formats import SERVER_METRICS
from specclient.telemetry.prometheus import counters_delta, parse_counters
from specclient.telemetry.server_metrics import metrics_url
from specclient.types import inference_methods
from specclient.types.chat import ChatCompletion
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import Speculation


def vllm(drafts: float, drafted: float, accepted: float, *positions: float, engine: int = 0) -> str:
    """Return a vLLM metrics page (v1/spec_decode/metrics.py) with other metrics, too."""
    labels = f'engine="{engine}",model_name="a \\"b\\", position=\\"9\\""'
    return "\n".join(
        [
            "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.",
            "# TYPE vllm:spec_decode_num_drafts_total counter",
            f"vllm:spec_decode_num_drafts_total{{{labels}}} {drafts}",
            f"vllm:spec_decode_num_drafts_created{{{labels}}} 1.7631e+09",
            f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {drafted}",
            f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {accepted} 1763740000000",
            *(
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {number}'
                for place, number in enumerate(positions)
            ),
            f"vllm:generation_tokens_total{{{labels}}} 900.0",
            "",
        ]
    )


TENSORRT = "trtllm_spec_decode_num_draft_tokens_total {}\ntrtllm_spec_decode_num_accepted_tokens_total {}\n"
TGI = (
    "# TYPE tgi_request_skipped_tokens histogram\n"
    'tgi_request_skipped_tokens_bucket{{le="0"}} 3\n'
    "tgi_request_skipped_tokens_sum {}\ntgi_request_skipped_tokens_count {}\n"
)
SGLANG = 'sglang:spec_verify_calls_total{{tp_rank="0"}} {}\nsglang:spec_accept_length{{tp_rank="0"}} 2.5\n'


def between(before: str, after: str) -> Speculation | None:
    return counters_delta(parse_counters(before), parse_counters(after))


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://host:8000/v1", "http://host:8000/metrics"),
        ("http://host:8000/v1/", "http://host:8000/metrics"),
        ("http://host:8000", "http://host:8000/metrics"),
        ("https://host/llm/v1?key=x", "https://host/llm/metrics"),
    ],
)
def test_the_metrics_url_is_derived_from_the_base_url(base_url: str, url: str) -> None:
    assert metrics_url(base_url) == url


def test_vllms_counters_are_read() -> None:
    found = between(vllm(10.0, 30.0, 12.0, 7.0, 4.0, 1.0), vllm(20.0, 60.0, 27.0, 15.0, 9.0, 3.0))
    assert found == Speculation(
        drafted=30,
        accepted=15,
        steps=10,
        acceptance_rate=0.5,
        mean_accepted_length=2.5,
        per_position=(0.8, 0.5, 0.2),
        source="metrics delta",
    )


def test_the_counters_of_a_servers_engines_are_summed() -> None:
    before = vllm(10, 30, 12, 7, 4, 1) + vllm(5, 15, 5, engine=1)
    after = vllm(14, 42, 18, 11, 5, 2) + vllm(6, 18, 7, engine=1)
    found = between(before, after)
    assert found is not None
    assert (found.drafted, found.accepted, found.steps) == (15, 8, 5)
    assert found.per_position is None  # not all engines report positions


def test_positions_are_unknown_if_some_rounds_drafted_fewer_tokens() -> None:
    found = between(vllm(0, 0, 0, 0, 0), vllm(10, 15, 9, 6, 3))
    assert found is not None
    assert (found.accepted, found.per_position) == (9, None)


def test_the_differently_defined_counters_of_vllms_old_engine_are_ignored() -> None:
    old = "vllm:spec_decode_num_emitted_tokens_total 5\nvllm:spec_decode_num_draft_tokens_total {}\n"
    assert between(old.format(3), old.format(9)) is None


def llama_cpp(drafts: str, drafted: str, accepted: str) -> str:
    values = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted}
    return "".join(f"llamacpp:spec_decode_num_{name}_total {value}\n" for name, value in values.items())


def test_llama_cpps_counters_are_read() -> None:
    found = between(llama_cpp("100", "300", "120"), llama_cpp("120", "360", "161"))
    assert found is not None
    assert (found.drafted, found.accepted, found.steps, found.mean_accepted_length) == (60, 41, 20, 3.05)


def test_rounded_large_counters_of_llama_cpp_are_ignored() -> None:
    found = between(llama_cpp("100", "1.23457e+06", "120"), llama_cpp("120", "1.23461e+06", "161"))
    assert found is not None
    assert (found.drafted, found.acceptance_rate, found.accepted) == (None, None, 41)
    assert between(llama_cpp("100", "999999", "120"), llama_cpp("120", "1e+06", "161")) is None


def tensorrt(kind: str, *positions: int) -> str:
    name = f"trtllm_spec_decode_{kind}_tokens_total"
    return "".join(f'{name}{{token_position="{at}",worker="0"}} {n}\n' for at, n in enumerate(positions))


def test_tensorrts_counters_per_finished_request_are_preferred() -> None:
    before = tensorrt("drafted", 10, 8) + tensorrt("accepted", 9, 1)
    after = tensorrt("drafted", 20, 13) + tensorrt("accepted", 14, 3)
    by_step = "trtllm_spec_decode_num_draft_tokens_total {}\n"
    assert between(before + by_step.format(1), after + by_step.format(90)) == Speculation(
        drafted=15, accepted=7, acceptance_rate=7 / 15, per_position=(0.5, 0.4), source="metrics delta"
    )


def test_a_position_missing_in_the_first_reading_counts_from_zero() -> None:
    before = tensorrt("drafted", 10) + tensorrt("accepted", 9)
    after = tensorrt("drafted", 20, 4) + tensorrt("accepted", 14, 1)
    found = between(before, after)
    assert found is not None
    assert (found.drafted, found.accepted, found.per_position) == (14, 6, (0.5, 0.25))


def test_tensorrts_counters_per_iteration_are_read() -> None:
    found = between(TENSORRT.format(50, 42), TENSORRT.format(100, 72))
    assert found == Speculation(drafted=50, accepted=30, acceptance_rate=0.6, source="metrics delta")


def test_tgi_reports_accepted_tokens_and_passes() -> None:
    found = between(TGI.format(10, 20), TGI.format(40, 40))
    assert found == Speculation(accepted=30, steps=20, mean_accepted_length=2.5, source="metrics delta")


def test_sglang_reports_passes_only() -> None:
    assert between(SGLANG.format(10), SGLANG.format(26)) == Speculation(steps=16, source="metrics delta")


def test_every_counter_of_the_table_is_on_a_test_page() -> None:
    pages = (
        vllm(1, 3, 2, 1),
        vllm(1, 3, 2, 1).replace("vllm:", "specclient:"),  # names as in tests/sdk/serving/test_metrics.py
        llama_cpp("1", "2", "3") + 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 1',
        tensorrt("drafted", 1) + tensorrt("accepted", 1),
        TENSORRT.format(2, 1),
        TGI.format(1, 1),
        SGLANG.format(1),
    )
    read = [{name for name, _ in parse_counters(page)} for page in pages]
    unread = [server for server in SERVER_METRICS if server.counters not in read]
    assert not unread, "add a page of its metrics to this test"


def test_a_restarted_server_gives_no_figures() -> None:
    assert between(vllm(10, 30, 12), vllm(2, 6, 3)) is None
    assert between(vllm(10, 30, 12), vllm(11, 33, 11)) is None
    assert between(vllm(10, 30, 12), "") is None


def test_equal_or_missing_readings_give_no_figures() -> None:
    assert between(vllm(10, 30, 12), vllm(10, 30, 12)) is None
    assert between("", vllm(10, 30, 12)) is None  # the starting values are unknown
    assert between("", "") is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "12.5", "many", "1_000", ""])
def test_a_value_that_is_not_a_count_is_unknown(value: str) -> None:
    found = between(vllm(10, 30, 12), vllm(20, 60, 27).replace(" 60", f" {value}"))
    assert found is None  # a vanished counter may mean that the server restarted
    text = vllm(10, 30, 12).replace(" 30", f" {value}")
    found = between(text, vllm(20, 60, 27))
    assert found is not None
    assert (found.drafted, found.accepted) == (None, 15)


lines = st.sampled_from(
    (vllm(1, 3, 2, 1) + llama_cpp("1", "2", "3") + tensorrt("drafted", 1, 2)).splitlines()
)
noise = lines | st.builds(
    lambda line, value: f"{line.rpartition(' ')[0]} {value}", lines, st.integers() | st.floats()
)
texts = st.lists(noise | st.text(max_size=20), max_size=12).map("\n".join)


@given(before=texts, after=texts)
@settings(max_examples=300)
def test_no_page_raises_or_gives_impossible_figures(before: str, after: str) -> None:
    found = between(before, after)
    if found is None:
        return
    assert found.source == "metrics delta"
    for number in (found.drafted, found.accepted, found.steps):
        assert number is None or (type(number) is int and number >= 0)
    if found.drafted is not None and found.accepted is not None:
        assert found.accepted <= found.drafted
    assert found.acceptance_rate is None or 0 <= found.acceptance_rate <= 1
    assert found.mean_accepted_length is None or found.mean_accepted_length >= 1
    assert found.per_position is None or all(0 <= share <= 1 for share in found.per_position)


def test_counters_are_used_only_if_the_response_reports_nothing() -> None:
    before, after = parse_counters(vllm(10, 30, 12)), parse_counters(vllm(20, 60, 27))

    def recorded(**fields: object) -> Speculation | None:
        record = CallRecorder(
            Request(inference_methods.CHAT, "p/m", {"messages": []}),
            Decision("p/m", provider="p", model="m"),
            Prices(load()),
            clock=lambda: 0.0,
            hosted=True,
        )
        record.note_answer(ChatCompletion.model_validate({"choices": [], "model": "m", **fields}), None)
        record.note_counters(before, after)
        return record.snapshot().speculation

    from_counters, from_response = recorded(), recorded(timings={"draft_n": 4, "draft_n_accepted": 3})
    assert from_counters is not None
    assert from_response is not None
    assert (from_counters.drafted, from_counters.source) == (30, "metrics delta")
    assert (from_response.drafted, from_response.source) == (4, "llamacpp")
