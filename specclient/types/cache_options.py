"""The options of a call for the response cache, and the limits of the cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from specclient.errors import ConfigurationError
from specclient.runtime.short_repr import short_repr

__all__ = ["CacheLimits", "CacheOptions", "CacheSetting"]

_DAY_S = 86_400
_ALLOWED = "True, False, a number of seconds above 0, a mapping, or a specclient.CacheOptions"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """How a call uses the response cache.

    Attributes:
        max_age_s: seconds; an older answer is not used. None for the limit of the configuration, which is
            never exceeded.
        random: whether answers to calls whose sampling is random are kept and used, too. None for the value
            of the configuration. See :func:`specclient.call.cached.rules.is_random`.

    Raises:
        ConfigurationError: a value is invalid; the message names it and what is allowed.
    """

    max_age_s: float | None = None
    random: bool | None = None

    def __post_init__(self) -> None:
        age = self.max_age_s
        if age is not None and (
            isinstance(age, bool) or not isinstance(age, int | float) or math.isnan(age) or age <= 0
        ):
            raise ConfigurationError(
                f"cache.max_age_s is {short_repr(age)}; it must be a number of seconds above 0"
            )
        if self.random is not None and not isinstance(self.random, bool):
            raise ConfigurationError(f"cache.random is {short_repr(self.random)}; it must be True or False")

    @classmethod
    def of(cls, given: object) -> CacheOptions | Literal[False] | None:
        """Return the value of a call's option ``cache``.

        Args:
            given: True, False, the maximum age in seconds, the fields of this class as a mapping, or an
                object of this class; None leaves the choice to the configuration.

        Returns:
            The options; False for a call that does not use the cache; None for None.

        Raises:
            ConfigurationError: the value, or a field of it, is invalid.
        """
        if given is None or given is False or isinstance(given, cls):
            return given
        if given is True:
            return _DEFAULT
        if isinstance(given, Mapping):
            known = [field.name for field in fields(cls)]
            unknown = [name for name in given if name not in known]
            if unknown:
                raise ConfigurationError(
                    f"cache has {short_repr(unknown[0])}; allowed are {', '.join(known)}"
                )
            return cls(**given)
        if isinstance(given, int | float):
            if not given > 0:
                raise ConfigurationError(f"cache is {given!r}; it must be {_ALLOWED}")
            return cls(max_age_s=given)
        raise ConfigurationError(f"cache is {short_repr(given)}; it must be {_ALLOWED}")


_DEFAULT = CacheOptions()

#: The values of a call's option ``cache``; see :meth:`CacheOptions.of`.
CacheSetting: TypeAlias = bool | float | Mapping[str, Any] | CacheOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLimits:
    """Limits on the answers that are kept. The least recently used go first.

    Attributes:
        max_age_s: seconds after which an answer is removed.
        max_entries: the number of answers; 0 keeps none.
        max_bytes: bytes of all answers; 0 keeps none. A single answer may take an eighth of it.
    """

    max_age_s: float = 7.0 * _DAY_S
    max_entries: int = 100_000
    max_bytes: int = 2**28

    @property
    def max_entry_bytes(self) -> int:
        """The bytes that one answer may take."""
        return self.max_bytes // 8

    @property
    def max_age_ms(self) -> int:
        """The maximum age in milliseconds."""
        return int(min(self.max_age_s, 1e9) * 1000)
