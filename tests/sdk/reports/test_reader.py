"""Report reading: rows and roll-up give the same report, which both clients can request."""

from __future__ import annotations

import math
import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import OpenAIServer, reply

from specclient import AsyncOpenAI, OpenAI, Strategy
from specclient.errors import ConfigurationError
from specclient.ledger import totals as kept_sums
from specclient.ledger.ledger import Ledger
from specclient.reports.reader import CallFilter, read_reports
from specclient.reports.report import GROUPS, CostReport
from specclient.types.call import Call
from specclient.types.route import Decision
from specclient.types.usage import Cost, Speculation, Usage

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
COVERED = sorted(GROUPS.keys() & kept_sums.ROLLUP_GROUPS.keys())
PERCENTILES = ("latency_p50_s", "latency_p95_s", "latency_p99_s")

none_or = lambda strategy: st.none() | strategy  # noqa: E731
counts = st.integers(0, 10**6)


def _call(number: int, route: str, **facts) -> Call:
    provider, _, model = route.partition("/")
    decision = Decision(chosen=route, provider=provider, model=model, candidates=())
    return Call(id=f"c{number}", operation="chat", model=route, route=decision, **facts)


facts = st.fixed_dictionaries(
    {
        "route": st.sampled_from(["openai/a", "openai/b", "local/a"]),
        "started_at": st.datetimes(datetime(2026, 1, 30), datetime(2026, 2, 2), timezones=st.just(UTC)),  # noqa: DTZ001
        "status": st.sampled_from(["ok", "error", "cancelled"]),
        "error": st.sampled_from([None, "APITimeoutError"]),
        "streamed": st.booleans(),
        "usage": st.builds(Usage, prompt=none_or(counts), completion=none_or(counts), cached=none_or(counts)),
        "speculation": st.builds(
            Speculation,
            method=st.sampled_from([None, "draft"]),
            drafted=none_or(counts),
            accepted=none_or(counts),
            steps=none_or(counts),
        ),
        "cost": st.builds(
            Cost,
            total=none_or(st.integers(0, 10**12).map(lambda n: Decimal(n).scaleb(-9))),
            estimated=st.booleans(),
        ),
        "latency_s": st.floats(0.001, 500),
        "engine_s": none_or(st.floats(0.001, 900)),
        "parent": st.sampled_from([None, "w"]),
        "pair": st.sampled_from([None, "openai/a+local/a"]),
        "tags": st.dictionaries(st.sampled_from(["team"]), st.sampled_from(["x", "y"])),
    }
)
bounds = none_or(st.datetimes(datetime(2026, 1, 30), datetime(2026, 2, 2), timezones=st.just(UTC)))  # noqa: DTZ001


def exact(report: CostReport) -> list[dict]:
    """Return every figure except the percentiles, which a roll-up stores in size classes only."""
    lines = [{**line.to_dict(), "group": line.group} for line in (*report.lines, report.total)]
    return [{name: value for name, value in line.items() if name not in PERCENTILES} for line in lines]


@settings(max_examples=15)
@given(
    calls=st.lists(facts, max_size=12),
    by=st.lists(st.sampled_from(COVERED), unique=True, max_size=3),
    since=bounds,
    until=bounds,
    provider=st.sampled_from([None, "openai"]),
    model=st.sampled_from([None, "a", "openai/b"]),
)
def test_rows_and_roll_up_agree_to_the_nano_dollar(calls, by, since, until, provider, model):
    where = CallFilter(since=since, until=until, provider=provider, model=model)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(str(Path(folder, "l.db")))
        for number, known in enumerate(calls):
            ledger.submit(_call(number, **known))
        ledger.flush()
        by_rows = read_reports(ledger, [by], where).reports[0]
        by_sums = read_reports(ledger, [by], where, most_read=-1).reports[0]
        ledger.close()
    assert (by_rows.rounded, by_sums.rounded) == (False, True)
    assert exact(by_sums) == exact(by_rows)
    spent = sum(
        round(c["cost"].total.scaleb(9)) for c in calls if _selected(c, where) and c["cost"].total is not None
    )
    assert by_rows.total.cost_nano == spent
    for line, rounded in zip(by_rows.lines, by_sums.lines, strict=True):
        if line.calls == 1:
            assert_close(line.latency_p50_s, rounded.latency_p50_s)


def _selected(call: dict, where: CallFilter) -> bool:
    at, route = call["started_at"], call["route"]
    in_time = (where.since is None or at >= where.since) and (where.until is None or at < where.until)
    return in_time and where.matches(route.partition("/")[0], route, route)


def assert_close(true: float | None, rounded: float | None) -> None:
    if true is None or rounded is None:
        assert true is rounded is None
    else:
        assert abs(math.log2(rounded / true)) <= 0.26, "more than half of a √2-wide class"


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(str(tmp_path / "ledger.db"))
    for number in range(6):
        made.submit(
            _call(
                number,
                "openai/a" if number % 2 else "local/b",
                started_at=AT + timedelta(hours=number),
                status="ok",
                usage=Usage(prompt=10, completion=number + 1),
                cost=Cost(Decimal("0.001") * number),
                tags={"team": "x" if number < 4 else "y"},
            )
        )
    made.flush()
    yield made
    made.close()


def test_a_group_missing_in_the_roll_up_is_read_from_the_rows(ledger):
    found = read_reports(ledger, [["tag:team"]], CallFilter(), most_read=0)
    assert not found.reports[0].rounded
    assert {line.group[0]: line.calls for line in found.reports[0].lines} == {"x": 4, "y": 2}
    assert found.savings is None, "too many calls to read each row"


def test_filters_select_the_matching_calls(ledger):
    def calls(**where):
        return read_reports(ledger, [()], CallFilter(**where)).reports[0].total.calls

    assert calls() == 6
    assert calls(provider="local") == calls(model="b") == calls(model="local/b") == 3
    assert calls(model="a", tags={"team": "y"}) == 1
    assert calls(since=AT + timedelta(hours=2), until=AT + timedelta(hours=4)) == 2
    assert calls(model="nothing") == 0


def test_an_unknown_group_is_refused_before_reading():
    with pytest.raises(ConfigurationError, match="'colour'"):
        read_reports(None, [["colour"]], CallFilter())  # type: ignore[arg-type]


def _body(prompt: int, completion: int, **details: int) -> dict:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if details:
        usage["completion_tokens_details"] = details
    return {"id": "x", "choices": [{"index": 0, "message": {"content": "hi"}}], "usage": usage}


@pytest.fixture
def configured(openai_server: OpenAIServer, tmp_path: Path) -> dict:
    file = tmp_path / "specclient.toml"
    file.write_text(
        f'[providers.mine]\nbase_url = "{openai_server.base_url}"\n[prices."mine/*"]\ninput = 2\noutput = 8\n'
    )
    return {"config": file, "ledger": str(tmp_path / "ledger.db")}


ASK = {"model": "mine/m", "messages": [{"role": "user", "content": "x"}]}


def test_a_client_reports_its_costs(openai_server, configured):
    openai_server.script(reply(200, _body(100, 50)), reply(200, _body(1, 0)))
    with OpenAI(**configured) as client:
        spent = [client.chat.completions.create(**ASK, tags={"team": team}).meta.cost.total for team in "ab"]
        report = client.costs.report("provider,tag:team", since="1h")
        assert [(line.group, line.cost) for line in report.lines] == [
            (("mine", "a"), spent[0]),
            (("mine", "b"), spent[1]),
        ]
        assert client.costs.report(tags={"team": "b"}, provider="mine").total.cost == spent[1]
        assert client.costs.report(until="1h").total.calls == 0
        assert client.costs.savings() == ()
        with pytest.raises(ConfigurationError, match="'soon'"):
            client.costs.report(since="soon")
        assert client.with_options(timeout=3).costs.report().total.calls == 2


@pytest.mark.anyio
async def test_an_asynchronous_client_reports_the_same(openai_server, configured):
    openai_server.script(reply(200, _body(100, 50)))
    async with AsyncOpenAI(**configured) as client:
        answer = await client.chat.completions.create(**ASK)
        assert (await client.costs.report()).total.cost == answer.meta.cost.total
        assert await client.costs.savings("strategy") == ()


def test_a_strategy_calls_cost_is_the_sum_of_its_parts_counted_once(openai_server, configured):
    details = {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 4}
    openai_server.script(reply(200, _body(20, 8)), reply(200, _body(20, 14, **details)))
    with OpenAI(**configured) as client:
        answer = client.chat.completions.create(
            **ASK, strategy=Strategy(kind="prediction", draft="mine/small")
        )
        report = client.costs.report("strategy,model")
    assert len(openai_server.requests) == 2
    assert report.total.cost == answer.meta.cost.total
    assert (report.total.calls, report.total.parts) == (2, 2)
