"""The store that a setting names, found without touching a disk or a network."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from specclient.errors import ConfigurationError
from specclient.response_cache.sqlite import SQLiteAnswers
from specclient.response_cache.store import CACHE_HINT, AnswerStore
from specclient.runtime.folders import user_folder
from specclient.runtime.masked_urls import mask_url_passwords
from specclient.types.cache_options import CacheLimits

__all__ = ["answer_store"]

_REDIS = ("redis://", "rediss://", "unix://")
#: A URL of a server without its two slashes; as a path, its password would be the name of a file.
_MISTYPED_URL = re.compile(r"(postgres(ql)?|rediss?|mysql|mariadb)(\+\w+)?:(?!//)", re.IGNORECASE)
_FILE_URL = "sqlite:///"


def answer_store(
    setting: str | None, limits: CacheLimits, now: Callable[[], float] = time.time
) -> AnswerStore:
    """Return the store for a setting. Imports SQLAlchemy or redis only for a server.

    Args:
        setting: the path of an SQLite file, the URL of a PostgreSQL or Redis server, or None for a file in
            the user's data folder.
        limits: limits on age and size.
        now: returns seconds since the epoch.

    Raises:
        ConfigurationError: the setting is none of these, or needs a package that is not installed.
    """
    if setting is None:
        return SQLiteAnswers(str(user_folder("data") / "cache.sqlite3"), limits, now=now)
    if setting.startswith(_REDIS):
        from specclient.response_cache.redis import RedisAnswers  # noqa: PLC0415 - an extra

        return RedisAnswers(setting, limits, now=now)
    if setting.startswith(_FILE_URL):
        setting = setting.removeprefix(_FILE_URL)
    if not setting.strip():
        raise ConfigurationError(f"cache.store is {setting!r}; it must be a path or a URL; {CACHE_HINT}")
    if "://" in setting or _MISTYPED_URL.match(setting):
        return _server(setting, limits, now)
    return SQLiteAnswers(str(Path(setting).expanduser()), limits, now=now)


def _server(url: str, limits: CacheLimits, now: Callable[[], float]) -> AnswerStore:
    shown = mask_url_passwords(url)
    try:
        from specclient.response_cache.postgres import PostgresAnswers  # noqa: PLC0415 - imports SQLAlchemy
    except ImportError as error:
        raise ConfigurationError(
            f"cache.store {shown!r} needs {error.name}, which is not installed: pip install "
            f"'specclient[postgres]', or {CACHE_HINT}"
        ) from None
    try:
        return PostgresAnswers(url, limits, now=now)
    except ValueError:
        raise ConfigurationError(
            f"cache.store {shown!r} is neither a path nor a URL of a PostgreSQL or Redis server; {CACHE_HINT}"
        ) from None
