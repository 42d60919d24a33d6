"""The ledger: records finished calls in a database without delaying them, and reads them back.

By default (``batch``) a call leaves its row in memory and returns. The row is in the database at most half a
second later, and also when the ledger is closed, the program ends, or SIGTERM ends it. With ``sync`` a call
returns when its row is on the disk. A ledger that cannot be written never breaks a call: it logs one
warning, keeps rows in memory and retries, and calls stop waiting until it works again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, TypeVar, get_args

from specclient.errors import ConfigurationError, LedgerError
from specclient.ledger import rollup, shutdown
from specclient.ledger.encoding import timestamp
from specclient.ledger.figures import CallTotals
from specclient.ledger.location import OFF, locate
from specclient.ledger.row import COLUMN_NAMES, ORDER_COLUMN, LedgerRow, encoded_rows
from specclient.ledger.schema import CALLS_TABLE
from specclient.ledger.scores import answering_route, prune_scores, read_scores, stored_route
from specclient.ledger.store import Execute, RowValues, SQLValue
from specclient.ledger.writer import LedgerWriter
from specclient.types.call import Call
from specclient.types.call_score import CallScore

__all__ = ["Durability", "Ledger"]

Durability = Literal["batch", "sync"]
T = TypeVar("T")

_BOUNDS = {"since": f"{ORDER_COLUMN} >= :since", "until": f"{ORDER_COLUMN} < :until"}


class Ledger:
    """The record of finished calls.

    Safe to use from any thread and event loop. After ``fork`` the child writes with its own thread and
    connection; rows that were waiting are written by the parent. Nothing is opened before the first record
    or read.

    The first record installs a handler for SIGTERM if the program has left the signal at its default. The
    handler writes the waiting rows, and then the signal ends the program as usual. A handler of the program
    is never replaced.

    Args:
        setting: a file path, a database URL, ``off``, or None for a file in the user's data folder.
        durability: ``batch``: calls do not wait for their rows, which survive the death of the program after
            ``window_s``; ``sync``: a call returns when its row is on the disk and survives a loss of power.
        window_s: seconds that a row of ``batch`` waits in memory at most, while the database can be written.
        patience_s: seconds that a call waits at most for its row to be committed.
        retry_s: seconds before a failed write is retried.
        keep: number of rows kept in memory while the database cannot be written; beyond it the oldest are
            dropped.

    Raises:
        ConfigurationError: the setting is neither a path nor a database URL, or the durability is unknown.
    """

    def __init__(
        self,
        setting: str | None = None,
        *,
        durability: Durability = "batch",
        window_s: float = 0.5,
        patience_s: float = 10.0,
        retry_s: float = 1.0,
        keep: int = 20_000,
    ) -> None:
        if durability not in get_args(Durability):
            raise ConfigurationError(
                f"ledger_durability is {durability!r}; it must be one of {', '.join(get_args(Durability))}"
            )
        sync = durability == "sync"
        store = locate(setting, sync=sync)
        options = {"window_s": window_s, "patience_s": patience_s, "retry_s": retry_s}
        self._writer = None if store is None else LedgerWriter(store, sync=sync, keep=keep, **options)

    @property
    def location(self) -> str:
        """The file, the database URL without its password, or ``off``."""
        return OFF if self._writer is None else self._writer.store.name

    async def record(self, call: Call) -> None:
        """Record a finished call, and wait as :meth:`add` says."""
        if (committed := self.add(call)) is not None:
            await committed

    def add(self, call: Call) -> Awaitable[None] | None:
        """Record a finished call; return an awaitable for the call to wait for, or None.

        With ``sync``, it ends when the row is committed or cannot be. With ``batch`` a call waits only if
        very many rows are waiting. A failing ledger raises nothing. The call waits ``patience_s`` at
        most; after one such timeout, further calls do not wait until the ledger has caught up.
        """
        return None if self._writer is None else self._writer.add(encoded_rows(call))

    def submit(self, call: Call) -> None:
        """Record a finished call without waiting. See :meth:`flush`."""
        if self._writer is not None:
            self._writer.put(encoded_rows(call))

    def prepare(self) -> None:
        """Install the handler for SIGTERM. Call it in the main thread if calls run in another thread."""
        if self._writer is not None:
            shutdown.handle_sigterm()

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[LedgerRow]:
        """Return the calls that started in ``[since, until)``, oldest first, including those still in memory.

        Args:
            limit: return only this many of the newest calls.

        Raises:
            LedgerError: the ledger cannot be read; the message names the ledger and what to do.
        """
        found = {str(row[0]): row for row in self._in_memory(since, until)}
        found |= {str(row[0]): row for row in self._stored(since, until, newest=limit)}
        ordered = sorted(found.values(), key=_by_time)
        newest = ordered if limit is None else ordered[max(len(ordered) - limit, 0) :]
        return [LedgerRow.from_values(row) for row in newest]

    def iterate(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[LedgerRow]:
        """Yield the calls that started in ``[since, until)``, oldest first, without holding all of them.

        Raises:
            LedgerError: the ledger cannot be read; the message names the ledger and the way out.
        """
        self.flush()
        waiting = {str(row[0]): row for row in self._in_memory(since, until)}
        for row in self._stored(since, until):
            waiting.pop(str(row[0]), None)
            yield LedgerRow.from_values(row)
        yield from map(LedgerRow.from_values, sorted(waiting.values(), key=_by_time))

    def rollup(
        self, since: datetime | None = None, until: datetime | None = None, by: Sequence[str] = ()
    ) -> list[CallTotals]:
        """Return totals of the calls that started in ``[since, until)``, by group, in the order of groups.

        Exact to the nano-dollar, and fast over millions of rows: whole hours are read from stored sums.

        Args:
            by: names of :data:`specclient.ledger.totals.ROLLUP_GROUPS`; an empty sequence gives one total.

        Raises:
            ConfigurationError: an unknown name; the message lists the known ones.
            LedgerError: the ledger cannot be read; the message names the ledger and the way out.
        """
        from specclient.ledger.totals import totals_by_group  # noqa: PLC0415 - most programs read no totals

        if self._writer is None:
            return totals_by_group(None, since, until, by)
        with ExitStack() as held:
            for writer in sorted(self._writers(), key=id):
                writer.flush()
                held.enter_context(writer.exclusive())  # rows in memory must not be committed meanwhile
            waiting = self._in_memory(since, until)
            store = self._writer.store
            return totals_by_group(store if store.exists() else None, since, until, by, waiting)

    def tag_costs(
        self, since: datetime, until: datetime
    ) -> Iterator[tuple[datetime, Mapping[str, str], int]]:
        """Yield each hour of a span of time, tags of calls that started in it, and their nano-dollars.

        The database adds up the calls with the same tags, so that millions of calls with few tags are quick
        to read.

        Raises:
            LedgerError: the ledger cannot be read; the message names the ledger and the way out.
        """
        self.flush()
        if self._writer is None or not self._writer.store.exists():
            return
        hour = f"substr({ORDER_COLUMN}, 1, 13)"
        sql = f"""SELECT {hour}, tags, SUM(cost_nano) FROM {CALLS_TABLE}
            WHERE {ORDER_COLUMN} >= :since AND {ORDER_COLUMN} < :until AND cost_nano > 0 AND tags <> '{{}}'
            GROUP BY {hour}, tags"""  # noqa: S608
        bounds = {"since": timestamp(since), "until": timestamp(until)}
        for begins, tags, nano in self._writer.store.query(sql, bounds):
            at = datetime.fromisoformat(f"{begins}:00").replace(tzinfo=UTC)
            yield at, json.loads(str(tags)), int(nano or 0)

    def submit_score(self, score: CallScore) -> None:
        """Store the score of an answer without waiting. See :meth:`flush`."""
        if self._writer is not None:
            self._writer.put_score(score)

    def scores(self, since: datetime, most: int) -> list[CallScore]:
        """Return the newest stored scores that were given since an instant, oldest first.

        Args:
            most: the number of scores at most.

        Raises:
            LedgerError: the ledger cannot be read; the message names the ledger and the way out.
        """
        if self._writer is None or not self._writer.store.exists():
            return []
        return read_scores(self._writer.store, since, most)

    def answered(self, call_id: str, since: datetime) -> tuple[str, str | None] | None:
        """Return the route that answered a call, and the task of its prompt; None without such a call.

        Args:
            since: a call of several attempts is found if it started after this instant.

        Raises:
            LedgerError: the ledger cannot be read; the message names the ledger and the way out.
        """
        found = answering_route(self._in_memory(None, None), call_id)
        if found is not None or self._writer is None or not self._writer.store.exists():
            return found
        return stored_route(self._writer.store, call_id, since)

    def prune(self, before: datetime) -> int:
        """Remove the calls that started before an instant, and older scores; return the number of calls.

        Removes one day at a time, so that others can write in between. The file does not shrink, but its
        space is reused.

        Raises:
            LedgerError: the ledger cannot be written; the message names the ledger and the way out.
        """
        self.flush()
        if self._writer is None or not self._writer.store.exists():
            return 0
        removed, before = 0, before.astimezone(UTC)
        self.transact(partial(prune_scores, before=before))
        sql = f"SELECT MIN({ORDER_COLUMN}) FROM {CALLS_TABLE} WHERE {ORDER_COLUMN} < :before"  # noqa: S608
        while True:
            ((first,),) = self._writer.store.query(sql, {"before": timestamp(before)})
            if first is None:
                return removed
            day = datetime.fromisoformat(str(first)[:10]).replace(tzinfo=UTC) + timedelta(days=1)
            removed += self.transact(partial(rollup.prune, before=min(day, before)))

    def transact(self, work: Callable[[Execute], T]) -> T:
        """Run ``work`` in one transaction of the database and return its result.

        From the first statement on, no other thread or process can write to the database. An exception rolls
        the transaction back. Waits for the disk and for other writers, so call it in a thread
        (``asyncio.to_thread``) if an event loop is running.

        Args:
            work: called once with ``execute(sql, params)``, which runs one statement and returns its rows.
                The SQL must be valid in both SQLite and PostgreSQL, with parameters written as ``:name``.

        Raises:
            LedgerError: the ledger is off, or cannot be written; the message names the way out.
        """
        if self._writer is None:
            raise LedgerError("the ledger is off and stores nothing; set SPECCLIENT_LEDGER to a file or URL")
        with self._writer.exclusive():
            return self._writer.store.transact(work)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write the waiting rows in this thread; return whether all rows are in the database."""
        return self._writer is None or self._writer.flush(timeout_s)

    def close(self, timeout_s: float | None = 30.0) -> None:
        """Write the waiting rows and close the database; a later record opens it again.

        A warning gives the number of rows that could not be written.
        """
        if self._writer is not None:
            self._writer.close(timeout_s)

    def _writers(self) -> list[LedgerWriter]:
        """Return all writers of this process for the same database, this ledger's included."""
        return [writer for writer in shutdown.live_writers() if writer.store.name == self.location]

    def _in_memory(self, since: datetime | None, until: datetime | None) -> list[RowValues]:
        """Return the rows within the bounds that are not known to be in the database."""
        first = None if since is None else timestamp(since)
        last = None if until is None else timestamp(until)
        rows = {str(row[0]): row for writer in self._writers() for row in writer.waiting()}
        return [row for row in rows.values() if _within(row, first, last)]

    def _stored(
        self, since: datetime | None, until: datetime | None, *, newest: int | None = None
    ) -> Iterable[RowValues]:
        """Return the rows of the database within the bounds, oldest first; of ``newest``, newest first."""
        if self._writer is None or not self._writer.store.exists():
            return ()
        bounds = {"since": since, "until": until}
        params: dict[str, SQLValue] = {name: timestamp(at) for name, at in bounds.items() if at is not None}
        where = " AND ".join(_BOUNDS[name] for name in params)
        sql = f"SELECT {', '.join(COLUMN_NAMES)} FROM {CALLS_TABLE}"  # noqa: S608
        sql += f"{' WHERE ' * bool(where)}{where} ORDER BY {ORDER_COLUMN}"
        if newest is not None:
            sql, params = f"{sql} DESC LIMIT :newest", {**params, "newest": newest}
        return self._writer.store.query(sql, params)


def _by_time(row: RowValues) -> tuple[str, str]:
    return str(row[1]), str(row[0])


def _within(row: RowValues, since: str | None, until: str | None) -> bool:
    started = str(row[1])
    return (since is None or started >= since) and (until is None or started < until)
