"""The dashboard's sections: the answers, the page and its script follow from the list of them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import dashboard_section
import pytest
from dashboard_ledger import filled
from gateway_server import Served
from ledger_fixtures import build_call
from paths import ROOT

from specclient.ledger.ledger import Ledger
from specclient.serving.dashboard.figures import figures, server_figures
from specclient.serving.dashboard.ledger_data import read_data
from specclient.serving.dashboard.recent import RecentCalls
from specclient.serving.dashboard.sections import alarms
from specclient.serving.dashboard.sections.listing import SECTIONS
from specclient.serving.dashboard.sections.section import ServerSection, ServerState
from specclient.serving.dashboard.spans import SPANS
from specclient.types.usage import Cost, Usage

NOTHING_RUNS = ServerState(running=0, waiting=0, entries=[], clock_s=0)


def _answer(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
    return body.decode()


def test_a_section_is_one_object_and_one_entry_of_the_list(
    tmp_path: Path, gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = gateway.service.dashboard
    ledger = filled(tmp_path / "ledger.db")
    monkeypatch.setattr(served, "_recent", ledger)
    for listed in (SECTIONS, (*SECTIONS, dashboard_section.SECTION)):
        monkeypatch.setattr(served, "sections", listed)
        monkeypatch.setattr(served, "_read", {})
        found = json.loads(_answer(f"{gateway.url}/dashboard/figures?span=30d"))
        page = _answer(f"{gateway.url}/dashboard")
        ids = re.findall(r'<div id="(\w+)"></div></section>', page)
        assert ids == [section.id for section in listed]
        if listed is SECTIONS:
            assert "statuses" not in found.keys() | found["sections"].keys()
    ledger.close()
    assert found["statuses"] == {"ok": 113, "error": 7}
    subtitle, content = found["sections"]["statuses"]
    assert subtitle == ["last 30 days"]
    assert [tag for tag, _, _ in content] == ["chart", "table"]
    assert content[0][2][0].startswith('<ul class="bars">')
    assert '["data", {"value": "113"}, ["113"]]' in json.dumps(content[1])
    assert 'class="card wide" aria-labelledby="statuses-title"' in page
    assert '<h2 id="statuses-title">Calls by &lt;status&gt;</h2>' in page


def test_every_section_names_its_queries_and_has_values_of_its_own(tmp_path: Path) -> None:
    now, ledger = datetime.now(UTC), filled(tmp_path / "ledger.db")
    names = Counter(section.id for section in SECTIONS)
    assert max(names.values()) == 1
    values = Counter([*figures(ledger, "24h", now, ()), *server_figures(NOTHING_RUNS, ())])
    values.subtract(["tiles", "sections"])  # of both
    for section in SECTIONS:
        if isinstance(section, ServerSection):
            values.update(section.values(NOTHING_RUNS).keys())
            continue
        for span in SPANS.values():
            read = read_data(ledger, span, now, section.queries)
            found = section.values(read)
            assert section.view(found, read).content
        values.update(found.keys())
    ledger.close()
    assert {name for name, count in values.items() if count > 1} == set()


def test_the_script_reads_only_existing_values(tmp_path: Path) -> None:
    script = (ROOT / "specclient" / "serving" / "dashboard" / "assets" / "app.js").read_text()
    ledger = filled(tmp_path / "ledger.db")
    of_ledger, of_server = figures(ledger, "24h", datetime.now(UTC)), server_figures(NOTHING_RUNS)
    ledger.close()
    read = set(re.findall(r"\bfigures\??\.(\w+)", script))
    assert {"span", "empty", "tiles", "sections"} <= read <= set(of_ledger)
    read = set(re.findall(r"\blive\??\.(\w+)", script))
    assert {"tiles", "sections"} <= read <= {*of_server, "ledger", "model", "version"}


def test_alarms_are_shown_and_kept_for_ten_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, ledger = datetime.now(UTC).replace(minute=5), Ledger(str(tmp_path / "ledger.db"))
    for day in range(29):
        cost = Cost(Decimal(40 if day == 0 else 2), source="x")
        at = now - timedelta(days=day, hours=2)
        tags = {"key": "<ci>"}
        ledger.submit(build_call(f"c{day}", "mine/m", started_at=at, cost=cost, usage=Usage(1, 1), tags=tags))
    ledger.flush()
    read = read_data(ledger, SPANS["24h"], now, ())
    found = alarms.SECTION.values(read)
    names = [(each["by"], each["name"], Decimal(each["cost"])) for each in found["alarms"]]
    assert names == [("model", "mine/m", 40), ("key", "<ci>", 40)]
    shown = json.dumps(alarms.SECTION.view(found, read).content)
    assert '["<ci>"]' in shown
    assert '"data-alarm": "key <ci>"' in shown
    assert '["data", {"value": "40.000000000"}, ["$40.00"]]' in shown
    ledger.submit(build_call("late", "mine/n", started_at=now - timedelta(hours=3), cost=Cost(Decimal(9))))
    ledger.flush()
    assert alarms.SECTION.values(read) == found, "the same minutes are not read again"
    later = read_data(ledger, SPANS["24h"], now + timedelta(minutes=10), ())
    assert len(alarms.SECTION.values(later)["alarms"]) == 3
    monkeypatch.setattr(alarms, "_MOST", 2)
    few = alarms.SECTION.values(later)
    assert (len(few["alarms"]), few["alarms_more"]) == (2, 1)
    assert "1 more" in json.dumps(alarms.SECTION.view(few, later).content)
    ledger.close()


def test_recent_calls_without_a_ledger_have_alarms_too() -> None:
    now, recent = datetime.now(UTC), RecentCalls()
    recent.add(build_call("a", started_at=now - timedelta(hours=2), cost=Cost(Decimal(9)), tags={"key": "k"}))
    (only,) = recent.tag_costs(now - timedelta(hours=5), now)
    assert (only[1:], only[0].minute) == (({"key": "k"}, 9 * 10**9), 0)
    assert alarms.SECTION.values(read_data(recent, SPANS["24h"], now, ()))["alarms"] == []
