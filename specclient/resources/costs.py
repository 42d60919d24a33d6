"""Turn ``client.costs`` into what the ledger has to tell: reports, and what speculation saved.

Not a resource of OpenAI's: nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specclient.costs.reports import Report, parse_since
from specclient.costs.reports_read import Where, matching, read
from specclient.costs.savings import By, Saving, savings
from specclient.loops import in_thread

if TYPE_CHECKING:
    from specclient.costs.ledger import Ledger

__all__ = ["AsyncCosts", "Costs"]

Instant = datetime | str | None


class Costs:
    """``client.costs`` of a synchronous client.

    Args:
        ledger: gives what is read, when it is.
    """

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._ledger = ledger

    def report(
        self,
        by: str | Sequence[str] = ("provider", "model"),
        *,
        since: Instant = None,
        until: Instant = None,
        provider: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Report:
        """Sum up the calls in the ledger, those of other programs included.

        Args:
            by: group names of :data:`specclient.costs.reports.GROUPS`, or ``tag:NAME``; also as one string,
                separated by commas.
            since, until: only calls that started in ``[since, until)``: a time, or text such as ``7d``,
                ``24h``, ``2026-01-31`` (UTC).
            provider: only calls that this endpoint served.
            model: only calls of this model, named with its provider or without.
            tags: only calls that carry all of these.

        Raises:
            ConfigurationError: a name or a time that is none, with what is allowed.
            LedgerError: the ledger cannot be read; names it and the way out.
        """
        names = tuple(name.strip() for name in by.split(",")) if isinstance(by, str) else tuple(by)
        where = _where(since, until, provider, model, tags)
        return read(self._ledger(), [names], where).reports[0]

    def savings(
        self,
        by: By = "pair",
        *,
        since: Instant = None,
        until: Instant = None,
        provider: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> tuple[Saving, ...]:
        """Compare the calls that speculated with their targets alone; see :mod:`specclient.costs.savings`.

        Reads every row of the span, which takes about a second for every 20,000.

        Args:
            by: ``pair`` or ``strategy``; the rest as in :meth:`report`.

        Raises:
            ConfigurationError, LedgerError: as in :meth:`report`.
        """
        where = _where(since, until, provider, model, tags)
        return savings(matching(self._ledger().iterate(where.since, where.until), where), by)


class AsyncCosts:
    """``client.costs`` of an asynchronous client; reads in a thread. See :class:`Costs`."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._costs = Costs(ledger)

    async def report(
        self,
        by: str | Sequence[str] = ("provider", "model"),
        *,
        since: Instant = None,
        until: Instant = None,
        provider: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Report:
        """Sum up the calls in the ledger; see :meth:`Costs.report`."""
        return await in_thread(
            lambda: self._costs.report(
                by, since=since, until=until, provider=provider, model=model, tags=tags
            )
        )

    async def savings(
        self,
        by: By = "pair",
        *,
        since: Instant = None,
        until: Instant = None,
        provider: str | None = None,
        model: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> tuple[Saving, ...]:
        """Compare the calls that speculated with their targets alone; see :meth:`Costs.savings`."""
        return await in_thread(
            lambda: self._costs.savings(
                by, since=since, until=until, provider=provider, model=model, tags=tags
            )
        )


def _where(
    since: Instant, until: Instant, provider: str | None, model: str | None, tags: Mapping[str, str] | None
) -> Where:
    now = datetime.now(UTC)
    first, last = (parse_since(at, now) if isinstance(at, str) else at for at in (since, until))
    return Where(since=first, until=last, provider=provider, model=model, tags=dict(tags or {}))
