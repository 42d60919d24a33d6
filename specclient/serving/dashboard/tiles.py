"""The tiles at the top of the dashboard: one figure each, with a short remark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from specclient.ledger.figures import percentile
from specclient.serving.dashboard.elements import PageElement, data, element
from specclient.serving.dashboard.ledger_data import LedgerData
from specclient.serving.dashboard.spans import MINUTE
from specclient.serving.dashboard.totals import digits_text, time_text

__all__ = ["current_tokens_per_s", "ledger_tiles", "server_tiles"]


def server_tiles(running: int, waiting: int) -> list[PageElement]:
    """Return the tiles of the server's state.

    Args:
        running, waiting: numbers of requests.
    """
    remark = f"{waiting:,} waiting" if waiting else "none waiting"
    figure = data(running, f"{running:,}", "running-count")
    return [_tile("Running", figure, remark, {"data-busy": running > 0})]


def ledger_tiles(read: LedgerData, total: Mapping[str, Any], tokens_per_s: float) -> list[PageElement]:
    """Return the tiles of the ledger's figures.

    Args:
        read: the calls of the chosen span.
        total: the result of :func:`~specclient.serving.dashboard.totals.total_values`.
        tokens_per_s: the result of :func:`current_tokens_per_s`.
    """
    calls, failed, drafted, acceptance = (
        total[name] for name in ("calls", "errors", "drafted", "acceptance")
    )
    median, high = (percentile(read.first_token_s, part) for part in (0.5, 0.95))
    return [
        _tile(
            "Tokens per second",
            data(tokens_per_s, digits_text(tokens_per_s), "per-s"),
            "over the last minute",
        ),
        _tile("Cost", data(total["cost"], total["cost_text"] if calls else "$0", "cost"), read.span.title),
        _tile(
            "Calls",
            data(calls, f"{calls:,}", "calls"),
            f"{failed:,} failed" if failed else "none failed",
            {"data-failed": failed > 0},
        ),
        _tile(
            "Acceptance",
            data("" if acceptance is None else acceptance, total["acceptance_text"], "acceptance"),
            f"of {drafted:,} drafted tokens" if drafted else "no drafted tokens",
        ),
        _tile(
            "First token",
            data("" if median is None else median, time_text(median), "ttft"),
            f"median; p95 {time_text(high)}",
        ),
    ]


def current_tokens_per_s(read: LedgerData) -> float:
    """Return the tokens per second of the calls that ended within the last minute."""
    ended = (
        row for row in read.latest if read.now - row.started_at - timedelta(seconds=row.latency_s) <= MINUTE
    )
    return sum(row.completion_tokens or 0 for row in ended) / 60


def _tile(
    title: str, figure: PageElement, remark: str, attributes: Mapping[str, str | bool] | None = None
) -> PageElement:
    described = element("dd", {}, figure, element("span", {"class": "soft"}, remark))
    return element("div", {"class": "tile", **(attributes or {})}, element("dt", {}, title), described)
