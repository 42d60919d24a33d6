"""Turn a ledger into one page that needs nothing else: charts, tables of the same figures, no network.

A policy in the page lets nothing run or load but what this module wrote, whatever the names in it hold.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.resources import files

from specclient.reports.lines import ReportLine
from specclient.reports.page.sections import acceptance, by_model, latencies, over_time
from specclient.reports.page.tables import report_table, savings_table
from specclient.reports.reader import CallFilter, LedgerReader, ReportSet, read_reports
from specclient.reports.report import CostReport
from specclient.reports.savings import SavingsBy
from specclient.reports.text import UNKNOWN, cost_of, format_percent, format_seconds, notes

__all__ = ["render_page"]


def render_page(
    ledger: LedgerReader, by: Sequence[str], where: CallFilter, *, now: datetime, name: str
) -> str:
    """Return the page.

    Args:
        by: what the table groups by, see :data:`specclient.reports.report.GROUPS`.
        now: when it is made.
        name: of the ledger, as people know it.

    Raises:
        ConfigurationError: an unknown group name, with those there are.
        LedgerError: the ledger cannot be read.
    """
    saved_by: SavingsBy = "strategy" if "strategy" in by and "pair" not in by else "pair"
    groupings = (tuple(by), ("hour", "model"), ("model",), ("pair", "route"))
    found = read_reports(ledger, groupings, where, by=saved_by)
    asked, hours, models, pairs = found.reports
    told = f"{_span(hours, where)} UTC. Made {now:%Y-%m-%d %H:%M} UTC from {name}{_filters(where)}."
    if not found.calls:
        return _whole(
            "<header><h1>What calls cost</h1>"
            f'<p class="soft">{escape(told)}</p></header><p class="empty">No call matches.</p>'
        )
    parts = [
        f'<header><h1>What calls cost</h1><p class="soft">{escape(told)}</p></header>',
        _tiles(asked),
        _marks(asked),
        over_time(hours, models),
        f'<div class="pair">{by_model(models)}{latencies(models)}</div>',
        acceptance(pairs),
        _savings(found, saved_by),
        '<section aria-labelledby="by"><h2 id="by">'
        f"{escape('By ' + ', '.join(by) if by else 'All calls')}</h2>{report_table(asked)}</section>",
    ]
    return _whole("\n".join(parts))


def _span(hours: CostReport, where: CallFilter) -> str:
    times = [line.group[0] for line in hours.lines]
    first = f"{where.since:%Y-%m-%d %H:%M}" if where.since else min(times, default="the beginning")
    last = f"{where.until:%Y-%m-%d %H:%M}" if where.until else max(times, default="now")
    return f"From {first} to {last}"


def _filters(where: CallFilter) -> str:
    told = [f"{name}={value}" for name, value in where.tags.items()]
    told += [f"provider {where.provider}"] if where.provider else []
    told += [f"model {where.model}"] if where.model else []
    return f"; only {', '.join(told)}" if told else ""


def _tiles(report: CostReport) -> str:
    total = report.total
    failed = f"{total.errors:,} failed" if total.errors else "none failed"
    cached = f"{total.tokens_cached:,} cached" if total.tokens_cached else ""
    tiles = [
        ("Cost", f'<data id="cost" value="{total.cost:f}">{escape(cost_of(total))}</data>', _of_cost(total)),
        ("Calls", f'<data id="calls" value="{total.calls}">{total.calls:,}</data>', failed),
        ("Tokens in", f'<data id="in" value="{total.tokens_in}">{total.tokens_in:,}</data>', cached),
        ("Tokens out", f'<data id="out" value="{total.tokens_out}">{total.tokens_out:,}</data>', ""),
        ("Latency, median", _seconds(total.latency_p50_s, rounded=report.rounded), "of calls that succeeded"),
    ]
    if total.acceptance_rate is not None:
        kept = f"{total.accepted:,} of {total.drafted:,} draft tokens"
        tiles.append(("Accepted", escape(format_percent(total.acceptance_rate)), kept))
    cells = (
        f'<div class="tile"><dt>{title}</dt><dd>{value}<span class="soft">{escape(beside)}</span></dd></div>'
        for title, value, beside in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _of_cost(total: ReportLine) -> str:
    return f"without {total.unpriced:,} unpriced" if total.unpriced else "every call priced"


def _seconds(value: float | None, *, rounded: bool) -> str:
    return UNKNOWN if value is None else escape(format_seconds(value, rounded=rounded))


def _marks(report: CostReport) -> str:
    said = "".join(f"<li>{escape(note)}</li>" for note in notes(report))
    return f'<ul class="marks" aria-label="What the marks mean">{said}</ul>' if said else ""


def _savings(found: ReportSet, by: SavingsBy) -> str:
    if not found.savings:
        return ""
    return (
        '<section aria-labelledby="saved"><h2 id="saved">What speculation saved</h2>'
        '<p class="soft">Measured, against what the target alone would have cost and taken. That was not '
        "measured: what it rests on stands under each line.</p>"
        f"{savings_table(found.savings, by)}</section>"
    )


def _whole(body: str) -> str:
    style, script = _part("style.css"), _part("tips.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>What calls cost</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _part(name: str) -> str:
    return files("specclient.reports.page").joinpath(name).read_text(encoding="utf-8")
