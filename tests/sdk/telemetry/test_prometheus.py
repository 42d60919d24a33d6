"""Two readings of a server's counters become what speculation did in between; never a wrong number."""

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
    """Return what vLLM prints (v1/spec_decode/metrics.py), among other metrics."""
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
def test_where_the_counters_are(base_url: str, url: str) -> None:
    assert metrics_url(base_url) == url


def test_vllm() -> None:
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


def test_the_engines_of_a_server_are_summed() -> None:
    before = vllm(10, 30, 12, 7, 4, 1) + vllm(5, 15, 5, engine=1)
    after = vllm(14, 42, 18, 11, 5, 2) + vllm(6, 18, 7, engine=1)
    found = between(before, after)
    assert found is not None
    assert (found.drafted, found.accepted, found.steps) == (15, 8, 5)
    assert found.per_position is None  # not all engines tell


def test_positions_are_unknown_where_rounds_drafted_less() -> None:
    found = between(vllm(0, 0, 0, 0, 0), vllm(10, 15, 9, 6, 3))
    assert found is not None
    assert (found.accepted, found.per_position) == (9, None)


def test_vllms_old_engine_meant_other_things_by_the_names() -> None:
    old = "vllm:spec_decode_num_emitted_tokens_total 5\nvllm:spec_decode_num_draft_tokens_total {}\n"
    assert between(old.format(3), old.format(9)) is None


def llama_cpp(drafts: str, drafted: str, accepted: str) -> str:
    values = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted}
    return "".join(f"llamacpp:spec_decode_num_{name}_total {value}\n" for name, value in values.items())


def test_llama_cpp() -> None:
    found = between(llama_cpp("100", "300", "120"), llama_cpp("120", "360", "161"))
    assert found is not None
    assert (found.drafted, found.accepted, found.steps, found.mean_accepted_length) == (60, 41, 20, 3.05)


def test_llama_cpp_prints_large_counters_to_six_digits_which_is_no_count() -> None:
    found = between(llama_cpp("100", "1.23457e+06", "120"), llama_cpp("120", "1.23461e+06", "161"))
    assert found is not None
    assert (found.drafted, found.acceptance_rate, found.accepted) == (None, None, 41)
    assert between(llama_cpp("100", "999999", "120"), llama_cpp("120", "1e+06", "161")) is None


def tensorrt(kind: str, *positions: int) -> str:
    name = f"trtllm_spec_decode_{kind}_tokens_total"
    return "".join(f'{name}{{token_position="{at}",worker="0"}} {n}\n' for at, n in enumerate(positions))


def test_tensorrt_by_finished_request() -> None:
    before = tensorrt("drafted", 10, 8) + tensorrt("accepted", 9, 1)
    after = tensorrt("drafted", 20, 13) + tensorrt("accepted", 14, 3)
    by_step = "trtllm_spec_decode_num_draft_tokens_total {}\n"
    assert between(before + by_step.format(1), after + by_step.format(90)) == Speculation(
        drafted=15, accepted=7, acceptance_rate=7 / 15, per_position=(0.5, 0.4), source="metrics delta"
    )


def test_a_position_that_was_never_reached_before() -> None:
    before = tensorrt("drafted", 10) + tensorrt("accepted", 9)
    after = tensorrt("drafted", 20, 4) + tensorrt("accepted", 14, 1)
    found = between(before, after)
    assert found is not None
    assert (found.drafted, found.accepted, found.per_position) == (14, 6, (0.5, 0.25))


def test_tensorrt_by_iteration() -> None:
    found = between(TENSORRT.format(50, 42), TENSORRT.format(100, 72))
    assert found == Speculation(drafted=50, accepted=30, acceptance_rate=0.6, source="metrics delta")


def test_tgi_tells_tokens_won_and_passes() -> None:
    found = between(TGI.format(10, 20), TGI.format(40, 40))
    assert found == Speculation(accepted=30, steps=20, mean_accepted_length=2.5, source="metrics delta")


def test_sglang_tells_passes_alone() -> None:
    assert between(SGLANG.format(10), SGLANG.format(26)) == Speculation(steps=16, source="metrics delta")


def test_every_counter_of_the_table_is_read_on_some_page() -> None:
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


def test_a_server_that_began_anew_tells_nothing() -> None:
    assert between(vllm(10, 30, 12), vllm(2, 6, 3)) is None
    assert between(vllm(10, 30, 12), vllm(11, 33, 11)) is None
    assert between(vllm(10, 30, 12), "") is None


def test_nothing_in_between_is_nothing() -> None:
    assert between(vllm(10, 30, 12), vllm(10, 30, 12)) is None
    assert between("", vllm(10, 30, 12)) is None  # it is not known from where they were counted
    assert between("", "") is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "12.5", "many", "1_000", ""])
def test_a_value_that_is_no_count_is_unknown(value: str) -> None:
    found = between(vllm(10, 30, 12), vllm(20, 60, 27).replace(" 60", f" {value}"))
    assert found is None  # gone: nothing says that the others are of one life of the server
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
def test_no_text_breaks_it_and_no_figure_is_absurd(before: str, after: str) -> None:
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


def test_counters_count_only_where_the_answer_tells_nothing() -> None:
    before, after = parse_counters(vllm(10, 30, 12)), parse_counters(vllm(20, 60, 27))

    def told(**fields: object) -> Speculation | None:
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

    silent, telling = told(), told(timings={"draft_n": 4, "draft_n_accepted": 3})
    assert silent is not None
    assert telling is not None
    assert (silent.drafted, silent.source) == (30, "metrics delta")
    assert (telling.drafted, telling.source) == (4, "llamacpp")
