"""The dashboard in a real browser: numbers equal the ledger's, on wide and narrow screens, light and dark."""

from __future__ import annotations

import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import dashboard_section
import pytest
from dashboard_ledger import EVIL, filled
from gateway_server import Served, upstream_settings
from loopback_server import OpenAIServer, hang

from specclient.config import Settings
from specclient.reports.page.charts import Series, columns
from specclient.reports.reader import CallFilter, read_reports
from specclient.reports.text import cost_of
from specclient.serving import Limits
from specclient.serving.dashboard.sections.listing import SECTIONS
from specclient.serving.dashboard.spans import SPANS

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

#: Options for a browser without the kernel's sandbox and without background requests.
BROWSER_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
KEY = "sk-dashboard-key"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as playwright_api:
        chromium = playwright_api.chromium.launch(executable_path=CHROMIUM, args=BROWSER_OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a key and a ledger of a month's calls."""
    path = tmp_path_factory.mktemp("dashboard") / "ledger.db"
    filled(path).close()
    with Served(Settings.model_validate({"ledger": str(path), "local": {"threads": 1}}), key=KEY) as made:
        yield made


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a server's dashboard; script errors and requests to other hosts fail the test."""
    contexts, problems = [], []

    def open_page(served: Served, *, width: int = 1280, key: str | None = None, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda sent: problems.append(sent.url) if not sent.url.startswith(served.url) else None
        )
        page.goto(f"{served.url}/dashboard")
        if key is not None:
            page.fill("#key", key)
            page.press("#key", "Enter")
            page.wait_for_selector("#tiles .tile")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def number(page: Any, selector: str) -> Decimal:
    return Decimal(page.get_attribute(selector, "value"))


def choose(page: Any, span: str) -> None:
    with page.expect_response(f"**/dashboard/figures?span={span}"):
        page.check(f"input[value='{span}']", force=True)
    page.wait_for_function(
        "s => document.querySelector('#models-sub').textContent.includes(s)", arg=NAMES[span]
    )


NAMES = {"1h": "hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}


def test_the_pages_numbers_equal_the_ledgers(visit: Callable[..., Any], served: Served) -> None:
    page = visit(served, key=KEY)
    ledger = served.client.ledger
    for span in ("24h", "7d", "30d"):
        if span != "24h":
            choose(page, span)
        since = SPANS[span].begins(served.service.dashboard._now())
        report = read_reports(ledger, [("route",)], CallFilter(since=since)).reports[0]
        assert number(page, "#calls") == report.total.calls > 0
        assert number(page, "#cost") == report.total.cost > 0
        assert page.inner_text("#cost") == cost_of(report.total)
        assert float(number(page, "#acceptance")) == report.total.acceptance_rate
        rows = page.query_selector_all("#models tr[data-model]")
        shown = {
            row.get_attribute("data-model"): [
                Decimal(d.get_attribute("value")) for d in row.query_selector_all("data")
            ]
            for row in rows
        }
        assert shown == {
            line.group[0]: [line.cost, line.calls, line.tokens_in, line.tokens_out] for line in report.lines
        }
        assert number(page, "#models-total data") == report.total.cost
        whole = page.query_selector_all("#latency [data-name=total] data")
        assert [float(d.get_attribute("value")) for d in whole] == [
            report.total.latency_p50_s, report.total.latency_p95_s, report.total.latency_p99_s,
        ]  # fmt: skip
    month = read_reports(
        ledger, [("day", "route")], CallFilter(since=SPANS["30d"].begins(served.service.dashboard._now()))
    )
    days = [Decimal(d.get_attribute("value")) for d in page.query_selector_all("#days-table data")]
    assert sorted(days) == sorted(line.cost for line in month.reports[0].lines)
    assert number(page, "#days-total") == month.reports[0].total.cost == sum(days)


def test_an_entry_of_the_list_of_sections_makes_a_section_of_the_page(
    visit: Callable[..., Any], served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = dashboard_section.SECTION
    monkeypatch.setattr(served.service.dashboard, "sections", (*SECTIONS, section))
    monkeypatch.setattr(served.service.dashboard, "_read", {})
    page = visit(served, key=KEY)
    choose(page, "30d")
    assert page.inner_text("#statuses-title") == section.title
    assert page.inner_text("#statuses-sub") == "last 30 days"
    calls = [int(figure.get_attribute("value")) for figure in page.query_selector_all("#statuses td data")]
    assert sum(calls) == number(page, "#calls") == 120
    assert page.locator("#statuses .bars li").count() == len(calls) == 2


def test_names_are_escaped_and_choices_expand(visit: Callable[..., Any], served: Served) -> None:
    page = visit(served, key=KEY)
    choose(page, "30d")
    assert page.locator("#models th.name", has_text=EVIL).count() == 1
    assert page.locator("main img").count() == 0
    assert page.title() == "specclient dashboard"
    first = page.locator("summary.choice").first
    first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[open] .candidates li").count() == 3
    choose(page, "7d")  # redraws every section
    assert page.locator("details[open] .candidates li").count() == 3


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (375, "light"), (375, "dark")])
def test_the_page_fits_the_screen_with_sufficient_contrast(
    visit: Callable[..., Any], served: Served, width: int, scheme: str
) -> None:
    page = visit(served, key=KEY, width=width, color_scheme=scheme)
    choose(page, "30d")
    page.locator("#days-table").evaluate("node => node.parentElement.open = true")
    page.evaluate(APPEND, SMALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    bad = page.evaluate(CONTRAST)
    assert bad == []
    assert page.evaluate(CUT_OFF) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in ground.removeprefix("rgb(").rstrip(")").split(",")) > 3 * 128
    assert light is (scheme == "light")


#: A chart with long numbers on its axis.
SMALL = columns(
    ["a"], [Series("b", "k0", [0.0000131])], ["c"], height=200, format_value="{:.7f}".format, title="d"
)
APPEND = """markup => document.querySelector("main").append(
  new DOMParser().parseFromString(markup, "text/html").body.firstChild)"""

#: Returns the texts that start left of their chart.
CUT_OFF = """() => {
  return [...document.querySelectorAll(".axis text")]
    .filter((text) => text.getBoundingClientRect().left < text.ownerSVGElement.getBoundingClientRect().left)
    .map((text) => text.textContent);
}"""

#: Returns the texts whose contrast with their background is below 4.5 (WCAG 2.2, 1.4.3).
CONTRAST = """() => {
  const bright = (rgb) => rgb.map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const colour = (text) => {
    const v = text.match(/[\\d.]+/g).map(Number);
    return { rgb: v.slice(0, 3), a: v[3] ?? 1 };
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = colour(getComputedStyle(node).backgroundColor);
      if (found.a === 1) return found.rgb;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!text || !node.checkVisibility() || node.closest(".hidden, .skip, .badge, button")) continue;
    const style = getComputedStyle(node);
    const own = colour(node.closest("svg") ? style.fill : style.color).rgb;
    const [one, other] = [bright(own), bright(behind(node))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) bad.push([node.textContent.slice(0, 30), contrast]);
  }
  return bad;
}"""


def test_a_wrong_key_is_reported_and_the_right_one_is_kept_in_the_tab_only(
    visit: Callable[..., Any], served: Served
) -> None:
    page = visit(served)
    page.wait_for_selector("#ask:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "key"
    page.fill("#key", "sk-wrong")
    page.press("#key", "Enter")
    page.wait_for_function("() => document.querySelector('#key-wrong').textContent !== ''")
    page.fill("#key", KEY)
    page.press("#key", "Enter")
    page.wait_for_selector("#tiles .tile")
    page.reload()
    page.wait_for_selector("#tiles .tile")
    assert page.evaluate("[localStorage.length, document.cookie, location.href.includes('sk-')]") == [
        0,
        "",
        False,
    ]
    page.click("#forget")
    page.wait_for_selector("#ask:not([hidden])")
    assert page.evaluate("sessionStorage.length") == 0


def test_the_page_shows_running_requests_an_empty_ledger_and_a_stopped_server(
    visit: Callable[..., Any], openai_server: OpenAIServer, tmp_path: Path
) -> None:
    settings = upstream_settings(openai_server, ledger=str(tmp_path / "ledger.db"))
    openai_server.script(hang)
    with Served(settings, limits=Limits(grace_s=1)) as served:
        page = visit(served)
        page.wait_for_selector("#empty:not([hidden])")
        assert f"{served.base_url}/chat/completions" in page.inner_text("#curl")
        assert page.locator(".grid").is_hidden()
        body = b'{"model":"mine/m-large","stream":true,"messages":[{"role":"user","content":"x"}]}'
        sent = urllib.request.Request(f"{served.base_url}/chat/completions", body)

        def call() -> None:
            with suppress(OSError):
                urllib.request.urlopen(sent, timeout=30).read()

        thread = threading.Thread(target=call)
        thread.start()
        page.wait_for_function("() => document.querySelector('#running-count').value === '1'")
        served.stop()
        thread.join()
        page.wait_for_selector("#status[data-state=away]")
        assert "does not answer" in page.inner_text("#status")
