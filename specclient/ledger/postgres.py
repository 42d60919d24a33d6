"""The PostgreSQL store of the ledger, for teams that share one ledger on a server.

Imported only if the setting names a server, as SQLAlchemy takes more memory than the rest of the ledger. The
extra ``postgres`` installs it.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    event,
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
from specclient.ledger.scores import add_scores
from specclient.ledger.store import LEDGER_HINT, Execute, RowValues, SQLValue
from specclient.runtime.masked_urls import mask_url_passwords
from specclient.types.call_score import CallScore

__all__ = ["PostgresStore"]

T = TypeVar("T")

#: Rows fetched at a time, so that memory is bounded.
_PAGE = 2000
_CONNECT_S = 5
#: Seconds without an answer after which a connection is broken off, so that no thread waits for ever.
SILENT_S = 60.0
#: Limits of a transaction at the server, in milliseconds: for one statement, and for the time between two.
#: The second ends the transaction of a suspended process, whose lock would stop all writers. Both are set for
#: the transaction only, because poolers share connections.
_LIMITS = (
    "set_config('statement_timeout', '30000', true), "
    "set_config('idle_in_transaction_session_timeout', '60000', true)"
)
#: The advisory lock of writers: shared for adding rows, which do not conflict, exclusive for all else.
_LOCK = 0x5EC_C057
_LOCK_TO_UPGRADE = text(f"SELECT pg_advisory_xact_lock({_LOCK})")  # no time limit: upgrades may take long
_LOCK_EXCLUSIVE = text(f"SELECT {_LIMITS}, pg_advisory_xact_lock({_LOCK})")
_LOCK_SHARED = text(f"SELECT {_LIMITS}, pg_advisory_xact_lock_shared({_LOCK})")

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
    """A ledger in a PostgreSQL database; see :class:`~specclient.ledger.store.LedgerStore`.

    Args:
        url: of the database, as SQLAlchemy writes it; ``postgresql://…`` selects the driver psycopg.

    Raises:
        ValueError: the URL does not name a PostgreSQL database. The message leaves out the URL, which may
            hold a password.
    """

    def __init__(self, url: str) -> None:
        try:
            self._url: URL = make_url(url)
        except (ArgumentError, ValueError):
            raise ValueError("not a database URL") from None
        #: The URL without its password.
        self.name = mask_url_passwords(url)
        if self._url.drivername in ("postgres", "postgresql"):
            self._url = self._url.set(drivername="postgresql+psycopg")
        if self._url.get_backend_name() != "postgresql":
            raise ValueError("not a PostgreSQL URL")
        self._engine: Engine | None = None
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def exists(self) -> bool:
        """Return True: whether the database exists is known only when it is read."""
        return True

    def write(self, rows: Sequence[RowValues], scores: Sequence[CallScore] = ()) -> None:
        """Commit all rows and scores or none; those that are stored already are skipped."""
        with self._transaction() as connection:
            connection.execute(_LOCK_SHARED)
            by_key = {row[0]: row for row in rows}
            if by_key:
                added = connection.execute(
                    _INSERT, [dict(zip(COLUMN_NAMES, row, strict=True)) for row in by_key.values()]
                )
                rollup.add_rows(_executing(connection), [by_key[key] for (key,) in added])
            add_scores(_executing(connection), scores)

    def transact(self, work: Callable[[Execute], T]) -> T:
        """Run ``work`` in one transaction and return its result; an exception rolls the transaction back."""
        with self._transaction() as connection:
            connection.execute(_LOCK_EXCLUSIVE)
            return work(_executing(connection))

    def query(self, sql: str, params: Mapping[str, SQLValue] = {}) -> Iterator[tuple[SQLValue, ...]]:
        """Yield the rows of a SELECT, without holding all of them."""
        engine = self._open()
        try:
            with self._errors("read"), engine.connect() as connection:
                with self._watched():
                    found = connection.execution_options(yield_per=_PAGE).execute(text(sql), dict(params))
                yield from map(_plain, found)
        finally:
            engine.dispose()

    def close(self) -> None:
        """Close the connections used for writing."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def abandon(self) -> None:
        """Drop the connections without closing them: they stay referenced, as collection would close them."""
        _inherited.append(self._engine)
        self._engine = None

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        engine = self._engine = self._engine or self._open()
        with self._errors("write"), self._watched(), engine.begin() as connection:
            yield connection

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Break the connections off after :data:`SILENT_S`, which raises an error in the waiting thread."""
        timer = threading.Timer(SILENT_S, self._break_off)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _break_off(self) -> None:
        for connection in tuple(self._connections):
            with (
                suppress(Exception),  # it is closed already, or the driver does not expose its socket
                socket.socket(fileno=os.dup(connection.fileno())) as end,
            ):
                end.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise LedgerError(
                f"cannot {what} the ledger {self.name}: {self._without_password(error)}; {LEDGER_HINT}"
            ) from None

    def _without_password(self, error: SQLAlchemyError) -> str:
        """Return the driver's message, in which a driver may quote its connection options."""
        message, password = _driver_message(error), self._url.password
        return message.replace(password, "***") if password else message

    def _open(self) -> Engine:
        """Connect; create the tables if they are missing."""
        options: dict[str, Any] = {}
        if self._url.get_driver_name() == "psycopg" and "connect_timeout" not in self._url.query:
            options["connect_timeout"] = _CONNECT_S
        try:
            with self._errors("open"):
                engine = create_engine(self._url, pool_pre_ping=True, connect_args=options)
            event.listen(engine, "connect", lambda connection, _: self._connections.add(connection))
        except ImportError as error:
            raise LedgerError(
                f"cannot open the ledger {self.name}: its driver is not installed ({error.name}); "
                f"pip install 'specclient[postgres]' brings psycopg, or {LEDGER_HINT}"
            ) from None
        try:
            with self._errors("open"):
                self._upgrade(engine)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _upgrade(self, engine: Engine) -> None:
        with self._watched(), engine.connect() as connection:
            if self._version(connection) == SCHEMA_VERSION:
                return
        with engine.begin() as connection:
            connection.execute(_LOCK_TO_UPGRADE)
            # The version is read again: another process may have upgraded meanwhile.
            upgrade(_executing(connection), self._version(connection), _TYPES)

    def _version(self, connection: Connection) -> int:
        inspector = inspect(connection)
        # Checked before the version, as another process may create both tables between the two checks.
        has_calls = inspector.has_table(CALLS_TABLE)
        if not inspector.has_table(VERSION_TABLE):
            if has_calls:
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
    """Return a row with integers for Decimals: PostgreSQL's sums of integers are of type numeric."""
    return tuple(int(value) if isinstance(value, Decimal) else value for value in row)


def _driver_message(error: SQLAlchemyError) -> str:
    """Return the message of the driver, without the statement and its parameters."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


_inherited: list[Engine | None] = []
