"""The store of answers in a PostgreSQL database, which several machines may share.

Imported only if the setting names a server, as SQLAlchemy takes much memory. The extra ``postgres`` installs
it. The tables may be in the ledger's database, or in one of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from specclient.response_cache import tables
from specclient.response_cache.store import CACHE_HINT, CacheStoreError, NewAnswer, StoreContents
from specclient.response_cache.tables import ExecuteSQL
from specclient.runtime.masked_urls import mask_url_passwords
from specclient.types.cache_options import CacheLimits

__all__ = ["PostgresAnswers"]

_CONNECT_S = 2
#: Milliseconds after which the server ends a statement, and the transaction of a suspended process.
_LIMITS = (
    "SELECT set_config('statement_timeout', '5000', true), "
    "set_config('idle_in_transaction_session_timeout', '10000', true)"
)
#: The advisory lock of those who create the tables.
_LOCK = "SELECT pg_advisory_xact_lock(99404878)"


class PostgresAnswers:
    """The answers in one database; see :class:`~specclient.response_cache.store.AnswerStore`.

    Args:
        url: of the database, as SQLAlchemy writes it; ``postgresql://…`` selects the driver psycopg.
        limits: limits on age and size.
        now: returns seconds since the epoch.

    Raises:
        ValueError: the URL does not name a PostgreSQL database. The message leaves out the URL, which may
            hold a password.
    """

    threads = 4

    def __init__(self, url: str, limits: CacheLimits, *, now: Callable[[], float] = time.time) -> None:
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
        self._limits, self._now = limits, now
        self._engine: Engine | None = None

    def exists(self) -> bool:
        """Return True: whether the tables exist is known only when they are read."""
        return True

    def find(self, key: str, oldest_ms: int) -> bytes | None:
        """Return the answer of a key that was made at this time or later; None if there is none."""
        with self._transaction("read") as execute:
            found = execute(tables.FIND, {"key": key, "oldest": oldest_ms})
        return bytes(found[0][0]) if found else None

    def put(self, answer: NewAnswer, used: Collection[tuple[str, int]] = ()) -> None:
        """Store an answer in one transaction, and keep the limits."""
        with self._transaction("write") as execute:
            tables.put(execute, answer, used, self._limits, self._now)

    def remove(self, key: str) -> None:
        """Remove an answer."""
        with self._transaction("write") as execute:
            tables.remove(execute, key)

    def claim(self, key: str, holder: str, lease_s: float) -> bool:
        """Claim the call of a key for some seconds; return False if another holder has claimed it."""
        with self._transaction("write") as execute:
            return tables.claim(execute, key, holder, lease_s, self._now)

    def release(self, key: str, holder: str) -> None:
        """End a holder's claim."""
        with self._transaction("write") as execute:
            tables.release(execute, key, holder)

    def contents(self) -> StoreContents:
        """Return what the tables hold."""
        with self._transaction("read") as execute:
            return tables.contents(execute)

    def clear(self) -> int:
        """Remove all answers; return their number."""
        with self._transaction("write") as execute:
            return tables.delete_all(execute)

    def close(self) -> None:
        """Close the connections."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def abandon(self) -> None:
        """Drop the connections without closing them: they stay referenced, as collection would close them."""
        _inherited.append(self._engine)
        self._engine = None

    @contextmanager
    def _transaction(self, what: str) -> Iterator[ExecuteSQL]:
        with self._errors(what):
            engine = self._engine
            if engine is None:
                engine = self._engine = self._open()
            with engine.begin() as connection:
                connection.execute(text(_LIMITS))
                yield _executing(connection)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            why = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            password = self._url.password
            why = why.replace(password, "***") if password else why
        except ImportError as error:
            why = (
                f"its driver is not installed ({error.name}); pip install 'specclient[postgres]' brings "
                "psycopg"
            )
        else:
            return
        raise CacheStoreError(f"cannot {what} the response cache {self.name}: {why}; {CACHE_HINT}")

    def _open(self) -> Engine:
        """Connect; create the tables if they are missing."""
        options: dict[str, Any] = {}
        if self._url.get_driver_name() == "psycopg" and "connect_timeout" not in self._url.query:
            options["connect_timeout"] = _CONNECT_S
        engine = create_engine(
            self._url, pool_pre_ping=True, pool_size=self.threads, pool_timeout=5, connect_args=options
        )
        try:
            with engine.begin() as connection:
                if not inspect(connection).has_table(tables.ANSWERS_TABLE):
                    connection.execute(text(_LOCK))
                    if not inspect(connection).has_table(tables.ANSWERS_TABLE):  # made meanwhile
                        for statement in tables.statements("BYTEA"):
                            connection.execute(text(statement))
        except BaseException:
            engine.dispose()
            raise
        return engine


def _executing(connection: Connection) -> ExecuteSQL:
    def execute(sql: str, params: Mapping[str, Any] = {}, /) -> list[tuple[Any, ...]]:
        found = connection.execute(text(sql), dict(params))
        return [tuple(row) for row in found] if found.returns_rows else []

    return execute


_inherited: list[Engine | None] = []
