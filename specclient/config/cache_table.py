"""The table of the configuration for the response cache."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specclient.config.tables import SettingsTable
from specclient.types.cache_options import CacheLimits

_CACHE = CacheLimits()


class CacheSettings(SettingsTable):
    """The ``[cache]`` table: the response cache.

    Attributes:
        enabled: whether calls use it that do not say so themselves.
        store: the path of an SQLite file, the URL of a PostgreSQL or Redis server, or None for a file in the
            user's data folder.
        random: whether answers to calls with random sampling are kept, too.
        shared: whether the keys of a server share the answers.
        across_processes: whether equal calls of several processes at the same time are made once, too.
        max_age_s, max_entries, max_bytes: the fields of
            :class:`specclient.types.cache_options.CacheLimits`.
    """

    enabled: bool = False
    store: str | None = Field(default=None, repr=False)  # a URL may hold a password
    random: bool = False
    shared: bool = False
    across_processes: bool = False
    max_age_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = _CACHE.max_age_s
    max_entries: Annotated[int, Field(ge=0)] = _CACHE.max_entries
    max_bytes: Annotated[int, Field(ge=0)] = _CACHE.max_bytes

    def limits(self) -> CacheLimits:
        """Return the limits."""
        return CacheLimits(max_age_s=self.max_age_s, max_entries=self.max_entries, max_bytes=self.max_bytes)
