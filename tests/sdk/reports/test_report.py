"""Reports: lines add up to the total exactly under any grouping, and unknown figures stay unknown."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow
from specclient.reports.csv_cells import safe_cell
from specclient.reports.export import export_lines
from specclient.reports.page.tables import report_table
from specclient.reports.report import GROUPS, parse_since, report
from specclient.reports.text import ReportCells

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def row(**values):
    provider = values.pop("provider", "openai")
    model = values.pop("model", "gpt-4.1")
    defaults = {
        "id": "c",
        "started_at": AT,
        "operation": "chat",
        "provider": provider,
        "model": model,
        "route": f"{provider}/{model}",
        "status": "ok",
    }
    return LedgerRow(**(defaults | values))


unknown_or = lambda strategy: st.none() | strategy  # noqa: E731
counts = st.integers(0, 10**9)
any_row = st.builds(
    row,
    provider=st.sampled_from(["openai", "local", "x"]),
    model=st.sampled_from(["a", "b"]),
    started_at=st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 5), timezones=st.just(UTC)),  # noqa: DTZ001
    status=st.sampled_from(["ok", "error", "cancelled"]),
    method=st.sampled_from([None, "draft", "plain"]),
    parent=st.sampled_from([None, "w"]),
    purpose=st.sampled_from(["call", "draft", "retry"]),
    strategy=st.sampled_from([None, "direct", "prediction"]),
    pair=st.sampled_from([None, "openai/a+local/b"]),
    session=st.sampled_from([None, "s"]),
    error=st.sampled_from([None, "APITimeoutError"]),
    cost_estimated=st.booleans(),
    tags=st.dictionaries(st.sampled_from(["team", "run"]), st.sampled_from(["1", "2"])),
    prompt_tokens=unknown_or(counts),
    completion_tokens=unknown_or(counts),
    accepted=unknown_or(counts),
    drafted=unknown_or(counts),
    steps=unknown_or(counts),
    cost_nano=unknown_or(st.integers(0, 10**18)),
    latency_s=st.floats(0, 100),
)


@given(rows=st.lists(any_row, max_size=30), by=st.lists(st.sampled_from([*GROUPS, "tag:team"]), unique=True))
def test_lines_add_up_to_the_total_under_any_grouping(rows, by):
    made = report(rows, by)
    for figure in (
        "calls", "parts", "errors", "tokens_in", "tokens_out", "tokens_cached", "cost_nano", "unpriced",
    ):  # fmt: skip
        assert sum(getattr(line, figure) for line in made.lines) == getattr(made.total, figure), figure
    assert sum((line.cost for line in made.lines), Decimal(0)) == made.total.cost
    assert made.total.calls == len(rows)
    assert made.total.cost_nano == sum(r.cost_nano for r in rows if r.cost_nano is not None)


def test_the_figures_of_one_group_are_computed():
    rows = [
        row(
            prompt_tokens=10,
            completion_tokens=20,
            drafted=8,
            accepted=6,
            steps=3,
            cost_nano=1500,
            latency_s=1.0,
        ),
        row(
            prompt_tokens=30,
            completion_tokens=None,
            drafted=2,
            accepted=0,
            steps=2,
            cost_nano=1,
            latency_s=3.0,
        ),
        row(completion_tokens=10, latency_s=2.0, drafted=None, accepted=7),
    ]
    (line,) = report(rows).lines
    assert line.group == ("openai", "gpt-4.1")
    assert (line.calls, line.tokens_in, line.tokens_out) == (3, 40, 30)
    # The third row has no drafted count, so its accepted tokens do not count.
    assert (line.drafted, line.accepted, line.acceptance_rate) == (10, 6, 0.6)
    assert line.mean_accepted_length == 1 + 6 / 5
    assert (line.cost_nano, line.cost, line.unpriced) == (1501, Decimal("0.000001501"), 1)
    assert line.latency_p50_s == 2.0
    assert line.latency_p95_s == pytest.approx(2.9)
    assert line.tokens_per_s == 30 / 3.0


def test_an_engines_speed_uses_its_engine_seconds():
    (line,) = report([row(completion_tokens=10, latency_s=5.0, engine_s=0.5)]).lines
    assert line.tokens_per_s == 20.0
    assert line.latency_p50_s == 5.0


def test_unknown_figures_are_none_and_not_zero():
    (line,) = report([row(cost_nano=5)]).lines
    assert line.drafted is line.accepted is line.acceptance_rate is line.mean_accepted_length is None
    assert line.tokens_per_s is None
    assert report([]).total.latency_p50_s is None


def test_calls_of_unknown_cost_are_unpriced_and_refused_ones_cost_nothing():
    rows = [
        row(status="error"),  # sent without a response
        row(status="error", prompt_tokens=5),
        row(status="error", cost_nano=0),
        row(status="cancelled"),
        row(),
    ]
    total = report(rows).total
    assert (total.errors, total.unpriced, total.unanswered) == (3, 4, 1)


def test_parts_of_a_call_are_counted_once_and_reported():
    whole = [row(id="a", parent="w", cost_nano=3), row(id="b", parent="w", cost_nano=4), row(cost_nano=5)]
    total = report(whole).total
    assert (total.calls, total.parts, total.cost_nano) == (3, 2, 12)


def test_percentiles_exclude_failed_calls():
    total = report([row(latency_s=1.0), row(latency_s=99.0, status="error")]).total
    assert total.latency_p50_s == total.latency_p95_s == 1.0


def test_a_total_is_marked_estimated_only_if_an_estimate_adds_to_its_cost():
    assert report([row(cost_nano=5, cost_estimated=True)]).total.estimated
    assert report([row(cost_nano=5, usage_estimated=True)]).total.estimated
    assert not report([row(cost_nano=None, cost_estimated=True), row(cost_nano=5)]).total.estimated


def test_lines_are_sorted_by_cost_then_by_name():
    rows = [row(model="b"), row(model="a"), row(model="dear", cost_nano=9)]
    assert [line.group for line in report(rows, ["model"]).lines] == [("dear",), ("a",), ("b",)]


def test_days_are_utc_and_tags_are_groups():
    late = datetime(2026, 1, 31, 23, tzinfo=timezone(-timedelta(hours=3)))
    rows = [row(started_at=late, tags={"team": "red"}), row()]
    assert {line.group for line in report(rows, ["day", "tag:team"]).lines} == {
        ("2026-02-01", "red"),
        ("2026-01-31", ""),
    }


@pytest.mark.parametrize("name", ["colour", "tag:", ""])
def test_an_unknown_group_is_named_with_the_valid_ones(name):
    with pytest.raises(ConfigurationError, match=r"provider, model, .*strategy, .*month or tag:NAME"):
        report([], [name])


def test_a_repeated_group_is_an_error():
    with pytest.raises(ConfigurationError, match="'model' twice"):
        report([], ["model", "day", "model"])


def test_time_groups_are_in_chronological_order():
    hours = [
        row(started_at=AT + timedelta(hours=h), cost_nano=cost) for h, cost in ((14, 1), (0, 2), (13, 9))
    ]
    by = {name: [line.group[0] for line in report(hours, [name]).lines] for name in ("hour", "day", "month")}
    assert by == {
        "hour": ["2026-01-31 12:00", "2026-02-01 01:00", "2026-02-01 02:00"],
        "day": ["2026-01-31", "2026-02-01"],
        "month": ["2026-01", "2026-02"],
    }


def test_tool_calls_are_summed_in_every_format():
    made = report([row(counts={"tool_calls": 2}), row(counts={"tool_calls": 1}), row()], ["model"])
    assert made.total.tool_calls == 3
    assert made.to_json()["total"]["tool_calls"] == made.to_dicts()[0]["tool_calls"] == 3
    (read,) = csv.DictReader(io.StringIO(made.to_csv()))
    assert read["tool_calls"] == "3"
    cells = ReportCells.of(made)
    assert dict(zip(cells.titles, cells.total, strict=True))["tool calls"] == "3"
    assert ">tool calls<" in report_table(made)
    assert "tool calls" not in ReportCells.of(report([row(counts={"tool_calls": 0})], ["model"])).titles


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", "=cmd|' /C calc'!A0", "-", "\uff1d1+1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_csv_has_no_formulas(text):
    """A spreadsheet would run them, and names of models, tags and sessions come from requests."""
    made = report([row(model=text, tags={"team": text}, session=text)], ["model", "tag:team", "session"])
    (read,) = csv.DictReader(io.StringIO(made.to_csv(), newline=""))
    escaped = "'" + text.replace("\r", "\n")
    assert [read[name] for name in made.by] == [escaped] * 3
    exported = "".join(export_lines([row(model=text, session=text)], "csv"))
    (read,) = csv.DictReader(io.StringIO(exported, newline=""))
    assert (read["model"], read["session"]) == (escaped, escaped)
    assert json.loads(next(export_lines([row(model=text)], "jsonl")))["model"] == text


def test_a_line_break_in_a_cell_begins_no_row():
    for text in ("a\r=1+1", "a\r\n=1+1", "a\n=1+1"):
        (read,) = csv.DictReader(io.StringIO(report([row(model=text)], ["model"]).to_csv(), newline=""))
        assert read["model"] == "a\n=1+1"


@pytest.mark.parametrize("text", ["-1", "+2.5", "-0.000000001", "-1e-7", "-.5"])
def test_csv_keeps_numbers(text):
    assert safe_cell(text) == text
    assert [safe_cell(value) for value in (-1, -2.5, Decimal("-3"), None)] == [-1, -2.5, Decimal("-3"), None]


def test_negative_amounts_are_numbers_in_csv():
    """A correction may be negative."""
    (read,) = csv.DictReader(io.StringIO(report([row(cost_nano=-5)], ["model"]).to_csv()))
    assert (read["cost"], read["cost_nano"]) == ("-0.000000005", "-5")


def test_csv_contains_exact_dollars():
    made = report([row(cost_nano=1, model='quo"te,d')], ["model"])
    (read,) = csv.DictReader(io.StringIO(made.to_csv()))
    assert read["model"] == 'quo"te,d'
    assert read["cost"] == "0.000000001"
    assert read["acceptance_rate"] == ""
    assert made.to_json()["total"]["cost"] == "0.000000001"
    assert made.to_dicts()[0]["cost"] == "0.000000001"
    assert report([], ["model"]).to_csv().startswith("model,calls,")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", AT - timedelta(days=7)),
        ("24h", AT - timedelta(hours=24)),
        (" 30M ", AT - timedelta(minutes=30)),
        ("2w", AT - timedelta(weeks=2)),
        ("2026-01-30", datetime(2026, 1, 30, tzinfo=UTC)),
        ("2026-01-30T10:00:00+02:00", datetime(2026, 1, 30, 8, tzinfo=UTC)),
        ("2026-01-30T10:00:00Z", datetime(2026, 1, 30, 10, tzinfo=UTC)),
    ],
)
def test_since_accepts_spans_and_dates(text, expected):
    assert parse_since(text, AT) == expected


@pytest.mark.parametrize("text", ["", "7", "d", "yesterday", "7 parsecs", "999999w", "2026-13-01", "-7d"])
def test_an_invalid_since_names_the_accepted_forms(text):
    with pytest.raises(ConfigurationError, match="write a span such as '7d'"):
        parse_since(text, AT)
