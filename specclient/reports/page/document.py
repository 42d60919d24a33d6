"""The HTML report: one file with charts and tables that needs no network.

A content security policy in the page allows only the script of this module to run and nothing to be loaded,
so a name in the ledger cannot inject anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.resources import files

from specclient.reports.page.sections import acceptance, by_model, latencies, over_time
from specclient.reports.page.tables import report_table, savings_table
from specclient.reports.reader import CallFilter, LedgerReader, ReportSet, read_reports
from specclient.reports.report import CostReport
from specclient.reports.savings import SavingsBy
from specclient.reports.text import UNKNOWN, cost_of, format_percent, format_seconds, notes

__all__ = ["page_asset", "render_page"]

_TITLE = "Cost of calls"


def render_page(
    ledger: LedgerReader, by: Sequence[str], where: CallFilter, *, now: datetime, name: str
) -> str:
    """Return the report as an HTML page.

    Args:
        ledger: the ledger to read.
        by: the groups of the main table, see :data:`specclient.reports.report.GROUPS`.
        where: selects the calls.
        now: the time of the report, UTC.
        name: the ledger's name, shown in the header.

    Raises:
        ConfigurationError: a group is unknown; the message lists the known ones.
        LedgerError: the ledger cannot be read.
    """
    savings_by: SavingsBy = "strategy" if "strategy" in by and "pair" not in by else "pair"
    groupings = (tuple(by), ("hour", "model"), ("model",), ("pair", "route"))
    read = read_reports(ledger, groupings, where, by=savings_by)
    chosen, hours, models, pairs = read.reports
    source = f"{_span(hours, where)} UTC. Made {now:%Y-%m-%d %H:%M} UTC from {name}{_filters(where)}."
    header = f'<header><h1>{_TITLE}</h1><p class="soft">{escape(source)}</p></header>'
    if not read.calls:
        return _document(f'{header}<p class="empty">No call matches.</p>')
    heading = f"By {', '.join(by)}" if by else "All calls"
    return _document(
        "\n".join(
            [
                header,
                _tiles(chosen),
                _notes(chosen),
                over_time(hours, models),
                f'<div class="pair">{by_model(models)}{latencies(models)}</div>',
                acceptance(pairs),
                _savings(read, savings_by),
                f'<section aria-labelledby="by"><h2 id="by">{escape(heading)}</h2>'
                f"{report_table(chosen)}</section>",
            ]
        )
    )


def page_asset(name: str) -> str:
    """Return the text of a style sheet or script next to this module."""
    return files("specclient.reports.page").joinpath(name).read_text(encoding="utf-8")


def _span(hours: CostReport, where: CallFilter) -> str:
    times = [line.group[0] for line in hours.lines]
    first = f"{where.since:%Y-%m-%d %H:%M}" if where.since else min(times, default="the beginning")
    last = f"{where.until:%Y-%m-%d %H:%M}" if where.until else max(times, default="now")
    return f"From {first} to {last}"


def _filters(where: CallFilter) -> str:
    conditions = [f"{name}={value}" for name, value in where.tags.items()]
    conditions += [f"provider {where.provider}"] if where.provider else []
    conditions += [f"model {where.model}"] if where.model else []
    return f"; only {', '.join(conditions)}" if conditions else ""


def _tiles(report: CostReport) -> str:
    total = report.total
    failed = f"{total.errors:,} failed" if total.errors else "none failed"
    cached = f"{total.tokens_cached:,} cached" if total.tokens_cached else ""
    priced = f"without {total.unpriced:,} unpriced" if total.unpriced else "every call priced"
    latency = total.latency_p50_s
    median = UNKNOWN if latency is None else escape(format_seconds(latency, rounded=report.rounded))
    tiles = [
        ("Cost", _data("cost", f"{total.cost:f}", cost_of(total)), priced),
        ("Calls", _data("calls", total.calls, f"{total.calls:,}"), failed),
        ("Tokens in", _data("in", total.tokens_in, f"{total.tokens_in:,}"), cached),
        ("Tokens out", _data("out", total.tokens_out, f"{total.tokens_out:,}"), ""),
        ("Latency, median", median, "of successful calls"),
    ]
    if total.acceptance_rate is not None:
        accepted = f"{total.accepted:,} of {total.drafted:,} draft tokens"
        tiles.append(("Accepted", escape(format_percent(total.acceptance_rate)), accepted))
    cells = (
        f'<div class="tile"><dt>{title}</dt><dd>{value}<span class="soft">{escape(detail)}</span></dd></div>'
        for title, value, detail in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _data(name: str, value: object, text: str) -> str:
    return f'<data id="{name}" value="{value}">{escape(text)}</data>'


def _notes(report: CostReport) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes(report))
    return f'<ul class="marks" aria-label="What the marks mean">{items}</ul>' if items else ""


def _savings(read: ReportSet, by: SavingsBy) -> str:
    if not read.savings:
        return ""
    return (
        '<section aria-labelledby="saved"><h2 id="saved">Savings by speculation</h2>'
        '<p class="soft">Measured figures, compared with an estimate of the cost and time of the target '
        "model alone. The text below each line states the basis of the estimate.</p>"
        f"{savings_table(read.savings, by)}</section>"
    )


def _document(body: str) -> str:
    style = page_asset("style.css") + page_asset("charts.css")
    script = page_asset("tips.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_TITLE}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )
