"""API keys of a server, and their stored records.

A key is 256 random bits; the record has its SHA-256. With so many bits, a key cannot be found from its hash
by brute force, so a slow password hash would only slow down requests. Keys are looked up by their hash. The
timing of this look-up reveals nothing about stored keys, because a change of one character changes the
whole hash.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from specclient.errors import ConfigurationError
from specclient.types.budget import Budget, BudgetPeriod
from specclient.types.model_aliases import ModelAliases
from specclient.types.usage import NANO

__all__ = ["NAME_TAG", "PREFIX", "StoredKey", "digest_of", "new_key", "new_token"]

#: Prefix of every key, by which people and secret scanners recognize it.
PREFIX = "sk-sc-"
#: Tag of a call with the name of its key.
NAME_TAG = "key"

KeyStatus = Literal["active", "expired", "revoked"]

_SHOWN = len(PREFIX) + 6
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_MOST = 10**12


@dataclass(frozen=True, kw_only=True)
class StoredKey:
    """The stored record of a key, without the key itself.

    Attributes:
        name: tag of its calls; unique among keys that are not revoked.
        prefix: the first characters of the key, to identify it.
        digest: SHA-256 of the key, in hexadecimal.
        created_at: time of creation, UTC.
        expires_at: time of expiry, UTC; None for no expiry.
        revoked_at: time of revocation, UTC; None if it is not revoked.
        used_at: time of the last use, with a resolution of one minute.
        budget_nano: maximum nano-dollars of its calls in ``period``; None for no limit.
        period: period of the budget.
        requests_per_minute: limit in any 60 seconds; None for no limit.
        tokens_per_minute: limit in any 60 seconds; None for no limit.
        models: patterns of the allowed models (``openai/*``, with ``*``, ``?`` and ``[…]``); empty for all.
        tags: further tags of its calls.
        aliases: other names of models for its requests; they precede those of the configuration.
    """

    name: str
    prefix: str
    digest: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None
    budget_nano: int | None = None
    period: BudgetPeriod = "total"
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    models: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def status(self, now: datetime) -> KeyStatus:
        """Return the status of the key at a time."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at is None or now < self.expires_at else "expired"

    @property
    def paced(self) -> bool:
        """Whether it has a rate limit."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    @property
    def confined(self) -> bool:
        """Whether it may only call models, because its models or its spending are limited."""
        return bool(self.models) or self.budget_nano is not None

    @property
    def labels(self) -> dict[str, str]:
        """The tags of its calls; they override a caller's tags."""
        return {**self.tags, NAME_TAG: self.name}

    @cached_property
    def model_aliases(self) -> ModelAliases | None:
        """The checked aliases; None without any."""
        return ModelAliases(self.aliases) if self.aliases else None

    @cached_property
    def budget(self) -> Budget | None:
        """The budget of its calls. It refuses calls without a price or an upper bound of their cost."""
        if self.budget_nano is None:
            return None
        return Budget(
            name=f"key {self.name}",
            usd=Decimal(self.budget_nano) / NANO,
            period=self.period,
            tag=f"{NAME_TAG}={self.name}",
            unpriced="refuse",
        )

    def allows(self, names: Iterable[str]) -> bool:
        """Return whether it may use a model.

        Args:
            names: all names of the model.
        """
        if not self.models:
            return True
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.models)


def new_token() -> str:
    """Return a new random key."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return the SHA-256 of a key, in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_key(
    name: str,
    token: str,
    now: datetime,
    *,
    expires_at: datetime | None = None,
    usd: Decimal | None = None,
    period: BudgetPeriod = "total",
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    models: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> StoredKey:
    """Return the record of a new key; see :class:`StoredKey`.

    Args:
        name: the key's name.
        token: the key.
        now: time of creation.
        usd: budget in dollars.

    Raises:
        ConfigurationError: a value is invalid; the message names it and what is allowed.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"a key's name is {name[:80]!r}; it must be 1 to 64 letters, digits, '.', '_', '@' or '-', "
            "starting with a letter or digit"
        )
    for what, number in (("requests", requests_per_minute), ("tokens", tokens_per_minute)):
        if number is not None and not 1 <= number <= _MOST:
            raise ConfigurationError(f"key {name!r}: {what} per minute is {number}; it must be at least 1")
    if expires_at is not None and expires_at <= now:
        raise ConfigurationError(
            f"key {name!r} would expire at {expires_at:%Y-%m-%d %H:%M}, which is in the past"
        )
    labels = dict(tags or {})
    if NAME_TAG in labels:
        raise ConfigurationError(f"key {name!r}: the tag {NAME_TAG!r} is the key's name and cannot be set")
    patterns = tuple(dict.fromkeys(models))
    if not all(patterns):
        raise ConfigurationError(f"key {name!r}: a model pattern is empty; write for example 'openai/*'")
    key = StoredKey(
        name=name,
        prefix=token[:_SHOWN],
        digest=digest_of(token),
        created_at=now.astimezone(UTC),
        expires_at=None if expires_at is None else expires_at.astimezone(UTC),
        budget_nano=None if usd is None else int(usd * NANO),
        period=period,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        models=patterns,
        tags=labels,
        aliases=dict(aliases or {}),
    )
    _ = key.budget, key.model_aliases  # raise for an invalid amount, and for aliases that cannot be resolved
    return key
