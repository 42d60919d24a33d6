"""Turn rows of calls into a table of any database that SQLAlchemy speaks, and back.

For teams that keep one ledger on a server. Imported only where the setting names such a database, as
SQLAlchemy alone takes more memory than the rest of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy import Column as TableColumn
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn

from specclient.costs.schema import (
    CALLS,
    COLUMNS,
    KEY,
    NAMES,
    ORDER,
    VERSION,
    VERSIONS,
    WAY_OUT,
    Values,
    checked,
    foreign,
)
from specclient.errors import LedgerError

__all__ = ["Database"]

_TYPES = {"text": Text, "flag": Boolean, "small": Integer, "count": BigInteger, "measure": Double}

_metadata = MetaData()
_version = Table(VERSION, _metadata, TableColumn("version", Integer, nullable=False))
_calls = Table(
    CALLS,
    _metadata,
    *(
        TableColumn(
            column.name,
            _TYPES[column.kind],
            primary_key=column.name == KEY,
            nullable=column.null,
            index=column.name == ORDER,
        )
        for column in COLUMNS
    ),
)


class Database:
    """The calls in one table of a database; see :class:`~specclient.costs.schema.Store`.

    Args:
        url: of the database, as SQLAlchemy writes it.

    Raises:
        ValueError: a URL that SQLAlchemy cannot parse; does not repeat it, as it may hold a password.
    """

    def __init__(self, url: str) -> None:
        try:
            self._url: URL = make_url(url)
        except (ArgumentError, ValueError):
            raise ValueError("no database URL") from None
        self._engine: Engine | None = None

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self._url.render_as_string(hide_password=True)

    def exists(self) -> bool:
        """Return True: only the server knows, and says so when it is read."""
        return True

    def write(self, rows: Sequence[Values]) -> None:
        """Commit all rows or none; a row whose key is there already stays as it is, if it can be said."""
        engine = self._engine = self._engine or self._open()
        try:
            with engine.begin() as connection:
                connection.execute(_insert(engine), [dict(zip(NAMES, row, strict=True)) for row in rows])
        except SQLAlchemyError as error:
            raise LedgerError(f"cannot write the ledger {self.name}: {_said(error)}; {WAY_OUT}") from None

    def read(self, since: str | None, until: str | None, limit: int | None) -> list[Values]:
        """Return the newest ``limit`` calls that started in ``[since, until)``, newest first."""
        started = _calls.c[ORDER]
        query = select(*(_calls.c[name] for name in NAMES))
        if since is not None:
            query = query.where(started >= since)
        if until is not None:
            query = query.where(started < until)
        engine = self._open()
        try:
            with engine.connect() as connection:
                found = connection.execute(query.order_by(started.desc()).limit(limit))
                return [tuple(row) for row in found]
        except SQLAlchemyError as error:
            raise LedgerError(f"cannot read the ledger {self.name}: {_said(error)}; {WAY_OUT}") from None
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

    def _open(self) -> Engine:
        """Connect, and create the tables where they are missing."""
        engine: Engine | None = None
        try:
            engine = create_engine(self._url, pool_pre_ping=True)
            self._upgrade(engine)
        except ImportError as error:
            raise LedgerError(
                f"cannot open the ledger {self.name}: its driver is not installed ({error.name}); {WAY_OUT}"
            ) from None
        except (SQLAlchemyError, LedgerError) as error:
            if engine is not None:
                engine.dispose()
            if isinstance(error, LedgerError):
                raise
            raise LedgerError(f"cannot open the ledger {self.name}: {_said(error)}; {WAY_OUT}") from None
        return engine

    def _upgrade(self, engine: Engine) -> None:
        with engine.begin() as connection:
            if (seen := self._seen(connection)) == len(VERSIONS):
                return
            if seen == 0:
                _metadata.create_all(connection)
            for version in VERSIONS[seen:] if seen else ():
                for column in version:
                    definition = CreateColumn(_calls.c[column.name]).compile(dialect=engine.dialect)
                    connection.execute(text(f"ALTER TABLE {CALLS} ADD COLUMN {definition}"))
            connection.execute(_version.delete())
            connection.execute(_version.insert().values(version=len(VERSIONS)))

    def _seen(self, connection: Connection) -> int:
        inspector = inspect(connection)
        if not inspector.has_table(VERSION):
            if inspector.has_table(CALLS):
                raise foreign(self.name)
            return 0
        return checked(connection.execute(select(_version.c.version)).scalar() or 0, self.name)


def _insert(engine: Engine) -> Any:
    """Return an insert that passes over rows that are there, where the database can; so retries are safe."""
    match engine.dialect.name:
        case "sqlite":
            return sqlite.insert(_calls).on_conflict_do_nothing()
        case "postgresql":
            return postgresql.insert(_calls).on_conflict_do_nothing()
    return insert(_calls)


def _said(error: SQLAlchemyError) -> str:
    """Return the driver's own words, without the statement and its parameters."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


_inherited: list[Engine | None] = []
