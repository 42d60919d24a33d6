"""What a ledger's database looks like, and what every kind of database must be able to do for a ledger.

The columns of the calls are rows, in the order of the versions that brought them; a database's version is
how many versions it has seen. Versions are appended and never changed, as others have made databases by them.
From these rows statements are made, in the SQL that SQLite and PostgreSQL both speak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from specclient.errors import LedgerError

__all__ = [
    "COLUMNS",
    "COLUMN_NAMES",
    "DIMENSIONS",
    "SUM_NAMES",
    "VERSIONS",
    "Execute",
    "LedgerColumn",
    "LedgerStore",
    "RowValues",
    "SQLValue",
]

#: The way out that every complaint about a ledger ends with.
LEDGER_HINT = "set SPECCLIENT_LEDGER to another file or database URL, or to 'off'"

CALLS_TABLE = "calls"
VERSION_TABLE = "specclient_schema"

SQLValue = str | int | float | None

#: A call as a database keeps it: one value a column, in their order.
RowValues = tuple[SQLValue, ...]

ColumnKind = Literal["text", "flag", "small", "count", "measure"]
T = TypeVar("T")


class Execute(Protocol):
    """Runs one statement of a transaction, of SQL that SQLite and PostgreSQL both speak."""

    def __call__(self, sql: str, params: Mapping[str, SQLValue] = {}, /) -> list[tuple[SQLValue, ...]]:
        """Return the rows that it gives; its parameters stand in it as ``:name``."""
        ...


class LedgerColumn(NamedTuple):
    """One column of the calls.

    Attributes:
        kind: ``flag`` is true or false; ``small`` and ``count`` are whole numbers of 32 and 64 bits.
        null: whether a value may be unknown; always so in columns that a later version adds.
    """

    name: str
    kind: ColumnKind = "text"
    null: bool = True


#: What each version added. The first column is the key, the second what rows are found and sorted by.
VERSIONS: tuple[tuple[LedgerColumn, ...], ...] = (
    (
        LedgerColumn("id", null=False),
        LedgerColumn("started_at", null=False),
        LedgerColumn("operation", null=False),
        LedgerColumn("provider", null=False),
        LedgerColumn("model", null=False),
        LedgerColumn("served_model"),
        LedgerColumn("route", null=False),
        LedgerColumn("streamed", "flag", null=False),
        LedgerColumn("status", null=False),
        LedgerColumn("error"),
        LedgerColumn("http_status", "small"),
        LedgerColumn("prompt_tokens", "count"),
        LedgerColumn("completion_tokens", "count"),
        LedgerColumn("cached_tokens", "count"),
        LedgerColumn("cache_write_tokens", "count"),
        LedgerColumn("reasoning_tokens", "count"),
        LedgerColumn("usage_estimated", "flag", null=False),
        LedgerColumn("method"),
        LedgerColumn("drafted", "count"),
        LedgerColumn("accepted", "count"),
        LedgerColumn("steps", "count"),
        LedgerColumn("predicted_accepted", "count"),
        LedgerColumn("predicted_rejected", "count"),
        LedgerColumn("cost_nano", "count"),
        LedgerColumn("cost_by_kind", null=False),
        LedgerColumn("price_source", null=False),
        LedgerColumn("cost_estimated", "flag", null=False),
        LedgerColumn("attempts", "small", null=False),
        LedgerColumn("ttft_s", "measure"),
        LedgerColumn("latency_s", "measure", null=False),
        LedgerColumn("engine_s", "measure"),
        LedgerColumn("request_id"),
        LedgerColumn("tags", null=False),
        LedgerColumn("decision", null=False),
    ),
    (
        LedgerColumn("parent"),
        LedgerColumn("purpose"),
        LedgerColumn("strategy"),
        LedgerColumn("pair"),
        LedgerColumn("speculation"),
        LedgerColumn("metadata"),
        LedgerColumn("session"),
    ),
    (),  # the table of sums
)

COLUMNS = tuple(column for version in VERSIONS for column in version)
COLUMN_NAMES = tuple(column.name for column in COLUMNS)
KEY_COLUMN, ORDER_COLUMN = COLUMN_NAMES[:2]

#: The table of sums by hour, what its rows are told apart by, and what they sum; see :mod:`rollup`.
HOURS_TABLE = "calls_by_hour"
DIMENSIONS = (
    "hour", "operation", "provider", "model", "served", "route", "status", "error", "streamed", "purpose",
    "strategy", "pair", "method",
)  # fmt: skip
LATENCY_CLASSES = 40
SUM_NAMES = (
    "calls", "parts", "errors", "tokens_in", "tokens_out", "tokens_cached", "tokens_written",
    "tokens_reasoning", "predicted_accepted", "predicted_rejected", "drafts", "drafted", "accepted", "kept",
    "passes", "cost_nano", "estimated", "unpriced", "unanswered", "attempts", "latency_us", "engine_us",
    "ttft_us", "ttfts", "timed_tokens", "timed_us", *(f"latencies_{k}" for k in range(LATENCY_CLASSES)),
)  # fmt: skip


class LedgerStore(Protocol):
    """A database of calls. Opens nothing until it is first written or read.

    Used by one thread at a time, but for :meth:`query`. Every method raises LedgerError, which names the
    database and the way out, and nothing else that is known to go wrong.
    """

    @property
    def name(self) -> str:
        """What a person knows it by, without a password."""
        ...

    def exists(self) -> bool:
        """Tell whether there may be something to read, without creating it."""
        ...

    def write(self, rows: Sequence[RowValues]) -> None:
        """Commit all rows or none; a row whose key is there already stays as it is. May create it."""
        ...

    def transact(self, work: Callable[[Execute], T]) -> T:
        """Return what ``work`` returns, its statements in one transaction; whatever it raises undoes them.

        From its first statement on nobody else writes to the database, in this process or another one. May
        create it.
        """
        ...

    def query(self, sql: str, params: Mapping[str, SQLValue] = {}) -> Iterator[tuple[SQLValue, ...]]:
        """Yield the rows of a SELECT, without holding all of them; may run beside a write."""
        ...

    def close(self) -> None:
        """Close the connection that writes; the next write opens it again."""
        ...

    def abandon(self) -> None:
        """Forget that connection untouched: it is the process's that this one was forked from."""
        ...


def checked_version(seen: int, where: str) -> int:
    """Return the version of a database if this code knows it.

    Raises:
        LedgerError: a newer version of this package made it.
    """
    if seen > len(VERSIONS):
        raise LedgerError(
            f"the ledger {where} has schema version {seen}, this specclient knows up to {len(VERSIONS)}; "
            f"upgrade specclient, or {LEDGER_HINT}"
        )
    return seen


def foreign_table_error(where: str) -> LedgerError:
    """Return the complaint about a database whose table of our name is not ours."""
    return LedgerError(
        f"cannot open the ledger {where}: its table {CALLS_TABLE!r} is another program's; {LEDGER_HINT}"
    )
