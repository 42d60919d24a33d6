"""The interface of a ledger's database, implemented by :mod:`.sqlite` and :mod:`.postgres`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from specclient.types.call_score import CallScore

__all__ = ["LEDGER_HINT", "Execute", "LedgerStore", "RowValues", "SQLValue"]

#: The advice at the end of every error message about a ledger.
LEDGER_HINT = "set SPECCLIENT_LEDGER to another file or database URL, or to 'off'"

SQLValue = str | int | float | None

#: One row of the table ``calls``: a value per column, in the order of the columns.
RowValues = tuple[SQLValue, ...]

T = TypeVar("T")


class Execute(Protocol):
    """Runs one statement in a transaction. The SQL must be valid in both SQLite and PostgreSQL."""

    def __call__(self, sql: str, params: Mapping[str, SQLValue] = {}, /) -> list[tuple[SQLValue, ...]]:
        """Return the rows of the result; parameters are written as ``:name`` in the statement."""
        ...


class LedgerStore(Protocol):
    """A database of calls. Opens nothing until it is first written or read.

    All methods but :meth:`query` must be called by one thread at a time. Every method raises LedgerError for
    any failure of the database; its message names the database and what to do.
    """

    @property
    def name(self) -> str:
        """The file or URL, without a password."""
        ...

    def exists(self) -> bool:
        """Return whether there may be something to read, without creating the database."""
        ...

    def write(self, rows: Sequence[RowValues], scores: Sequence[CallScore] = ()) -> None:
        """Commit all rows and scores or none, and create the database if needed. Known ones are skipped."""
        ...

    def transact(self, work: Callable[[Execute], T]) -> T:
        """Run ``work`` in one transaction and return its result; an exception rolls the transaction back.

        From the first statement on, no other thread or process can write to the database. The database is
        created if needed.
        """
        ...

    def query(self, sql: str, params: Mapping[str, SQLValue] = {}) -> Iterator[tuple[SQLValue, ...]]:
        """Yield the rows of a SELECT without holding all of them; may run during a write."""
        ...

    def close(self) -> None:
        """Close the connection used for writing; the next write opens it again."""
        ...

    def abandon(self) -> None:
        """Drop the connection inherited through ``fork`` without using it: it belongs to the parent."""
        ...
