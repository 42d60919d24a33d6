"""The store that a ledger setting names, found without touching a disk."""

from __future__ import annotations

import re
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient.ledger.sqlite import SQLiteStore
from specclient.ledger.store import LEDGER_HINT, LedgerStore
from specclient.runtime.folders import user_folder
from specclient.runtime.masked_urls import mask_url_passwords

__all__ = ["OFF", "locate"]

OFF = "off"

#: SQLAlchemy's URLs of SQLite files: three slashes precede a relative path, four an absolute one.
_FILE_URL = re.compile(r"sqlite(\+pysqlite)?://(/(?P<path>[^?]*))?(\?(?P<query>.*))?")

#: A URL of a server without its two slashes.
_MISTYPED_URL = re.compile(r"(postgres(ql)?|mysql|mariadb)(\+\w+)?:(?!//)", re.IGNORECASE)
#: A password in a connection string of libpq, as ``host=db password=…``.
_LIBPQ_PASSWORD = re.compile(r"^(?!\w+:)(.*\s)?password\s*=", re.IGNORECASE)


def locate(setting: str | None, *, sync: bool = False) -> LedgerStore | None:
    """Return the store for a setting, None for ``off``. Imports SQLAlchemy only for a PostgreSQL server.

    Args:
        setting: a file path, a database URL, ``off``, or None for a file in the user's data folder.
        sync: whether a commit waits until the data is on the disk. A PostgreSQL server decides this itself.

    Raises:
        ConfigurationError: the URL cannot be parsed, names a database in memory, or needs a package that is
            not installed.
    """
    if setting is None:
        return SQLiteStore(str(user_folder("data") / "ledger.sqlite3"), sync=sync)
    if setting.strip().lower() == OFF:
        return None
    if _MISTYPED_URL.match(setting):
        return _server(setting)  # raises; as a path, its password would be the name of a file
    if _LIBPQ_PASSWORD.search(setting):
        raise ConfigurationError(
            "ledger is a connection string with a password (not shown), which would become a file's name; "
            f"write postgresql://USER:PASSWORD@HOST/DATABASE, or {LEDGER_HINT}"
        )
    if "://" not in setting:
        return SQLiteStore(str(Path(setting).expanduser()), sync=sync)
    if of_file := _FILE_URL.fullmatch(setting):
        return SQLiteStore(_file(setting, of_file["path"] or "", of_file["query"] or ""), sync=sync)
    return _server(setting)


def _server(url: str) -> LedgerStore:
    shown = mask_url_passwords(url)
    try:
        from specclient.ledger.postgres import PostgresStore  # noqa: PLC0415 - imports SQLAlchemy
    except ImportError as error:
        raise ConfigurationError(
            f"ledger {shown!r} needs {error.name}, which is not installed: pip install "
            f"'specclient[postgres]', or {LEDGER_HINT}"
        ) from None
    try:
        return PostgresStore(url)
    except ValueError:
        raise ConfigurationError(
            f"ledger {shown!r} is neither a path nor a URL of an SQLite file or a PostgreSQL server; "
            f"{LEDGER_HINT}"
        ) from None


def _file(setting: str, path: str, query: str) -> str:
    """Return the path of an SQLite URL; it may be a ``file:`` URI of SQLite."""
    setting = mask_url_passwords(setting)  # for messages
    shown = setting.partition("?")[2]
    if path in ("", ":memory:", "file:", "file::memory:") or "mode=memory" in query:
        raise ConfigurationError(
            f"ledger {setting!r} is a database in memory and would be lost; {LEDGER_HINT}"
        )
    if not query:
        return path
    options = [option for option in query.split("&") if option != "uri=true"]  # for SQLAlchemy, not SQLite
    if not path.startswith("file:"):
        raise ConfigurationError(
            f"ledger {setting!r}: the option {shown!r} is not supported; write options as in SQLite's file: "
            f"URIs; {LEDGER_HINT}"
        )
    return "?".join([path, "&".join(options)] if options else [path])
