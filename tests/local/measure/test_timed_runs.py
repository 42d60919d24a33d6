"""Measurements: acceptance counts, stage times, alternating runs, and the closed form."""

from __future__ import annotations

import itertools
import random

import pytest
from specclient_local.decoding import speculate
from specclient_local.drafting.best_shape import expected_tokens
from specclient_local.engine.answer import Generation, Timings
from specclient_local.measure.bench import bench
from specclient_local.measure.depth_sweep import sweep_depths
from specclient_local.measure.expected_speedup import acceptance, implied_alpha, speed_up
from specclient_local.measure.pass_timing import draft_cost, time_passes, timed_contexts
from specclient_local.measure.prompts import held_out, read_prompts
from specclient_local.measure.stage_profile import Stopwatch, profile_stages
from specclient_local.measure.timed_runs import (
    TimedAnswer,
    TimedRun,
    median_ratio,
    run_alternating,
    run_prompts,
)
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.request.sequence import SpeculationCounts
from tiny_models import load

from specclient.errors import ConfigurationError

PROMPTS = [list(range(2, 30)), list(range(40, 60)), list(range(7, 40, 2))]


@pytest.fixture
def engine(checkpoint):
    shape = {"max_position_embeddings": 256, "eos_token_id": None}
    with load(checkpoint(**shape), checkpoint(**shape, num_hidden_layers=1), slots=3) as engine:
        yield engine


def timed_answer(rounds, reason="length", seconds=1.0, ttft=0.5):
    tokens = sum(rounds) + len(rounds)
    tally = SpeculationCounts()
    for kept in rounds:
        tally.count(4, 4, kept)
    generation = Generation(
        text="",
        token_ids=[0] * tokens,
        finish_reason=reason,
        prompt_tokens=1,
        prompt_token_ids=[0],
        speculation=tally.speculation("draft"),
        timings=Timings(queue_s=0.0, prefill_s=0.25, decode_s=0.5, ttft_s=ttft),
    )
    return TimedAnswer(generation, seconds, tuple(rounds))


def test_acceptance_counts_tried_and_accepted_tokens_per_position():
    # 4 drafted tokens per round except the last: eight of nine tokens exist then, so nothing is drafted
    counted = acceptance([TimedRun(1.0, (timed_answer([4, 2, 0]),))], 4, 9)
    assert counted.tried == (2, 2, 2, 1)
    assert counted.kept == (2, 2, 1, 1)
    assert counted.rounds == 3
    assert counted.alpha == 6 / 7
    assert counted.by_position == (1.0, 1.0, 0.5, 1.0)
    assert counted.mean_accepted_length == 3.0


def test_a_round_cut_by_an_end_token_is_excluded():
    assert acceptance([TimedRun(1.0, (timed_answer([1, 3], "stop"),))], 4, 99).tried == (1, 1, 0, 0)
    assert acceptance([], 4, 99).alpha is None


@pytest.mark.parametrize(("alpha", "length"), [(0.0, 4), (0.35, 1), (0.7, 4), (0.7, 8), (0.95, 6), (1.0, 5)])
def test_the_closed_form_equals_a_simulation(alpha, length):
    rng = random.Random(3)

    def won():
        return 1 + next((i for i in range(length) if rng.random() >= alpha), length)

    rounds = 40_000
    mean = sum(won() for _ in range(rounds)) / rounds
    assert expected_tokens(alpha, length) == pytest.approx(mean, rel=0.02)
    assert speed_up(alpha, length, 0.1) == pytest.approx(mean / (0.1 * length + 1), rel=0.02)
    assert speed_up(alpha, length, 0.1, verification=1.5) < speed_up(alpha, length, 0.1)
    if 0.0 < alpha < 1.0:
        assert implied_alpha(expected_tokens(alpha, length), length) == pytest.approx(alpha)


def test_a_stopwatch_attributes_time_to_the_innermost_stage():
    ticks = itertools.chain([0.0, 1.0, 4.0, 9.0, 10.0], itertools.repeat(10.0))
    watch = Stopwatch(lambda: next(ticks))
    with watch.stage("outer"):
        with watch.stage("inner"):
            assert watch.within("outer")
        assert not watch.within("inner")
    assert watch.seconds == {"outer": 1.0 + 5.0, "inner": 3.0}
    assert watch.calls == {"outer": 1, "inner": 1}


def test_a_profile_times_every_stage_and_removes_its_patches(engine):
    before = (DecoderRunner.score_all, speculate.verify, speculate.all_distributions)
    run, stages = profile_stages(engine, PROMPTS, {"max_tokens": 12, "draft_length": 2})
    assert before == (DecoderRunner.score_all, speculate.verify, speculate.all_distributions)
    by_name = {stage.name: stage for stage in stages}
    assert sum(stage.share for stage in stages) == pytest.approx(1.0)
    assert by_name["target pass"].calls == by_name["verification"].calls == run.steps
    assert by_name["text"].calls == run.steps
    assert 0 < by_name["draft passes"].calls <= run.drafted, "a chain may take one call"
    assert by_name["prefill"].calls == 2 * len(PROMPTS), "one per prompt and model"
    assert sum(stage.seconds for stage in stages) <= run.seconds * 1.5


def test_device_rounds_are_profiled_as_one_stage(checkpoint):
    shape = {"max_position_embeddings": 256, "eos_token_id": None}
    pair = checkpoint(**shape), checkpoint(**shape, num_hidden_layers=1)
    with load(*pair, slots=1, graphs="on") as engine:
        run, stages = profile_stages(engine, PROMPTS[:1], {"max_tokens": 8, "draft_length": 2})
    calls = {stage.name: stage.calls for stage in stages}
    assert calls["device rounds"] == run.steps
    assert "verification" not in calls


def test_run_figures_agree_with_the_engines_answers(engine):
    run = run_prompts(engine, PROMPTS, {"max_tokens": 10, "draft_length": 3}, batch=3)
    assert run.tokens == 30
    assert run.accepted == sum(sum(one.rounds) for one in run.answers)
    assert run.accepted + run.steps == 30
    assert run.mean_accepted_length == pytest.approx(30 / run.steps)
    assert run.token_ids == run_prompts(engine, PROMPTS, {"max_tokens": 10, "method": "plain"}).token_ids
    for one in run.answers:
        assert 0.0 < one.generation.timings.ttft_s <= one.latency_s <= run.seconds
    assert 0.0 < run.decode_s < run.seconds


def test_a_failing_request_is_raised(engine, monkeypatch):
    def break_down(*_):
        raise RuntimeError("no verification today")

    monkeypatch.setattr(speculate.Speculator, "_keep", break_down)
    with pytest.raises(Exception, match="no verification today"):
        run_prompts(engine, PROMPTS, {"max_tokens": 4})


def test_runs_alternate_after_one_warm_up_each():
    order, messages = [], []
    functions = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert run_alternating(functions, 2, messages.append) == {"a": [3, 5], "b": [4, 6]}
    assert order == list("ababab")
    assert messages[0] == "a: warming up"
    assert messages[-1] == "b: run 2 of 2"


def test_the_median_ratio_is_taken_over_ratios_within_a_turn():
    slow, fast = (
        [TimedRun(s, (timed_answer([0, 0], seconds=s),)) for s in seconds]
        for seconds in ((1.0, 9.0, 3.0), (0.5, 3.0, 0.75))
    )
    assert median_ratio(fast, slow) == 3.0
    assert median_ratio(fast, slow, decoding=True) == pytest.approx(
        sorted([0.75 / 0.25, 8.75 / 2.75, 2.75 / 0.5])[1]
    )


def test_bench_compares_each_method_with_plain_decoding(engine):
    rows = bench(engine, PROMPTS, ["draft"], {"max_tokens": 12, "draft_length": 3}, repeat=1)
    assert [row.method for row in rows] == ["plain", "draft"]
    plain, draft = rows
    assert (plain.speed_up, plain.alpha, plain.expected) == (1.0, None, None)
    assert draft.identical
    assert draft.expected == pytest.approx(speed_up(draft.alpha, draft.mean_draft_length, draft.cost))
    assert bench(engine, PROMPTS, ["union"], {"max_tokens": 12}, repeat=1)[1].expected is None
    with pytest.raises(ConfigurationError, match=r"this engine was loaded with plain, .*draft"):
        bench(engine, PROMPTS, ["layer_skip"], {"max_tokens": 4})


def test_bench_detects_different_tokens(engine, monkeypatch):
    from specclient_local.decoding.verify import AcceptedPath

    right = speculate.Speculator._keep
    monkeypatch.setattr(
        speculate.Speculator,
        "_keep",
        lambda self, move, verdict: right(self, move, AcceptedPath([0], 5) if len(move.tree) else verdict),
    )
    plain, draft = bench(engine, PROMPTS, ["draft"], {"max_tokens": 8, "draft_length": 1}, repeat=1)
    assert plain.identical
    assert not draft.identical


def test_the_depth_sweep_has_measured_and_closed_form_speed_ups(engine):
    found = sweep_depths(engine, PROMPTS, lengths=[3, 1], new=12, repeat=1, batch=3)
    assert [row.length for row in found.rows] == [0, 1, 3]
    assert found.rows[0].measured == 1.0
    assert (found.rows[0].closed_form, found.rows[0].expected) == pytest.approx((1.0, 1.0))
    assert found.rows[1].closed_form == pytest.approx(speed_up(found.alpha, 1, found.cost))
    assert found.best in found.rows
    with pytest.raises(ConfigurationError, match="loaded without it"):
        sweep_depths(engine, PROMPTS, method="layer_skip")


def test_passes_are_timed_per_row_count_and_context(engine):
    found = time_passes(engine, repeats=1)
    assert {one.context for one in found} == {64, 239}
    assert {one.rows for one in found if one.model == "target"} == {1, 2, 3, 5, 9, 11, 17}
    assert all(one.seconds > 0 for one in found)
    assert draft_cost(engine, turns=3) > 0
    assert engine.speculator.target.length(0) == 0


def test_timed_contexts_reach_almost_the_maximum():
    assert timed_contexts(32) == [15]
    assert timed_contexts(300) == [64, 256]
    assert timed_contexts(8192) == [64, 256, 1024, 4096, 8175] or timed_contexts(8192) == [
        64,
        256,
        1024,
        4096,
    ]


def test_prompts_are_read_from_files_and_the_held_out_library(engine, tmp_path):
    whole = tmp_path / "one.py"
    whole.write_text("def f():\n    pass\n")
    assert read_prompts(whole) == ["def f():\n    pass\n"]
    cut = held_out(engine.tokenizer, 3, 16)
    assert [len(ids) for ids in cut] == [16, 16, 16]
    assert cut == held_out(engine.tokenizer, 3, 16)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_prompts(tmp_path / "bytes")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_prompts(tmp_path / "none")
