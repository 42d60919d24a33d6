"""Earlier calls: read from the ledger, so that a new process starts with what others have measured."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from specclient.errors import LedgerError
from specclient.routing.learn.call_sample import CallSample

if TYPE_CHECKING:
    from specclient.ledger.row import LedgerRow

__all__ = ["MEMORY", "CallHistory", "earlier_calls"]

logger = logging.getLogger("specclient")

#: How far back, and how many calls in all, are read from the ledger.
MEMORY = timedelta(days=7)
_ROWS = 500


class CallHistory(Protocol):
    """A source of finished calls: the ledger."""

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[LedgerRow]: ...


def earlier_calls(history: CallHistory, now: float) -> tuple[frozenset[str], list[CallSample]]:
    """Read the newest calls of a history, which reads a file. An unreadable history is logged; it has none.

    Args:
        now: seconds since the epoch.

    Returns:
        The ids of all calls read, and the samples of those that teach something, in the order in which they
        ended.
    """
    try:
        rows = history.rows(since=datetime.fromtimestamp(now, UTC) - MEMORY, limit=_ROWS)
    except LedgerError as error:
        logger.warning("routing starts without earlier calls: %s", error)
        return frozenset(), []
    samples = [sample for row in rows if (sample := CallSample.of_row(row)) is not None]
    return frozenset(row.id for row in rows), sorted(samples, key=lambda each: each.at)
