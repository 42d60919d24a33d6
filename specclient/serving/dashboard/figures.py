"""The values that the page fetches as JSON: figures of the ledger, and the state of the server.

Both have exact values for programs, and under ``tiles`` and ``sections`` the elements that the page shows, in
the form of :mod:`specclient.serving.dashboard.elements`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from specclient.serving.dashboard.ledger_data import BY_ROUTE, MONTH_BY_ROUTE, CallSource, read_data
from specclient.serving.dashboard.sections.listing import SECTIONS, AnySection
from specclient.serving.dashboard.sections.section import LedgerSection, ServerSection, ServerState
from specclient.serving.dashboard.spans import SPANS
from specclient.serving.dashboard.tiles import current_tokens_per_s, ledger_tiles, server_tiles
from specclient.serving.dashboard.totals import total_values

__all__ = ["figures", "server_figures"]


def figures(
    source: CallSource, name: str, now: datetime, sections: Sequence[AnySection] = SECTIONS
) -> dict[str, Any]:
    """Return the figures of a time span.

    Args:
        source: a ledger, or the recent calls of a server without one.
        name: a key of :data:`~specclient.serving.dashboard.spans.SPANS`.
        now: UTC.
        sections: the sections of the page; those of the ledger are read.

    Raises:
        LedgerError: the ledger cannot be read; the message names it and what to do.
    """
    span = SPANS[name]
    shown = [section for section in sections if isinstance(section, LedgerSection)]
    queries = [BY_ROUTE, MONTH_BY_ROUTE, *(query for section in shown for query in section.queries)]
    read = read_data(source, span, now, queries)
    values = {section.id: section.values(read) for section in shown}
    total, tokens_per_s = total_values(read.reports[BY_ROUTE]), current_tokens_per_s(read)
    return {
        "at": now.isoformat(),
        "since": span.begins(now).isoformat(),
        "span": name,
        "span_title": span.title,
        "total": total,
        "now_tokens_per_s": tokens_per_s,
        "empty": not total["calls"] and not read.reports[MONTH_BY_ROUTE].lines,
        **{name: value for found in values.values() for name, value in found.items()},
        "tiles": ledger_tiles(read, total, tokens_per_s),
        "sections": {section.id: section.view(values[section.id], read) for section in shown},
    }


def server_figures(state: ServerState, sections: Sequence[AnySection] = SECTIONS) -> dict[str, Any]:
    """Return the state of the server.

    Args:
        state: the requests that the server is working on.
        sections: the sections of the page; those of the server's state are made.
    """
    shown = [section for section in sections if isinstance(section, ServerSection)]
    values = {section.id: section.values(state) for section in shown}
    return {
        "running": state.running,
        "waiting": state.waiting,
        **{name: value for found in values.values() for name, value in found.items()},
        "tiles": server_tiles(state.running, state.waiting),
        "sections": {section.id: section.view(values[section.id], state) for section in shown},
    }
