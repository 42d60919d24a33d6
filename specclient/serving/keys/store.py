"""Storage of keys in a table of the ledger's database."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar, cast

from specclient.errors import ConfigurationError, LedgerError
from specclient.ledger.encoding import timestamp
from specclient.ledger.location import locate
from specclient.ledger.store import LEDGER_HINT, Execute, LedgerStore, SQLValue
from specclient.serving.keys.key import PREFIX, StoredKey, digest_of

__all__ = ["DamagedKeyError", "KeyStore"]

T = TypeVar("T")

#: Migrations of the table; another table has the number of applied ones. Append migrations, but never change
#: them, because existing tables were made with them.
_VERSION = "server_keys_schema"
_VERSIONS = (
    "CREATE TABLE server_keys (digest TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL, "
    "created_at TEXT NOT NULL, expires_at TEXT, revoked_at TEXT, used_at TEXT, budget_nano BIGINT, "
    "period TEXT NOT NULL, requests_per_minute BIGINT, tokens_per_minute BIGINT, models TEXT NOT NULL, "
    "tags TEXT NOT NULL)",
    "ALTER TABLE server_keys ADD COLUMN aliases TEXT NOT NULL DEFAULT '{}'",
)
_COLUMNS = (
    "digest", "name", "prefix", "created_at", "expires_at", "revoked_at", "used_at", "budget_nano", "period",
    "requests_per_minute", "tokens_per_minute", "models", "tags",
    "aliases",
)  # fmt: skip
_TIMES = ("created_at", "expires_at", "revoked_at", "used_at")
_ALL = f"SELECT {', '.join(_COLUMNS)} FROM server_keys ORDER BY created_at, digest"  # noqa: S608
_ADD = f"INSERT INTO server_keys VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"  # noqa: S608
_LIVE = "SELECT prefix FROM server_keys WHERE name = :name AND revoked_at IS NULL"
_REVOKE = "UPDATE server_keys SET revoked_at = :at WHERE digest = :digest"
_USED = "UPDATE server_keys SET used_at = :at WHERE digest = :digest AND (used_at IS NULL OR used_at < :at)"


class DamagedKeyError(LedgerError):
    """A stored key cannot be decoded."""


class KeyStore:
    """The keys in one database. Thread-safe; methods block.

    Every method raises LedgerError if the database fails; the message names the database and says what
    to do.

    Args:
        store: the database; not shared with other objects.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._made = False

    @classmethod
    def of(cls, setting: str | None) -> KeyStore | None:
        """Return the key store in the configured ledger; None if the ledger is off.

        Raises:
            ConfigurationError: the setting is invalid.
        """
        store = locate(setting)
        return None if store is None else cls(store)

    @property
    def name(self) -> str:
        """Display name of the database, without a password."""
        return self._store.name

    @property
    def is_remote(self) -> bool:
        """Whether the database is a server, which may be unreachable at times."""
        return "://" in self.name

    def all(self) -> list[StoredKey]:
        """Return all keys, including revoked ones, oldest first. Does not create a missing ledger."""
        if not self._store.exists():
            return []
        if not self._made:
            self._transact(_nothing)
        return self._keys(self._store.query(_ALL))

    def add(self, key: StoredKey) -> None:
        """Store a new key.

        Raises:
            ConfigurationError: another key has its name.
        """

        def add(execute: Execute) -> None:
            if found := execute(_LIVE, {"name": key.name}):
                raise ConfigurationError(
                    f"a key named {key.name!r} already exists ({found[0][0]}…); revoke it first, or choose "
                    "another name"
                )
            execute(_ADD, _values(key))

        self._transact(add)

    def revoke(self, given: str, at: datetime) -> StoredKey:
        """Revoke a key and return it.

        Args:
            given: the name of the key, its first characters, or the key itself.
            at: time of the revocation.

        Raises:
            ConfigurationError: no key or several keys match.
        """

        def revoke(execute: Execute) -> StoredKey:
            key = _named(given, self._keys(execute(_ALL)))
            execute(_REVOKE, {"digest": key.digest, "at": timestamp(at)})
            return key

        return self._transact(revoke)

    def used(self, key: StoredKey, at: datetime) -> None:
        """Record a use of a key."""
        self._transact(lambda execute: execute(_USED, {"digest": key.digest, "at": timestamp(at)}))

    def close(self) -> None:
        """Close the writing connection; the next use opens it again."""
        with self._lock:
            self._store.close()

    def _keys(self, rows: Iterable[tuple[SQLValue, ...]]) -> list[StoredKey]:
        try:
            return [_key(row) for row in rows]
        except (TypeError, ValueError, ConfigurationError) as error:
            raise DamagedKeyError(
                f"a key in {self.name} is damaged ({error}); repair or delete its row in server_keys, or "
                f"{LEDGER_HINT}"
            ) from None

    def _transact(self, work: Callable[[Execute], T]) -> T:
        def run(execute: Execute) -> T:
            if not self._made:
                self._upgrade(execute)
            return work(execute)

        with self._lock:
            result = self._store.transact(run)
            self._made = True
            return result

    def _upgrade(self, execute: Execute) -> None:
        execute(f"CREATE TABLE IF NOT EXISTS {_VERSION} (version INTEGER NOT NULL)")
        found = execute(f"SELECT version FROM {_VERSION}")  # noqa: S608
        seen = cast("int", found[0][0]) if found else 0
        if seen > len(_VERSIONS):
            raise LedgerError(
                f"the keys in {self.name} have schema version {seen}, this specclient knows up to "
                f"{len(_VERSIONS)}; upgrade specclient, or {LEDGER_HINT}"
            )
        if seen == len(_VERSIONS):
            return
        for statement in _VERSIONS[seen:]:
            execute(statement)
        if not found:
            execute(f"INSERT INTO {_VERSION} VALUES (0)")  # noqa: S608
        execute(f"UPDATE {_VERSION} SET version = {len(_VERSIONS)}")  # noqa: S608


def _named(given: str, keys: Iterable[StoredKey]) -> StoredKey:
    live = [key for key in keys if key.revoked_at is None]
    found = [key for key in live if given == key.name or digest_of(given) == key.digest]
    if not found and given.startswith(PREFIX) and len(given) > len(PREFIX):
        found = [key for key in live if key.prefix.startswith(given)]
    if len(found) == 1:
        return found[0]
    shown = f"{given[: len(PREFIX) + 6]}…" if given.startswith(PREFIX) else given[:80]
    if found:
        raise ConfigurationError(f"{len(found)} keys start with {shown!r}; give the name of one")
    known = ", ".join(key.name for key in live) or "none"
    raise ConfigurationError(f"no key has the name or prefix {shown!r}; the keys are: {known}")


def _values(key: StoredKey) -> dict[str, SQLValue]:
    values: dict[str, Any] = {name: getattr(key, name) for name in _COLUMNS}
    values.update((name, timestamp(values[name])) for name in _TIMES if values[name] is not None)
    return values | {
        "models": json.dumps(key.models),
        "tags": json.dumps(dict(key.tags)),
        "aliases": json.dumps(dict(key.aliases)),
    }


def _key(row: tuple[SQLValue, ...]) -> StoredKey:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    values.update((name, datetime.fromisoformat(values[name])) for name in _TIMES if values[name])
    values["models"] = tuple(json.loads(values["models"]))
    values["tags"], values["aliases"] = json.loads(values["tags"]), json.loads(values["aliases"])
    key = StoredKey(**values)
    _ = key.budget  # raises if it is invalid
    return key


def _nothing(_: Execute) -> None:
    """Do nothing; the transaction creates a missing table."""
