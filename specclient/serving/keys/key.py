"""Turn what an operator grants into a key that is shown once, and the record by which it is known again.

A key is 256 random bits. What is kept of it is its SHA-256: with so much to guess, nobody finds a key from
its hash by trying, however fast each try is, so the slow hash that passwords need would only make requests
slow. A key that is brought is looked up by its hash, whose time tells nothing of any key: whoever
changes one letter of what is brought changes all of the hash.
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
from specclient.types.usage import NANO

__all__ = ["NAME_TAG", "PREFIX", "StoredKey", "digest_of", "new_key", "new_token"]

#: What every key begins with, for people and secret scanners to know it by.
PREFIX = "sk-sc-"
#: The label that a call bears of the key that brought it.
NAME_TAG = "key"

KeyStatus = Literal["active", "expired", "revoked"]

_SHOWN = len(PREFIX) + 6
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_MOST = 10**12


@dataclass(frozen=True, kw_only=True)
class StoredKey:
    """A key as it is kept: not the key itself.

    Attributes:
        name: what its calls are labelled with; no two keys that are not revoked have one name.
        prefix: the first letters of the key, to tell it by.
        digest: its SHA-256, in hexadecimal.
        used_at: when it was last used, to the minute.
        budget_nano: nano-dollars that its calls may cost in ``period``; None for no limit.
        requests_per_minute, tokens_per_minute: in any 60 seconds; None for no limit.
        models: patterns of the models that it may use (``openai/*``, with ``*``, ``?`` and ``[…]``); none
            for all.
        tags: labels that its calls bear beside its name.
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

    def status(self, now: datetime) -> KeyStatus:
        """Return whether it may be used at a time, or why not."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at is None or now < self.expires_at else "expired"

    @property
    def paced(self) -> bool:
        """Whether its requests or tokens are limited."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    @property
    def confined(self) -> bool:
        """Whether it may only do what can be counted, or is named: call models, by their names."""
        return bool(self.models) or self.budget_nano is not None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its calls; they stand over a caller's own."""
        return {**self.tags, NAME_TAG: self.name}

    @cached_property
    def budget(self) -> Budget | None:
        """What its calls may cost; models without a price are refused, as they could not be counted."""
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
        """Tell whether it may use a model that goes by these names."""
        if not self.models:
            return True
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.models)


def new_token() -> str:
    """Return a key that nobody has."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return what a key is known by."""
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
) -> StoredKey:
    """Return the record of a new key; see :class:`StoredKey`.

    Args:
        usd: its budget in dollars.

    Raises:
        ConfigurationError: for what cannot be, named with what is allowed.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"a key's name is {name[:80]!r}; it must be 1 to 64 letters, digits, '.', '_', '@' or '-', of "
            "which the first is a letter or digit"
        )
    for what, number in (("requests", requests_per_minute), ("tokens", tokens_per_minute)):
        if number is not None and not 1 <= number <= _MOST:
            raise ConfigurationError(f"key {name!r}: {what} per minute are {number}; at least 1 are needed")
    if expires_at is not None and expires_at <= now:
        raise ConfigurationError(f"key {name!r} would expire at {expires_at:%Y-%m-%d %H:%M}, which is past")
    labels = dict(tags or {})
    if NAME_TAG in labels:
        raise ConfigurationError(f"key {name!r}: the tag {NAME_TAG!r} is the key's name and cannot be set")
    patterns = tuple(dict.fromkeys(models))
    if not all(patterns):
        raise ConfigurationError(
            f"key {name!r}: a pattern of models is empty; write 'openai/*', for instance"
        )
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
    )
    _ = key.budget  # refuses a sum that is none
    return key
