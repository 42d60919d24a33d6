"""``client.costs``: reports from the ledger, and the savings by speculation.

It is not a resource of the OpenAI API and sends no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specclient.reports.reader import CallFilter, matching_rows, read_reports
from specclient.reports.report import CostReport, parse_since
from specclient.reports.savings import Saving, SavingsBy, savings
from specclient.runtime.event_loop import run_in_thread

if TYPE_CHECKING:
    from specclient.ledger.ledger import Ledger

__all__ = ["AsyncCosts", "Costs"]

TimeArgument = datetime | str | None


class Costs:
    """``client.costs`` of a synchronous client.

    Args:
        ledger: returns the ledger; called for each report.
    """

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._ledger = ledger

    def report(
        self,
        by: str | Sequence[str] = ("provider", "model"),
        *,
        since: TimeArgument = None,
        until: TimeArgument = None,
        provider: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> CostReport:
        """Return sums over the calls in the ledger, including those of other programs.

        Args:
            by: names of :data:`specclient.reports.report.GROUPS`, or ``tag:NAME``; a list, or one string with
                commas.
            since, until: only calls that started in ``[since, until)``: a datetime or a text such as ``7d``,
                ``24h``, ``2026-01-31`` (UTC).
            provider: only calls served by this provider.
            model: only calls of this model, with or without its provider.
            tags: only calls with all these tags.

        Raises:
            ConfigurationError: a name or a time is invalid; the message says what is allowed.
            LedgerError: the ledger cannot be read.
        """
        names = tuple(name.strip() for name in by.split(",")) if isinstance(by, str) else tuple(by)
        where = _where(since, until, provider, model, tags)
        return read_reports(self._ledger(), [names], where).reports[0]

    def savings(
        self,
        by: SavingsBy = "pair",
        *,
        since: TimeArgument = None,
        until: TimeArgument = None,
        provider: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> tuple[Saving, ...]:
        """Compare speculative calls with their targets alone; see :mod:`specclient.reports.savings`.

        Reads every row of the time span: about 20,000 rows per second.

        Args:
            by: ``pair`` or ``strategy``; the other arguments as in :meth:`report`.

        Raises:
            ConfigurationError, LedgerError: as in :meth:`report`.
        """
        where = _where(since, until, provider, model, tags)
        return savings(matching_rows(self._ledger().iterate(where.since, where.until), where), by)


class AsyncCosts:
    """``client.costs`` of an asynchronous client; reads the ledger in a thread. See :class:`Costs`."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._costs = Costs(ledger)

    async def report(
        self,
        by: str | Sequence[str] = ("provider", "model"),
        *,
        since: TimeArgument = None,
        until: TimeArgument = None,
        provider: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> CostReport:
        """Return sums over the calls in the ledger; see :meth:`Costs.report`."""
        return await run_in_thread(
            lambda: self._costs.report(
                by, since=since, until=until, provider=provider, model=model, tags=tags
            )
        )

    async def savings(
        self,
        by: SavingsBy = "pair",
        *,
        since: TimeArgument = None,
        until: TimeArgument = None,
        provider: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> tuple[Saving, ...]:
        """Compare speculative calls with their targets alone; see :meth:`Costs.savings`."""
        return await run_in_thread(
            lambda: self._costs.savings(
                by, since=since, until=until, provider=provider, model=model, tags=tags
            )
        )


def _where(
    since: TimeArgument,
    until: TimeArgument,
    provider: str | None,
    model: str | None,
    tags: Mapping[str, str] | None,
) -> CallFilter:
    now = datetime.now(UTC)
    first, last = (parse_since(at, now) if isinstance(at, str) else at for at in (since, until))
    return CallFilter(since=first, until=last, provider=provider, model=model, tags=dict(tags or {}))
