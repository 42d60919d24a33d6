"""Turn a ledger setting into an open database whose schema is the one this version knows.

A migration is a small function; the version of a database is how many of them it has seen. Migrations
are appended and never changed, as others have run them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
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
    select,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from specclient.errors import ConfigurationError, LedgerError

__all__ = ["OFF", "calls", "exists", "explain", "immediately", "locate", "name", "open_database"]

OFF = "off"

#: Seconds one connection waits for another's lock; shorter than a call waits for its record.
BUSY_S = 1.5

#: The way out that every complaint about a ledger ends with.
WAY_OUT = "set SPECCLIENT_LEDGER to another file or database URL, or to 'off'"

metadata = MetaData()

_version = Table("specclient_schema", metadata, Column("version", Integer, nullable=False))

calls = Table(
    "calls",
    metadata,
    Column("id", Text, primary_key=True),
    Column("started_at", Text, nullable=False, index=True),
    Column("operation", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("served_model", Text),
    Column("route", Text, nullable=False),
    Column("streamed", Boolean, nullable=False),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("http_status", Integer),
    Column("prompt_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Column("cache_write_tokens", BigInteger),
    Column("reasoning_tokens", BigInteger),
    Column("usage_estimated", Boolean, nullable=False),
    Column("method", Text),
    Column("drafted", BigInteger),
    Column("accepted", BigInteger),
    Column("steps", BigInteger),
    Column("predicted_accepted", BigInteger),
    Column("predicted_rejected", BigInteger),
    Column("cost_nano", BigInteger),
    Column("cost_by_kind", Text, nullable=False),
    Column("price_source", Text, nullable=False),
    Column("cost_estimated", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("ttft_s", Double),
    Column("latency_s", Double, nullable=False),
    Column("engine_s", Double),
    Column("request_id", Text),
    Column("tags", Text, nullable=False),
    Column("decision", Text, nullable=False),
)


def _create(connection: Connection) -> None:
    metadata.create_all(connection, tables=[calls])


#: In order; a database of version n has seen the first n.
MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_create,)


def locate(setting: str | None) -> URL | None:
    """Turn the setting into a database URL, None for ``off``. Touches no disk.

    Args:
        setting: a file path, a database URL, ``off``, or None for the user's data folder.

    Raises:
        ConfigurationError: a URL that cannot be parsed, or a database that would forget everything.
    """
    if setting is None:
        return URL.create(
            "sqlite", database=str(Path(platformdirs.user_data_dir("specclient")) / "ledger.sqlite3")
        )
    if setting.strip().lower() == OFF:
        return None
    if "://" not in setting:
        return URL.create("sqlite", database=str(Path(setting).expanduser()))
    try:
        url = make_url(setting)
    except (ArgumentError, ValueError):
        shown = re.sub(r"//[^/]*@", "//***@", setting)
        raise ConfigurationError(f"ledger {shown!r} is no database URL or path; {WAY_OUT}") from None
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigurationError(f"ledger {setting!r} is kept in memory only and would be lost; {WAY_OUT}")
    return url


def open_database(url: URL) -> Engine:
    """Open the database, creating file, folder and tables where they are missing.

    Raises:
        LedgerError: it cannot be opened, is no database, or was written by a newer version; names it and
            the way out.
    """
    where = name(url)
    try:
        if path := file_of(url):
            _create_file(path)
        engine = _engine(url)
    except OSError as error:
        raise LedgerError(f"cannot open the ledger {where}: {error.strerror or error}; {WAY_OUT}") from None
    except ImportError as error:
        raise LedgerError(
            f"cannot open the ledger {where}: its driver is not installed ({error.name}); {WAY_OUT}"
        ) from None
    except SQLAlchemyError as error:
        raise LedgerError(f"cannot open the ledger {where}: {explain(error)}; {WAY_OUT}") from None
    try:
        _migrate(engine, where)
    except SQLAlchemyError as error:
        engine.dispose()
        raise LedgerError(f"cannot open the ledger {where}: {explain(error)}; {WAY_OUT}") from None
    except LedgerError:
        engine.dispose()
        raise
    return engine


def exists(url: URL) -> bool:
    """Tell whether there is something to read, without creating it.

    Raises:
        LedgerError: the file is missing, and its folder could not be made either.
    """
    path = file_of(url)
    if path is None or os.path.lexists(path):
        return True
    folder = next(parent for parent in Path(path).absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise LedgerError(f"cannot open the ledger {path}: {folder} is no folder to write in; {WAY_OUT}")
    return False


def name(url: URL) -> str:
    """Return what a person knows the database by: the file, or the URL without its password."""
    return file_of(url) or url.render_as_string(hide_password=True)


def file_of(url: URL) -> str | None:
    """Return the path of an SQLite database, None for others and for SQLite's own ``file:`` URIs."""
    is_file = url.get_backend_name() == "sqlite" and not (url.database or "").startswith("file:")
    return url.database if is_file else None


def explain(error: SQLAlchemyError) -> str:
    """Return the driver's own words, without the statement and its parameters."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def immediately(connection: Connection) -> None:
    """Take SQLite's write lock at the start of a transaction, where waiting for it is possible."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _create_file(path: str) -> None:
    """Create the file for its owner's eyes only; SQLite gives its side files the same mode."""
    Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun by hand: see `immediately`
        # In WAL mode a commit survives the death of the process without an fsync for each call.
        connection.execute("PRAGMA synchronous=NORMAL").close()

    return engine


def _migrate(engine: Engine, where: str) -> None:
    with engine.connect() as connection:
        seen = _seen(connection)
    if seen > len(MIGRATIONS):
        raise LedgerError(
            f"the ledger {where} has schema version {seen}, this specclient knows up to {len(MIGRATIONS)}; "
            f"upgrade specclient, or {WAY_OUT}"
        )
    if seen == len(MIGRATIONS):
        return
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")  # kept in the file
            connection.commit()
        immediately(connection)
        _version.create(connection, checkfirst=True)
        for migration in MIGRATIONS[_seen(connection) :]:  # another process may have been first
            migration(connection)
        connection.execute(_version.delete())
        connection.execute(_version.insert().values(version=len(MIGRATIONS)))
        connection.commit()


def _seen(connection: Connection) -> int:
    if not inspect(connection).has_table(_version.name):
        return 0
    return connection.execute(select(_version.c.version)).scalar() or 0
