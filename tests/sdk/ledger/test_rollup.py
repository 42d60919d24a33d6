"""The roll-up: stored sums equal the sums over the rows exactly, for any grouping and time range."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specclient.errors import ConfigurationError
from specclient.ledger import rollup
from specclient.ledger.figures import COUNTED, EDGES_S, FIGURES, SUM_NAMES, CallTotals
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import encoded_row
from specclient.ledger.schema import CALLS_TABLE, HOURS_TABLE
from specclient.ledger.sums import DIMENSION_NAMES, summed_values, sums_of
from specclient.ledger.totals import ROLLUP_GROUPS
from specclient.types.usage import NANO, Cost, Speculation, Usage

BEGIN = datetime(2026, 1, 30, 22, tzinfo=UTC)
HOURS_LONG = 60
SECOND = timedelta(seconds=1)

#: Times on, just before and between the boundaries of hours and days.
times = st.builds(
    lambda hour, offset: BEGIN + timedelta(hours=hour, microseconds=offset),
    st.integers(0, HOURS_LONG),
    st.sampled_from([0, 1, 1_800_000_000, 3_599_999_999]),
)
counts = st.integers(0, 10**12)
maybe = st.none() | counts


def seconds(unit):
    return st.none() | st.sampled_from([0.0, 1e-7, 0.001, 0.0014142, 524.288, 1e9]) | st.floats(0, unit)


@st.composite
def calls(draw, build, number):
    provider = draw(st.sampled_from(["openai", "local"]))
    model = draw(st.sampled_from(["a", "b"]))
    nano = draw(st.none() | st.integers(0, 10**14))
    return build(
        f"c{number}",
        f"{provider}/{model}",
        started_at=draw(times),
        streamed=draw(st.booleans()),
        status=draw(st.sampled_from(["ok", "error", "cancelled"])),
        error=draw(st.sampled_from([None, "APITimeoutError"])),
        served_model=draw(st.sampled_from([None, "a-1"])),
        usage=Usage(*(draw(maybe) for _ in range(7)), estimated=draw(st.booleans())),
        speculation=draw(
            st.none() | st.builds(Speculation, st.sampled_from([None, "draft"]), maybe, maybe, maybe)
        ),
        cost=Cost(
            None if nano is None else nano / NANO,
            {},
            "somewhere",
            estimated=draw(st.booleans()),
            cache_saved=draw(st.none() | st.integers(-(10**14), 10**14).map(lambda nano: nano / NANO)),
        ),
        attempts=draw(st.integers(0, 3)),
        ttft_s=draw(seconds(10)),
        latency_s=draw(seconds(600)) or 0.0,
        engine_s=draw(seconds(60)),
        parent=draw(st.sampled_from([None, "p"])),
        purpose=draw(st.sampled_from(["call", "retry", "draft", "batch"])),
        strategy=draw(st.sampled_from([None, "remote"])),
        pair=draw(st.sampled_from([None, "a+b"])),
        counts=draw(st.dictionaries(st.sampled_from([each.name for each in COUNTED]), counts)),
        cached=draw(st.booleans()),
        saved=draw(st.none() | st.integers(0, 10**14).map(lambda nano: nano / NANO)),
    )


def group_of(row, by):
    at = row.started_at
    names = {
        "hour": f"{at:%Y-%m-%d %H}:00",
        "day": f"{at:%Y-%m-%d}",
        "month": f"{at:%Y-%m}",
        "served": row.served_model,
        "streamed": "true" if row.streamed else "false",
    }
    return tuple(str(names[name] if name in names else getattr(row, name)).replace("None", "") for name in by)


def to_microseconds(value):
    return 0 if value is None else min(round(value * 1e6), 10**12)


def summed(rows):
    """Compute the figures of ``rollup`` from rows, as simply as possible."""
    drafts = [row for row in rows if row.accepted is not None and row.drafted is not None]
    passes = [row for row in rows if row.accepted is not None and row.steps]
    ok = [row for row in rows if row.status == "ok" and row.purpose != "batch"]
    unknown = [row for row in rows if row.cost_nano is None]
    took = [(row, to_microseconds(row.latency_s if row.engine_s is None else row.engine_s)) for row in rows]
    timed = [(row, span) for row, span in took if row.completion_tokens and span]

    def total(name, among=rows):
        return sum(getattr(row, name) or 0 for row in among)

    return {
        "calls": len(rows),
        "parts": sum(row.parent is not None for row in rows),
        "errors": sum(row.status == "error" for row in rows),
        "tokens_in": total("prompt_tokens"),
        "tokens_out": total("completion_tokens"),
        "tokens_cached": total("cached_tokens"),
        "tokens_written": total("cache_write_tokens"),
        "tokens_reasoning": total("reasoning_tokens"),
        "predicted_accepted": total("predicted_accepted"),
        "predicted_rejected": total("predicted_rejected"),
        **{each.name: sum(row.counts.get(each.name, 0) for row in rows) for each in COUNTED},
        "drafts": len(drafts),
        "drafted": total("drafted", drafts),
        "accepted": total("accepted", drafts),
        "kept": total("accepted", passes),
        "passes": total("steps", passes),
        "cached_calls": sum(row.cached for row in rows),
        "saved_nano": total("saved_nano"),
        "prompt_cached_calls": sum(row.prompt_cache_nano is not None for row in rows),
        "prompt_cache_nano": total("prompt_cache_nano"),
        "cost_nano": total("cost_nano"),
        "estimated": sum(
            row.cost_nano is not None and (row.cost_estimated or row.usage_estimated) for row in rows
        ),
        "unpriced": len(unknown),
        "unanswered": sum(
            row.status == "error" and row.prompt_tokens is None and row.completion_tokens is None
            for row in unknown
        ),
        "attempts": total("attempts"),
        "latency_us": sum(to_microseconds(row.latency_s) for row in ok),
        "engine_us": sum(to_microseconds(row.engine_s) for row in rows),
        "ttft_us": sum(to_microseconds(row.ttft_s) for row in rows),
        "ttfts": sum(row.ttft_s is not None for row in rows),
        "timed_tokens": sum(row.completion_tokens for row, _ in timed),
        "timed_us": sum(span for _, span in timed),
        "latencies": tuple(
            sum(low < to_microseconds(row.latency_s) <= high for row in ok)
            for low, high in zip([-1, *CLASSES], [*CLASSES, 10**15], strict=True)
        ),
    }


CLASSES = [round(edge * 1e6) for edge in EDGES_S]


def check_sums(ledger, since, until, by):
    groups = defaultdict(list)
    for row in ledger.rows(since, until):
        groups[group_of(row, by)].append(row)
    expected = {group: summed(rows) for group, rows in groups.items()}
    found = ledger.rollup(since, until, by)
    assert [sums.group for sums in found] == sorted(groups)
    assert {
        sums.group: {figure.name: stored_figure(figure, sums) for figure in FIGURES} for sums in found
    } == expected


def stored_figure(figure, sums):
    """Return a figure as it is stored: one integer, or one for each class of a histogram."""
    return sums.latencies if figure.name == "latencies" else sums.sums[figure.name]


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request, tmp_path):
    if request.param == "sqlite":
        setting = str(tmp_path / "ledger.sqlite3")
    else:
        setting = request.getfixturevalue("postgres_url")
    made = Ledger(setting)
    yield made
    made.close()


def delete_all(ledger):
    def work(execute):
        execute(f"DELETE FROM {CALLS_TABLE}")
        execute(f"DELETE FROM {HOURS_TABLE}")

    ledger.transact(work)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_the_sums_equal_those_of_the_rows(data, ledger, make_call):
    delete_all(ledger)
    for batch in range(data.draw(st.integers(1, 3))):
        for n in range(data.draw(st.integers(0, 6))):
            ledger.submit(data.draw(calls(make_call, f"{batch}-{n}")))
        if data.draw(st.booleans()):
            ledger.flush()
    by = data.draw(st.lists(st.sampled_from(sorted(ROLLUP_GROUPS)), unique=True, max_size=4))
    since, until = data.draw(st.none() | times), data.draw(st.none() | times)
    check_sums(ledger, since, until, by)
    before = data.draw(times)
    remaining = [row.id for row in ledger.rows() if row.started_at >= before]
    count = len(ledger.rows())
    assert ledger.prune(before) == count - len(remaining)
    assert [row.id for row in ledger.rows()] == remaining
    check_sums(ledger, since, until, by)
    check_sums(ledger, None, None, list(DIMENSION_NAMES))


def stored_sums(ledger):
    names = ", ".join((*DIMENSION_NAMES, *SUM_NAMES))
    return ledger.transact(lambda execute: execute(f"SELECT {names} FROM {HOURS_TABLE} ORDER BY {names}"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_summed_one_by_one_and_together_are_equal(data, make_call):
    number = data.draw(st.integers(2, 5))
    rows = [summed_values(encoded_row(data.draw(calls(make_call, n)))) for n in range(number)]
    one_by_one = [sums_of([row]) for row in rows]
    assert all(type(number) is int for sums in one_by_one for number in sums)
    assert sums_of(rows) == [sum(each) for each in zip(*one_by_one, strict=True)]


def test_rebuilt_sums_equal_the_stored_ones(ledger, make_call):
    for n in range(50):
        at = BEGIN + timedelta(minutes=7 * n)
        ledger.submit(make_call(f"c{n}", started_at=at, usage=Usage(prompt=n), status="ok", latency_s=n / 7))
        if n % 9 == 0:
            ledger.flush()
    ledger.flush()
    before = stored_sums(ledger)
    assert len(before) == 6
    ledger.transact(rollup.rebuild)
    assert stored_sums(ledger) == before


def test_a_duplicate_row_is_not_summed_again(ledger, make_call):
    for n in (1, 2, 1):
        ledger.submit(make_call(f"c{n}"))
        ledger.flush()
    assert [sums.calls for sums in ledger.rollup()] == [2]


def test_full_hours_are_read_from_the_sums_and_partial_hours_from_the_rows(ledger, make_call):
    """Rows are deleted without their sums, which shows where each value is read from."""
    for hour in range(5):
        ledger.submit(make_call(f"c{hour}", started_at=BEGIN + timedelta(hours=hour, minutes=30)))
    ledger.flush()
    ledger.transact(lambda execute: execute(f"DELETE FROM {CALLS_TABLE}"))

    def hours(since, until):
        return [sums.group[0][-5:-3] for sums in ledger.rollup(since, until, ["hour"])]

    assert hours(None, None) == ["22", "23", "00", "01", "02"]
    assert hours(BEGIN, BEGIN + timedelta(hours=2)) == ["22", "23"]
    assert hours(BEGIN + SECOND, BEGIN + timedelta(hours=3) - SECOND) == ["23"]
    assert hours(BEGIN + SECOND, BEGIN + timedelta(hours=1, seconds=-1)) == []


def test_times_in_other_time_zones_are_converted(ledger, make_call):
    ledger.submit(make_call("c", started_at=BEGIN))
    there = timezone(timedelta(hours=5, minutes=30))
    since = BEGIN.astimezone(there)
    assert len(ledger.rollup(since, since + SECOND)) == 1
    assert ledger.rollup(since + SECOND) == []
    assert ledger.rollup(None, since) == []
    assert ledger.prune(since) == 0
    assert ledger.prune(since + SECOND) == 1


def test_rows_not_yet_written_are_included_in_the_sums(tmp_path, make_call, monkeypatch):
    monkeypatch.setattr("specclient.ledger.sqlite.BUSY_S", 0.01)
    path = tmp_path / "ledger.sqlite3"
    ledger, other = Ledger(str(path)), Ledger(str(path))
    ledger.submit(make_call("c1"))
    ledger.flush()

    def held(execute):
        execute(f"DELETE FROM {CALLS_TABLE} WHERE id = 'none'")
        ledger.submit(make_call("c2", status="error"))
        return ledger.rollup(by=["status"])

    assert [(sums.group, sums.calls) for sums in other.transact(held)] == [(("error",), 1), (("ok",), 1)]
    assert [(sums.group, sums.calls) for sums in ledger.rollup(by=["status"])] == [
        (("error",), 1),
        (("ok",), 1),
    ]
    ledger.close()
    other.close()


def test_an_unknown_group_raises_and_the_known_ones_are_named(ledger):
    with pytest.raises(ConfigurationError, match=r"cannot sum by 'tag'; the names are .*provider.*day"):
        ledger.rollup(by=["provider", "tag"])


def test_an_empty_ledger_has_no_sums(tmp_path):
    assert Ledger("off").rollup(by=["day"]) == []
    ledger = Ledger(str(tmp_path / "none.sqlite3"))
    assert ledger.rollup() == []
    assert ledger.prune(BEGIN) == 0
    assert not (tmp_path / "none.sqlite3").exists()


def test_percentiles_are_accurate_within_their_histogram_class(tmp_path, make_call):
    ledger = Ledger(str(tmp_path / "ledger.sqlite3"))
    rng = random.Random(7)
    latencies = sorted(rng.lognormvariate(0, 1) for _ in range(1000))
    for n, latency_s in enumerate(latencies):
        ledger.submit(make_call(f"c{n}", latency_s=latency_s))
    ledger.submit(make_call("failed", status="error", latency_s=1e6))
    (sums,) = ledger.rollup()
    ledger.close()
    for share in (0.001, 0.5, 0.9, 0.95, 0.99, 1.0):
        exact = latencies[int(share * 1000) - 1]
        assert exact / 2**0.5 <= sums.latency_s(share) <= exact * 2**0.5
        if 0.1 < share < 0.99:
            assert sums.latency_s(share) == pytest.approx(exact, rel=0.06)
    assert CallTotals.of((), [0] * len(SUM_NAMES)).latency_s(0.5) is None


def test_a_batch_of_many_hours_is_written_in_one_transaction(ledger, make_call):
    ledger._writer.store.write(
        [encoded_row(make_call(f"c{n}", started_at=BEGIN + timedelta(hours=n))) for n in range(30)]
    )
    assert sum(sums.calls for sums in ledger.rollup(by=["hour"])) == 30
    assert len(ledger.rollup(by=["hour"])) == 30
    assert [s.group for s in ledger.rollup(by=["month"])] == [("2026-01",), ("2026-02",)]


def test_costs_are_added_up_by_hour_and_tags(ledger, make_call):
    for number, (minutes, tags, dollars) in enumerate(
        [
            (5, {"a": "1"}, 1),
            (50, {"a": "1"}, 2),
            (65, {"a": "1"}, 4),
            (5, {"a": "2", "b": "x"}, 8),
            (5, {}, 16),
        ]
    ):
        at = BEGIN + timedelta(minutes=minutes)
        ledger.submit(make_call(f"t{number}", started_at=at, tags=tags, cost=Cost(Decimal(dollars))))
    ledger.submit(make_call("unpriced", started_at=BEGIN, tags={"a": "1"}))
    hour = timedelta(hours=1)
    found = sorted(
        (at, sorted(tags.items()), nano // 10**9)
        for at, tags, nano in ledger.tag_costs(BEGIN, BEGIN + 2 * hour)
    )
    assert found == [
        (BEGIN, [("a", "1")], 3),
        (BEGIN, [("a", "2"), ("b", "x")], 8),
        (BEGIN + hour, [("a", "1")], 4),
    ]
    assert [nano for *_, nano in ledger.tag_costs(BEGIN + hour, BEGIN + 2 * hour)] == [4 * 10**9]
