"""Traces: reading and writing, errors that name the line, and worlds saved as traces."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow
from specclient.reports.export import export_lines
from specclient.routing.simulate.baselines import GroundTruth, Oracle
from specclient.routing.simulate.hosts import MIXED_WORLD
from specclient.routing.simulate.replay import replay_calls
from specclient.routing.simulate.results import summarize
from specclient.routing.simulate.trace import Trace, dump_trace, load_trace
from specclient.routing.simulate.trace_format import read_line
from specclient.routing.simulate.world import World
from specclient.types.policy import Policy


def line(**facts: object) -> str:
    outcomes = {"a/m": {"latency_s": 2.0, "ttft_s": 0.5, "cost_usd": 0.002}}
    given = {"at": 1.0, "prompt_tokens": 100, "completion_tokens": 50, "outcomes": outcomes, **facts}
    return json.dumps(given)


def write(folder: Path, *lines: str) -> Path:
    file = folder / "calls.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_a_world_saved_as_a_trace_gives_the_same_outcomes(tmp_path: Path) -> None:
    world = World(MIXED_WORLD, 3, calls=400)
    file = tmp_path / "world.jsonl"
    file.write_text("".join(dump_trace(world)), encoding="utf-8")
    trace = load_trace(file)
    assert trace.routes == world.routes
    assert len(trace.calls) == len(world.calls)
    for mine, its in zip(trace.calls, world.calls, strict=True):
        assert (mine.task, mine.prompt_tokens, mine.completion_tokens, mine.max_latency_s) == (
            its.task, its.prompt_tokens, its.completion_tokens, its.max_latency_s,
        )  # fmt: skip
        for route in world.routes:
            traced, true = trace.outcome(mine, route, mine.at), world.outcome(its, route, its.at)
            assert traced.failed is true.failed
            assert traced.latency_s == pytest.approx(true.latency_s, abs=1e-4)
    for route, rates in world.rates.items():
        assert trace.rates[route].prompt == pytest.approx(rates.prompt, rel=0.01)
        assert trace.rates[route].completion == pytest.approx(rates.completion, rel=0.01)
    judge = GroundTruth(trace, Policy())
    assert summarize(replay_calls(trace, Oracle(judge), judge), 0.95).violations < 0.06


def test_exported_ledger_rows_are_read_as_a_trace(tmp_path: Path) -> None:
    def row(number: int, **facts: object) -> LedgerRow:
        given = {
            "id": str(number), "operation": "chat", "provider": "a", "model": "m", "route": "a/m",
            "started_at": datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC), "status": "ok", "latency_s": 2.0,
            "ttft_s": 0.5, "prompt_tokens": 100, "completion_tokens": 50, "cost_nano": 1_000_000,
            "decision": {"task": "code"}, **facts,
        }  # fmt: skip
        return LedgerRow(**given)

    rows = [
        row(1),
        row(2, route="b/m", latency_s=4.0, cost_nano=500_000),
        row(3, status="error", http_status=503, completion_tokens=None, cost_nano=None),
        row(4, status="error", http_status=400, completion_tokens=None),  # not the route's failure
        row(5, parent="1", purpose="hedge"),  # an attempt of another call, not a call
        row(6, prompt_tokens=9000, decision={}),
    ]
    trace = load_trace(write(tmp_path, *(text.strip() for text in export_lines(rows, "jsonl"))))
    assert [call.task for call in trace.calls] == ["code", "code", "long_context"]
    assert (trace.seen("a/m"), trace.seen("b/m")) == (4, 1)
    assert trace.calls[1].at == pytest.approx(1.0)
    assert trace.outcome(trace.calls[0], "a/m", 0.0).latency_s == 2.0
    assert trace.outcome(trace.calls[0], "b/m", 0.0).latency_s == 4.0  # from that route's only call
    assert trace.rates["a/m"].cost(100, 50) == pytest.approx(0.001, rel=0.02)
    assert trace.kept(trace.calls[0], "a/m", 0.0) == pytest.approx(2 / 3)


def test_a_missing_outcome_is_taken_from_the_nearest_calls_and_scaled_by_length(tmp_path: Path) -> None:
    early = [line(at=i, outcomes={"a/m": {"latency_s": 1.0, "ttft_s": 0.5}}) for i in range(20)]
    late = [line(at=500 + i, outcomes={"a/m": {"latency_s": 9.0, "ttft_s": 1.0}}) for i in range(20)]
    asked = [
        line(at=5, completion_tokens=100, outcomes={"b/m": {"latency_s": 1.0}}),
        line(at=510, outcomes={"b/m": {"latency_s": 1.0}}),
    ]
    trace = load_trace(write(tmp_path, *early, *late, *asked))
    first, second = (call for call in trace.calls if "b/m" in trace._own[call.index])
    assert trace.outcome(first, "a/m", first.at).latency_s == 0.5 + 0.5 * 2
    assert trace.outcome(second, "a/m", second.at).latency_s == 9.0
    assert trace.outcome(first, "b/m", first.at, attempt=1) == trace.outcome(
        first, "b/m", first.at, attempt=1
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "is not a JSON object"),
        (line(promt_tokens=1), "'promt_tokens' is unknown; a call has at, completion_tokens"),
        (line(prompt_tokens="many"), "prompt_tokens is 'many'; it must be a whole number of 0 or more"),
        (line(completion_tokens=1.5), "completion_tokens is 1.5; it must be a whole number"),
        (line(at=-1), "at is -1; it must be a number of 0 or more"),
        (line(task="poem"), "task is 'poem'; it must be one of chat, code, document, long_context"),
        (line(outcomes=[]), "it must be an object of routes"),
        (line(outcomes={"a/m": {"latency": 1}}), "it may have accepted, cost_usd"),
        (line(outcomes={"am": {"latency_s": 1}}), "'am' is not a route; write 'provider/model'"),
        (line(outcomes={"a/m": {}}), "outcomes.a/m: latency_s is None"),
        (line(outcomes={"a/m": {"latency_s": 1, "failed": 1}}), "failed is 1; it must be true or false"),
        ('{"started_at": "yesterday"}', "not a row of the ledger"),
        ('{"started_at": "2026-01-01T00:00:00+00:00"}', "not a row of the ledger"),
    ],
)
def test_an_error_names_the_file_the_line_and_the_mistake(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, line(), "", text)
    with pytest.raises(ConfigurationError) as caught:
        load_trace(file)
    assert str(caught.value).startswith(f"{file}:3: ")
    assert message in str(caught.value)


def test_a_trace_without_an_answer_or_not_utf8_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="contains no call with an answer"):
        load_trace(write(tmp_path, ""))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        load_trace(tmp_path / "bytes")


def test_prices_are_inferred_from_the_costs() -> None:
    def rates(*costs: tuple[int, int, float]) -> tuple[float, float]:
        lines = [
            read_line(
                line(
                    prompt_tokens=p, completion_tokens=c, outcomes={"a/m": {"latency_s": 1, "cost_usd": paid}}
                ),
                "here",
            )
            for p, c, paid in costs
        ]
        found = Trace("t", [each for each in lines if each is not None]).rates["a/m"]
        return found.prompt, found.completion

    assert rates((100, 10, 0.03), (50, 80, 0.165)) == pytest.approx((1e-4, 2e-3))
    assert rates((100, 10, 0.11)) == pytest.approx((1e-3, 1e-3))  # one call determines only one rate
    assert rates((0, 10, 0.01)) == pytest.approx((0, 1e-3))
    assert rates((100, 10, 0.0)) == (0, 0)
