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
    "DIMENSIONS",
    "NAMES",
    "SUMS",
    "VERSIONS",
    "Column",
    "Execute",
    "Store",
    "Value",
    "Values",
]

#: The way out that every complaint about a ledger ends with.
WAY_OUT = "set SPECCLIENT_LEDGER to another file or database URL, or to 'off'"

CALLS = "calls"
VERSION = "specclient_schema"

Value = str | int | float | None

#: A call as a database keeps it: one value a column, in their order.
Values = tuple[Value, ...]

Kind = Literal["text", "flag", "small", "count", "measure"]
T = TypeVar("T")


class Execute(Protocol):
    """Runs one statement of a transaction, of SQL that SQLite and PostgreSQL both speak."""

    def __call__(self, sql: str, params: Mapping[str, Value] = {}, /) -> list[tuple[Value, ...]]:
        """Return the rows that it gives; its parameters stand in it as ``:name``."""
        ...


class Column(NamedTuple):
    """One column of the calls.

    Attributes:
        kind: ``flag`` is true or false; ``small`` and ``count`` are whole numbers of 32 and 64 bits.
        null: whether a value may be unknown; always so in columns that a later version adds.
    """

    name: str
    kind: Kind = "text"
    null: bool = True


#: What each version added. The first column is the key, the second what rows are found and sorted by.
VERSIONS: tuple[tuple[Column, ...], ...] = (
    (
        Column("id", null=False),
        Column("started_at", null=False),
        Column("operation", null=False),
        Column("provider", null=False),
        Column("model", null=False),
        Column("served_model"),
        Column("route", null=False),
        Column("streamed", "flag", null=False),
        Column("status", null=False),
        Column("error"),
        Column("http_status", "small"),
        Column("prompt_tokens", "count"),
        Column("completion_tokens", "count"),
        Column("cached_tokens", "count"),
        Column("cache_write_tokens", "count"),
        Column("reasoning_tokens", "count"),
        Column("usage_estimated", "flag", null=False),
        Column("method"),
        Column("drafted", "count"),
        Column("accepted", "count"),
        Column("steps", "count"),
        Column("predicted_accepted", "count"),
        Column("predicted_rejected", "count"),
        Column("cost_nano", "count"),
        Column("cost_by_kind", null=False),
        Column("price_source", null=False),
        Column("cost_estimated", "flag", null=False),
        Column("attempts", "small", null=False),
        Column("ttft_s", "measure"),
        Column("latency_s", "measure", null=False),
        Column("engine_s", "measure"),
        Column("request_id"),
        Column("tags", null=False),
        Column("decision", null=False),
    ),
    (
        Column("parent"),
        Column("purpose"),
        Column("strategy"),
        Column("pair"),
        Column("speculation"),
        Column("metadata"),
        Column("session"),
    ),
    (),  # the table of sums
)

COLUMNS = tuple(column for version in VERSIONS for column in version)
NAMES = tuple(column.name for column in COLUMNS)
KEY, ORDER = NAMES[:2]

#: The table of sums by hour, what its rows are told apart by, and what they sum; see :mod:`rollup`.
HOURS = "calls_by_hour"
DIMENSIONS = (
    "hour", "operation", "provider", "model", "served", "route", "status", "error", "streamed", "purpose",
    "strategy", "pair", "method",
)  # fmt: skip
LATENCIES = 40
SUMS = (
    "calls", "parts", "errors", "tokens_in", "tokens_out", "tokens_cached", "tokens_written",
    "tokens_reasoning", "predicted_accepted", "predicted_rejected", "drafts", "drafted", "accepted", "kept",
    "passes", "cost_nano", "estimated", "unpriced", "unanswered", "attempts", "latency_us", "engine_us",
    "ttft_us", "ttfts", "timed_tokens", "timed_us", *(f"latencies_{k}" for k in range(LATENCIES)),
)  # fmt: skip


class Store(Protocol):
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

    def write(self, rows: Sequence[Values]) -> None:
        """Commit all rows or none; a row whose key is there already stays as it is. May create it."""
        ...

    def transact(self, work: Callable[[Execute], T]) -> T:
        """Return what ``work`` returns, its statements in one transaction; whatever it raises undoes them.

        From its first statement on nobody else writes to the database, in this process or another one. May
        create it.
        """
        ...

    def query(self, sql: str, params: Mapping[str, Value] = {}) -> Iterator[tuple[Value, ...]]:
        """Yield the rows of a SELECT, without holding all of them; may run beside a write."""
        ...

    def close(self) -> None:
        """Close the connection that writes; the next write opens it again."""
        ...

    def abandon(self) -> None:
        """Forget that connection untouched: it is the process's that this one was forked from."""
        ...


def checked(seen: int, where: str) -> int:
    """Return the version of a database if this code knows it.

    Raises:
        LedgerError: a newer version of this package made it.
    """
    if seen > len(VERSIONS):
        raise LedgerError(
            f"the ledger {where} has schema version {seen}, this specclient knows up to {len(VERSIONS)}; "
            f"upgrade specclient, or {WAY_OUT}"
        )
    return seen


def foreign(where: str) -> LedgerError:
    """Return the complaint about a database whose table of our name is not ours."""
    return LedgerError(f"cannot open the ledger {where}: its table {CALLS!r} is another program's; {WAY_OUT}")
