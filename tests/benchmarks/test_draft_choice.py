"""The simulated choice among ways of drafting, on a short trace, with times of two groups."""

from __future__ import annotations

import json
from statistics import mean

import pytest
from paths import BENCHMARKS

#: Seconds of a round at 1, 4 and 16 requests, and the tokens of a round by group. Drafting wins on code at
#: low load only, lookups win on texts that repeat themselves.
ROUNDS = {"plain": (0.01, 0.012, 0.02), "draft": (0.012, 0.024, 0.08), "ngram": (0.0105, 0.014, 0.03)}
YIELDS = {
    "plain": {"HumanEval": 1.0, "rag": 1.0},
    "draft": {"HumanEval": 3.0, "rag": 1.2},
    "ngram": {"HumanEval": 1.1, "rag": 2.0},
}


@pytest.fixture
def programs(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import draft_choice
    import draft_method_times

    return draft_choice, draft_method_times


@pytest.fixture
def times(programs, tmp_path):
    choice, measured = programs
    rows = [
        {
            "method": name,
            "group": group,
            "in_progress": running,
            "prefill_s": 0.0001,
            "round_s": ROUNDS.get(name, (0.02, 0.02, 0.03))[place],
            "tokens_a_round": [YIELDS[name][group] if name in YIELDS else 1.0] * 2,
        }
        for name in measured.METHODS
        for group in ("HumanEval", "rag")
        for place, running in enumerate(measured.IN_PROGRESS)
    ]
    file = tmp_path / "times.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return choice.MethodTimes(file)


@pytest.fixture
def world(programs, times, tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 1000 * at, "input_length": 200, "output_length": 100, "hash_ids": [at]}
        for at in range(400)
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    texts = {"HumanEval": ["def add(a, b):\n    return (a + b)\n"], "rag": ["Which town is it?"]}
    return programs[0].DraftWorld(times, texts, trace, 400, 1)


def test_rounds_between_measured_loads_follow_the_logarithm_of_the_requests(times):
    assert times.round_s("draft", "rag", 4) == 0.024
    assert times.round_s("draft", "rag", 8) == pytest.approx((0.024 * 0.08) ** 0.5)
    assert times.round_s("draft", "rag", 0.5) == 0.012
    assert times.round_s("draft", "rag", 99) == 0.08


def test_seconds_are_those_of_the_measured_method_at_the_load_of_the_call(world):
    call = world.calls[200]
    group, running = world.groups[200], world.loads[200]
    assert (world.phases[200], running) == ("noon", 16)
    expected = 200 * 0.0001 + 100 * world.times.round_s("draft", group, running) / YIELDS["draft"][group]
    assert world.expected_s(call, "local/draft", call.at) == pytest.approx(expected)
    drawn = [world.outcome(call, "local/draft", call.at, attempt).latency_s for attempt in range(200)]
    assert mean(drawn) == pytest.approx(expected, rel=0.05)


def test_the_router_learns_the_method_of_each_group_and_beats_every_fixed_one(programs, world):
    found = programs[0].simulated(world, seed=1)
    fixed = min(found[name]["day"] for name in ROUNDS)
    assert found["auto"]["day"] < fixed
    assert found["oracle"]["day"] < found["by group"]["day"] < fixed


def test_cells_have_the_figures_of_every_request(programs):
    from specclient_local import Engine

    measured = programs[1]
    folder = measured.BUNDLED
    heads = tuple(str(folder / each) for each in ("eagle3", "medusa"))
    with Engine.load(folder / "target", folder / "draft", heads=heads, threads=1, slots=2) as engine:
        prompts = [engine.tokenizer.encode(text) for text in ("def add(a, b):\n", "class Point:\n")]
        for name in measured.METHODS:
            found = measured.cell(engine, prompts, name, 2)
            assert found["round_s"] > 0
            assert found["prefill_s"] > 0
            assert len(found["tokens_a_round"]) == 2
            assert all(each >= 1 for each in found["tokens_a_round"])
            assert name != "plain" or found["tokens_a_round"] == [1.0, 1.0]
