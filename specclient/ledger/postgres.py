"""Turn rows of calls into a table of a PostgreSQL server, and back.

For teams that keep one ledger on a server. Imported only where the setting names one, as SQLAlchemy alone
takes more memory than the rest of the ledger; it comes with the extra ``postgres``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Double,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    inspect,
    text,
)
from sqlalchemy import Column as TableColumn
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from specclient.errors import LedgerError
from specclient.ledger import rollup
from specclient.ledger.encoding import ColumnKind
from specclient.ledger.migrations import upgrade
from specclient.ledger.row import COLUMN_NAMES, COLUMNS, KEY_COLUMN
from specclient.ledger.schema import (
    CALLS_TABLE,
    SCHEMA_VERSION,
    VERSION_TABLE,
    checked_version,
    foreign_table_error,
)
from specclient.ledger.store import LEDGER_HINT, Execute, RowValues, SQLValue

__all__ = ["PostgresStore"]

T = TypeVar("T")

#: Rows fetched at a time, where all would be too many to hold.
_PAGE = 2000
_CONNECT_S = 5
#: What writers of the ledger lock: together for rows, which touch each other's nowhere, alone for all else.
_LOCK = 0x5EC_C057
_ALONE = text(f"SELECT pg_advisory_xact_lock({_LOCK})")
_TOGETHER = text(f"SELECT pg_advisory_xact_lock_shared({_LOCK})")

_TYPES: Mapping[ColumnKind, str] = {
    "text": "TEXT",
    "time": "TEXT",
    "json": "TEXT",
    "json_or_null": "TEXT",
    "flag": "BOOLEAN",
    "small": "INTEGER",
    "count": "BIGINT",
    "nano": "BIGINT",
    "measure": "DOUBLE PRECISION",
}
_KINDS: Mapping[ColumnKind, Any] = {
    "text": Text,
    "time": Text,
    "json": Text,
    "json_or_null": Text,
    "flag": Boolean,
    "small": Integer,
    "count": BigInteger,
    "nano": BigInteger,
    "measure": Double,
}
_calls = Table(
    CALLS_TABLE,
    MetaData(),
    *(
        TableColumn(column.name, _KINDS[column.kind], primary_key=column.name == KEY_COLUMN)
        for column in COLUMNS
    ),
)
_INSERT = insert(_calls).on_conflict_do_nothing().returning(_calls.c[KEY_COLUMN])


class PostgresStore:
    """The calls in one table of a PostgreSQL database; see :class:`~specclient.ledger.schema.LedgerStore`.

    Args:
        url: of the database, as SQLAlchemy writes it: ``postgresql://…`` takes the driver psycopg.

    Raises:
        ValueError: a URL of no PostgreSQL database; does not repeat it, as it may hold a password.
    """

    def __init__(self, url: str) -> None:
        try:
            self._url: URL = make_url(url)
        except (ArgumentError, ValueError):
            raise ValueError("no database URL") from None
        #: What a person knows it by, without its password.
        self.name = self._url.render_as_string(hide_password=True)
        if self._url.drivername in ("postgres", "postgresql"):
            self._url = self._url.set(drivername="postgresql+psycopg")
        if self._url.get_backend_name() != "postgresql":
            raise ValueError("no PostgreSQL URL")
        self._engine: Engine | None = None

    def exists(self) -> bool:
        """Return True: only the server knows, and says so when it is read."""
        return True

    def write(self, rows: Sequence[RowValues]) -> None:
        """Commit all rows or none; a row whose key is there already stays as it is."""
        with self._transaction() as connection:
            connection.execute(_TOGETHER)
            given = {row[0]: row for row in rows}
            added = connection.execute(
                _INSERT, [dict(zip(COLUMN_NAMES, row, strict=True)) for row in given.values()]
            )
            rollup.add_rows(_executing(connection), [given[key] for (key,) in added])

    def transact(self, work: Callable[[Execute], T]) -> T:
        """Return what ``work`` returns, its statements in one transaction; whatever it raises undoes them."""
        with self._transaction() as connection:
            connection.execute(_ALONE)
            return work(_executing(connection))

    def query(self, sql: str, params: Mapping[str, SQLValue] = {}) -> Iterator[tuple[SQLValue, ...]]:
        """Yield the rows of a SELECT, without holding all of them."""
        engine = self._open()
        try:
            with self._complaining("read"), engine.connect() as connection:
                found = connection.execution_options(yield_per=_PAGE).execute(text(sql), dict(params))
                yield from map(_plain, found)
        finally:
            engine.dispose()

    def close(self) -> None:
        """Close the connections that write."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def abandon(self) -> None:
        """Forget those connections; they stay referenced, as even to collect them would close them."""
        _inherited.append(self._engine)
        self._engine = None

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        engine = self._engine = self._engine or self._open()
        with self._complaining("write"), engine.begin() as connection:
            yield connection

    @contextmanager
    def _complaining(self, what: str) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise LedgerError(
                f"cannot {what} the ledger {self.name}: {_said(error)}; {LEDGER_HINT}"
            ) from None

    def _open(self) -> Engine:
        """Connect, and create the tables where they are missing."""
        options: dict[str, Any] = {}
        if self._url.get_driver_name() == "psycopg" and "connect_timeout" not in self._url.query:
            options["connect_timeout"] = _CONNECT_S
        try:
            with self._complaining("open"):
                engine = create_engine(self._url, pool_pre_ping=True, connect_args=options)
        except ImportError as error:
            raise LedgerError(
                f"cannot open the ledger {self.name}: its driver is not installed ({error.name}); "
                f"pip install 'specclient[postgres]' brings psycopg, or {LEDGER_HINT}"
            ) from None
        try:
            with self._complaining("open"):
                self._upgrade(engine)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _upgrade(self, engine: Engine) -> None:
        with engine.connect() as connection:
            if self._seen(connection) == SCHEMA_VERSION:
                return
        with engine.begin() as connection:
            connection.execute(_ALONE)
            upgrade(_executing(connection), self._seen(connection), _TYPES)  # another may have been first

    def _seen(self, connection: Connection) -> int:
        inspector = inspect(connection)
        there = inspector.has_table(
            CALLS_TABLE
        )  # asked first: another process may make both between two questions
        if not inspector.has_table(VERSION_TABLE):
            if there:
                raise foreign_table_error(self.name)
            return 0
        version = connection.execute(text(f"SELECT version FROM {VERSION_TABLE}")).scalar()  # noqa: S608
        return checked_version(version or 0, self.name)


def _executing(connection: Connection) -> Execute:
    def execute(sql: str, params: Mapping[str, SQLValue] = {}, /) -> list[tuple[SQLValue, ...]]:
        found = connection.execute(text(sql), dict(params))
        return [_plain(row) for row in found] if found.returns_rows else []

    return execute


def _plain(row: Sequence[Any]) -> tuple[SQLValue, ...]:
    """Return a row with whole numbers as such: PostgreSQL's sums of them are of type numeric."""
    return tuple(int(value) if isinstance(value, Decimal) else value for value in row)


def _said(error: SQLAlchemyError) -> str:
    """Return the driver's own words, without the statement and its parameters."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


_inherited: list[Engine | None] = []
