"""The report page: exact figures, no network access, and escaped names, also in a browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from specclient.ledger.ledger import Ledger
from specclient.reports.page.charts import Bar, Series, area, bars, columns, ticks
from specclient.reports.page.document import render_page
from specclient.reports.reader import CallFilter, read_reports
from specclient.types.call import Call
from specclient.types.route import Decision
from specclient.types.usage import Cost, Speculation, Usage

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVIL = 'mine/<script>document.title="owned"</script><img src=x onerror=alert(1)>"\''

#: Elements without an end tag.
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Document(HTMLParser):
    """A parsed page: exact amounts by element, text, references and handlers; checks balanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.ids: dict[str, str] = {}
        self.table_costs: list[Decimal] = []
        self.text = ""
        self._section: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.append(tag)
        self.references += [
            f"{name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href")
        ]
        self.references += [f"{name}={value}" for name, value in attrs if name.startswith("on")]
        if tag == "section":
            self._section = known.get("aria-labelledby")
        if tag == "data" and known.get("id"):
            self.ids[str(known["id"])] = str(known["value"])
        elif tag == "data" and self._section == "by":
            self.table_costs.append(Decimal(str(known["value"])))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += data


def _call(number: int, route: str, hours: float, **facts) -> Call:
    provider, _, model = route.partition("/")
    decision = Decision(chosen=route, provider=provider, model=model, candidates=())
    return Call(
        id=f"c{number}", operation="chat", model=route, route=decision,
        started_at=NOW - timedelta(hours=hours),
        **({"status": "ok"} | facts),
    )  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    created = Ledger(str(tmp_path / "ledger.db"))
    drafted = Speculation(method="draft", drafted=40, accepted=30, steps=10)
    for number in range(40):
        created.submit(
            _call(
                number,
                ("openai/gpt-4.1", EVIL, "local/demo")[number % 3],
                hours=number * 11,
                usage=Usage(prompt=10 + number, completion=50),
                cost=Cost(Decimal("0.001234567") * (number + 1), estimated=number % 3 == 2),
                speculation=drafted if number % 3 == 2 else None,
                latency_s=0.1 * (number + 1),
            )
        )
    created.submit(_call(98, "mine/free", hours=2, usage=Usage(prompt=1, completion=1), latency_s=1.0))
    created.submit(
        _call(99, "mine/free", hours=3, status="error", error="APIStatusError", cost=Cost(Decimal(0)))
    )
    created.flush()
    yield created
    created.close()


def render(ledger: Ledger, by: tuple[str, ...] = ("provider", "model"), **where) -> str:
    return render_page(ledger, by, CallFilter(**where), now=NOW, name="<here>")


def check_figures(document: Document, ledger: Ledger) -> None:
    report = read_reports(ledger, [("provider", "model")], CallFilter()).reports[0]
    assert Decimal(document.ids["cost"]) == report.total.cost > 0
    assert [int(document.ids[name]) for name in ("calls", "in", "out")] == [
        report.total.calls,
        report.total.tokens_in,
        report.total.tokens_out,
    ]
    *lines, total = document.table_costs
    assert lines == [line.cost for line in report.lines]
    assert sum(lines) == total == report.total.cost


def test_the_page_contains_the_reports_exact_figures(ledger):
    document = Document(render(ledger))
    assert document.open == []
    check_figures(document, ledger)
    assert "1 call has no known price" in document.text
    assert re.search(r"unpriced\s*unknown", document.text), "unpriced calls have no line of their own"
    assert "~ based on" in document.text
    assert "75%" in document.text, "the pair's acceptance rate is missing"
    assert "openai/gpt-4.1" in document.text
    assert "Savings by speculation" in document.text


def test_the_page_loads_nothing_from_the_network(ledger):
    text = render(ledger)
    document = Document(text)
    assert document.references == []
    assert not {"link", "iframe", "object", "img", "form"} & set(document.tags)
    assert not re.search(r"url\(|@import|https?://", text)
    assert "default-src 'none'" in text


def test_names_are_escaped(ledger):
    text = render(ledger)
    assert EVIL in Document(text).text
    assert "<script>document" not in text
    assert "<img" not in text
    assert "<here>" not in text


def test_every_chart_has_a_title_and_a_table(ledger):
    text = render(ledger)
    figures = re.findall(
        r"<figure id=\"([a-z-]+)\" aria-labelledby=\"\1-title\">.*?</figure>", text, re.DOTALL
    )
    assert figures == ["over-time", "by-model", "latency", "acceptance"]
    for figure in re.findall(r"<figure.*?</figure>", text, re.DOTALL):
        assert "<table>" in figure
        assert "<h2" in figure
    assert len(re.findall(r'role="img" aria-label="[^"]+"', text)) == 1


@pytest.mark.parametrize(("hours", "unit"), [(24, "hour"), (24 * 30, "day"), (24 * 400, "month")])
def test_the_time_unit_of_a_chart_follows_the_time_span(tmp_path, hours, unit):
    ledger = Ledger(str(tmp_path / "l.db"))
    for number, at in enumerate((0, hours)):
        ledger.submit(_call(number, "openai/a", hours=at, cost=Cost(Decimal(1))))
    text = render(ledger)
    ledger.close()
    assert f"Cost by {unit}" in text
    plot = re.search(r'<svg class="plot".*?</svg>', text, re.DOTALL)[0]
    assert plot.count('<rect class="k0"') == 2


def test_a_report_without_matching_calls_says_so(ledger):
    text = render(ledger, provider="nobody", tags={"a": "<b>"})
    assert "No call matches." in text
    assert "<b>" not in text
    assert Document(text).open == []


def test_a_ledger_of_unpriced_calls_draws_no_empty_axes(ledger):
    text = render(ledger, model="mine/free")
    assert "No call has a known cost above zero." in text
    assert Document(text).open == []


def test_ticks_are_round_and_reach_the_top():
    assert ticks(0.33) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert ticks(100) == [0, 20, 40, 60, 80, 100]
    assert ticks(0) == [0, 1]
    for top in (1e-9, 0.0007, 3, 49.9, 12345):
        assert ticks(top)[-1] >= top
        assert len(ticks(top)) <= 6


def test_column_heights_are_proportional_to_their_values():
    drawn = columns(
        ["a", "b"],
        [Series("x", "k0", [1.0, 2.0]), Series("y", "k1", [0.0, 2.0])],
        ["one", "<two>"],
        height=232, format_value=str, title="t",
    )  # fmt: skip
    tall = [float(height) for height in re.findall(r'<rect class="k[^>]*height="([\d.]+)"', drawn)]
    assert tall == [49.0, 99.0, 99.0], "200 pixels for the value 4, less a gap of one pixel"
    assert "&lt;two&gt;" in drawn


def test_bars_stay_within_their_track():
    assert 'width="100.00%"' in bars([Bar("a", 7.0, "", "", "")])
    assert "<rect" not in bars([Bar("a", 0.0, "", "", "")])


@pytest.fixture(scope="session")
def browser() -> Callable[[Path, str], str]:
    """Return a function that renders a page in Chromium and returns its DOM after scripts have run."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")

    def dump(file: Path, *options: str) -> str:
        command = [
            found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={file.parent / 'profile'}", *options, "--dump-dom", file.as_uri(),
        ]  # fmt: skip
        environment = {**os.environ, "HOME": str(file.parent)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env=environment
        )
        if done.returncode != 0:
            pytest.skip(f"Chromium does not start here: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    return dump


def test_a_browser_shows_the_figures_and_executes_no_name(ledger, tmp_path, browser):
    file = tmp_path / "page.html"
    file.write_text(render(ledger), encoding="utf-8")
    shown = browser(file, "--window-size=390,800")
    document = Document(shown)
    check_figures(document, ledger)
    assert "<title>Cost of calls</title>" in shown, "a name changed the title"
    assert '<div id="tip"' in shown, "the page's own script did not run"
    assert "img" not in document.tags
    assert EVIL in document.text


def test_the_page_fits_a_phones_width(ledger, tmp_path, browser):
    inner = re.sub(r"<meta http-equiv[^>]*>", "", render(ledger)).replace("<details>", "<details open>")
    frames = "".join(
        f'<iframe width="{width}" height="900" srcdoc="{escape(inner)}"></iframe>' for width in (320, 390)
    )
    measure = (
        "onload = () => document.title = 'needs ' + [...document.querySelectorAll('iframe')].map(f => "
        "f.contentDocument.documentElement.scrollWidth - f.contentWindow.innerWidth > 0)"
    )
    file = tmp_path / "phones.html"
    file.write_text(f"<title>x</title>{frames}<script>{measure}</script>", encoding="utf-8")
    assert "<title>needs false,false</title>" in browser(file, "--virtual-time-budget=3000")


def test_area_heights_are_proportional_and_labels_are_thinned():
    labels = [f"{hour}:00" for hour in range(24)]
    drawn = area(
        labels, [float(hour) for hour in range(24)], labels, height=232, format_value=str, title="<t>"
    )
    assert 'aria-label="&lt;t&gt;"' in drawn
    heights = re.findall(r'cy="([\d.]+)"', drawn)
    assert (heights[0], heights[20]) == ("208.00", f"{208 - 20 * 200 / 25:.2f}"), (
        "200 pixels for the value 25"
    )
    shown = re.findall(r"<text( class=\"extra\")? x=[^>]*>(\d+):00<", drawn)
    assert [hour for _, hour in shown] == [str(hour) for hour in range(0, 24, 2)]
    assert [hour for extra, hour in shown if not extra] == ["0", "6", "12", "18"]
