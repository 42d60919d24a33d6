"""Dashboard figures: they equal the ledger's and require the key; the page loads nothing from other hosts."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest
from dashboard_ledger import ROUTES, filled
from gateway_server import Served, upstream_settings
from ledger_fixtures import build_call
from loopback_server import OpenAIServer

from specclient.config import Settings
from specclient.ledger.figures import percentile
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow
from specclient.reports.reader import CallFilter, read_reports
from specclient.serving.dashboard import ledger_data
from specclient.serving.dashboard.figures import figures
from specclient.serving.dashboard.page import PAGE
from specclient.serving.dashboard.spans import DAYS, SPANS
from specclient.types.usage import Cost, Usage

Connect = Callable[[str], openai.OpenAI]


def fetched(url: str, key: str | None = None) -> tuple[Any, str]:
    """Return a response's headers and body."""
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers, answer.read().decode()


def refused(url: str, key: str | None = None) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetched(url, key)
    caught.value.close()
    return caught.value.code


def test_the_page_loads_nothing_from_other_hosts(gateway: Served) -> None:
    for path in PAGE:
        headers, text = fetched(gateway.url + path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"https?://", text.replace("http://www.w3.org/2000/svg", "")), path
        assert not re.search(r"(src|href|url\(|from)\s*=?\s*[\"']?//", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text), path
    _, page = fetched(f"{gateway.url}/dashboard")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page), (
        "the content security policy forbids inline scripts and styles"
    )
    named = set(re.findall(r'(?:src|href)="(/[^"]+)"', page))
    scripts = "".join(fetched(gateway.url + path)[1] for path in PAGE if path.endswith(".js"))
    named |= {f"/dashboard/{name}" for name in re.findall(r'from "\./([^"]+)"', scripts)}
    assert named | {"/dashboard"} == set(PAGE)


def test_figures_require_the_key(openai_server: OpenAIServer) -> None:
    with Served(upstream_settings(openai_server), key="sk-ours") as served:
        assert "<title>" in fetched(f"{served.url}/dashboard")[1]
        for path in ("live", "figures?span=1h"):
            assert refused(f"{served.url}/dashboard/{path}") == 401
            assert refused(f"{served.url}/dashboard/{path}", "sk-other") == 401
            assert json.loads(fetched(f"{served.url}/dashboard/{path}", "sk-ours")[1])
        assert refused(f"{served.url}/dashboard/figures?span=2h", "sk-ours") == 400


@pytest.mark.parametrize("span", SPANS)
def test_figures_equal_the_ledgers(tmp_path: Path, span: str) -> None:
    ledger = filled(tmp_path / "ledger.db")
    now = datetime.now(UTC)
    found = figures(ledger, span, now)
    since = SPANS[span].begins(now)
    assert found["since"] == since.isoformat()
    report = read_reports(ledger, [("route",)], CallFilter(since=since)).reports[0]
    total = found["total"]
    assert total["calls"] == report.total.calls > 0
    assert Decimal(total["cost"]) == report.total.cost > 0
    assert (total["drafted"], total["accepted"]) == (report.total.drafted, report.total.accepted)
    assert [(line["name"], Decimal(line["cost"]), line["calls"]) for line in found["models"]] == [
        (line.group[0], line.cost, line.calls) for line in report.lines
    ]
    assert sum(found["rate"]["tokens"]) == total["tokens_out"] == report.total.tokens_out
    assert len(found["rate"]["tokens"]) == SPANS[span].count

    month = read_reports(ledger, [("day",)], CallFilter(since=SPANS["30d"].begins(now))).reports[0]
    by_day: dict[str, Decimal] = {}
    for line in found["days"]["lines"]:
        by_day[line["day"]] = by_day.get(line["day"], Decimal(0)) + Decimal(line["cost"])
    assert by_day == {line.group[0]: line.cost for line in month.lines}
    assert set(by_day) <= set(found["days"]["days"])
    assert len(found["days"]["days"]) == DAYS

    rows = [row for row in ledger.iterate(since) if row.status == "ok"]
    first, each, whole = found["latency"]
    assert first["values"][1] == percentile(sorted(row.ttft_s or 0 for row in rows), 0.95)
    per_token = sorted((r.latency_s - (r.ttft_s or 0)) / ((r.completion_tokens or 0) - 1) for r in rows)
    assert each["values"][0] == pytest.approx(percentile(per_token, 0.5))
    assert whole["values"] == [
        report.total.latency_p50_s,
        report.total.latency_p95_s,
        report.total.latency_p99_s,
    ]
    ledger.close()


def test_listed_routing_choices_state_their_reasons(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger.db")
    found = figures(ledger, "30d", datetime.now(UTC))
    ledger.close()
    times = [choice["at"] for choice in found["choices"]]
    assert times == sorted(times, reverse=True)
    routed = next(choice for choice in found["choices"] if choice["requested"] == "auto")
    assert routed["reason"] == "the cheapest of three"
    assert [candidate["route"] for candidate in routed["candidates"]] == list(ROUTES)
    assert sum(line["calls"] for line in found["routes"]) == found["total"]["calls"]
    (pair,) = found["pairs"]
    assert (pair["name"], pair["kind"]) == ("target+draft", "draft")
    assert pair["rate"] == pair["accepted"] / pair["drafted"]


def test_costs_of_estimated_tokens_are_marked_as_estimates(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger.db"))
    for name, usage in (("counted", Usage(10, 5)), ("estimated", Usage(10, 5, estimated=True))):
        cost = Cost(Decimal("0.01"), {"input": Decimal("0.01")})
        ledger.submit(build_call(id=name, usage=usage, cost=cost, started_at=datetime.now(UTC)))
    ledger.flush()
    found = figures(ledger, "24h", datetime.now(UTC))
    ledger.close()
    shown = {choice["id"]: choice["cost_text"] for choice in found["choices"]}
    assert shown["estimated"] == f"~{shown['counted']}"


def test_spans_start_at_whole_steps() -> None:
    now = datetime(2026, 3, 1, 10, 30, 20, tzinfo=UTC)
    assert SPANS["1h"].begins(now) == datetime(2026, 3, 1, 9, 31, tzinfo=UTC)
    assert SPANS["24h"].begins(now) == datetime(2026, 2, 28, 11, tzinfo=UTC)
    assert SPANS["30d"].begins(now) == datetime(2026, 1, 31, tzinfo=UTC)


def test_without_a_ledger_the_latest_calls_are_kept_in_memory(connect: Connect, gateway: Served) -> None:
    client = connect(gateway.base_url)
    answer = client.chat.completions.create(model="mine/m-large", messages=[{"role": "user", "content": "x"}])
    assert answer.usage is not None
    spent = Decimal(2 * answer.usage.prompt_tokens + 8 * answer.usage.completion_tokens).scaleb(-6)
    for span in SPANS:
        found = json.loads(fetched(f"{gateway.url}/dashboard/figures?span={span}")[1])
        assert (found["total"]["calls"], Decimal(found["total"]["cost"])) == (1, spent)
        assert sum(found["rate"]["tokens"]) == answer.usage.completion_tokens
    assert json.loads(fetched(f"{gateway.url}/dashboard/live")[1])["ledger"] is False


def test_figures_are_cached_for_a_short_time(
    connect: Connect, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    with Served(upstream_settings(openai_server, ledger=str(tmp_path / "ledger.db"))) as served:
        clock = [0.0]
        served.service.dashboard._clock = lambda: clock[0]
        client = connect(served.base_url)
        seen = []
        for clock[0] in (0.0, 1.0, 3.0):
            client.chat.completions.create(model="mine/m-large", messages=[{"role": "user", "content": "x"}])
            found = json.loads(fetched(f"{served.url}/dashboard/figures")[1])
            seen.append(found["total"]["calls"])
    assert seen == [1, 1, 3]


def test_an_unreadable_ledger_is_reported_without_its_path(tmp_path: Path) -> None:
    path = tmp_path / "secret-place.db"
    path.write_bytes(b"no database at all, and long enough to be taken for one" * 40)
    with Served(Settings.model_validate({"ledger": str(path)})) as served:
        request = f"{served.url}/dashboard/figures"
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetched(request)
        assert caught.value.code == 503
        assert "secret-place" not in caught.value.read().decode()


def test_tokens_per_second_cover_the_last_minute(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger.db")
    (last,) = ledger.rows(limit=1)
    ended = last.started_at + timedelta(seconds=last.latency_s)
    soon, late = (figures(ledger, "1h", ended + timedelta(seconds=s)) for s in (59, 61))
    assert soon["now_tokens_per_s"] == (last.completion_tokens or 0) / 60 > 0
    assert late["now_tokens_per_s"] == 0
    ledger.close()


class _CountedLedger(Ledger):
    """A ledger that counts the rows that are read one by one."""

    read = 0

    def iterate(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[LedgerRow]:
        for row in super().iterate(since, until):
            self.read += 1
            yield row


@pytest.mark.parametrize(("calls", "one_by_one"), [(20, True), (21, False)])
def test_many_calls_are_not_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, one_by_one: bool
) -> None:
    monkeypatch.setattr(ledger_data, "LATEST", 20)
    ledger, now = _CountedLedger(str(tmp_path / "ledger.db")), datetime.now(UTC)
    for number in range(calls):
        ledger.submit(build_call(id=f"c{number}", started_at=now - timedelta(hours=3)))
    ledger.flush()
    found = figures(ledger, "24h", now)
    ledger.close()
    assert found["total"]["calls"] == calls
    assert (ledger.read > 0) == one_by_one, "streams wait while rows are read"
