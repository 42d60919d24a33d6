"""Turn a ledger setting into the store that it names, without touching a disk."""

from __future__ import annotations

import re
from pathlib import Path

from specclient.costs.schema import WAY_OUT, Store
from specclient.costs.sqlite import SQLite
from specclient.errors import ConfigurationError
from specclient.folders import folder

__all__ = ["OFF", "locate"]

OFF = "off"

#: SQLAlchemy's URLs of SQLite files: three slashes before a relative path, four before an absolute one.
_FILE_URL = re.compile(r"sqlite(\+pysqlite)?://(/(?P<path>[^?]*))?(\?(?P<query>.*))?")


def locate(setting: str | None) -> Store | None:
    """Return the store that a setting names, None for ``off``.

    SQLAlchemy is imported only for databases other than SQLite.

    Args:
        setting: a file path, a database URL, ``off``, or None for a file in the user's data folder.

    Raises:
        ConfigurationError: a URL that cannot be parsed, or a database that would forget everything.
    """
    if setting is None:
        return SQLite(str(folder("data") / "ledger.sqlite3"))
    if setting.strip().lower() == OFF:
        return None
    if "://" not in setting:
        return SQLite(str(Path(setting).expanduser()))
    if of_file := _FILE_URL.fullmatch(setting):
        return _file(setting, of_file["path"] or "", of_file["query"] or "")
    from specclient.costs.database import Database  # noqa: PLC0415 - imports SQLAlchemy

    try:
        return Database(setting)
    except ValueError:
        shown = re.sub(r"//[^/]*@", "//***@", setting)
        raise ConfigurationError(f"ledger {shown!r} is no database URL or path; {WAY_OUT}") from None


def _file(setting: str, path: str, query: str) -> SQLite:
    """Return the store of an SQLite URL, whose path may be one of SQLite's own ``file:`` URIs."""
    if path in ("", ":memory:", "file:", "file::memory:") or "mode=memory" in query:
        raise ConfigurationError(f"ledger {setting!r} is kept in memory only and would be lost; {WAY_OUT}")
    if not query:
        return SQLite(path)
    options = [option for option in query.split("&") if option != "uri=true"]  # for SQLAlchemy, not SQLite
    if not path.startswith("file:"):
        raise ConfigurationError(
            f"ledger {setting!r}: {query!r} is not taken, options are those of SQLite's file: URIs; {WAY_OUT}"
        )
    return SQLite("?".join([path, "&".join(options)] if options else [path]))
