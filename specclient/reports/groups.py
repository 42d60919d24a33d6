"""Turn the names that a report is grouped by into what they read of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow

__all__ = ["GROUPS", "TIME_GROUPS", "GroupReader", "group_readers"]

#: What a group is called by of a row; "" where the row has none.
GroupReader = Callable[[LedgerRow], str]


def _in_utc(form: str) -> GroupReader:
    def key(row: LedgerRow) -> str:
        at: datetime = row.started_at
        return (at if at.tzinfo is UTC else at.astimezone(UTC)).strftime(form)

    return key


#: Names of spans of time, the finest first, with what they are written as; all in UTC.
TIME_GROUPS: Mapping[str, str] = MappingProxyType(
    {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m"}
)

#: Names to group by, beside ``tag:NAME``.
GROUPS: Mapping[str, GroupReader] = MappingProxyType(
    {
        "provider": lambda row: row.provider,
        "model": lambda row: row.model,
        "served": lambda row: row.served_model or "",
        "route": lambda row: row.route,
        "pair": lambda row: row.pair or "",
        "strategy": lambda row: row.strategy or "",
        "method": lambda row: row.method or "",
        "operation": lambda row: row.operation,
        "purpose": lambda row: row.purpose,
        "status": lambda row: row.status,
        "error": lambda row: row.error or "",
        "streamed": lambda row: "true" if row.streamed else "false",
        "session": lambda row: row.session or "",
        **{name: _in_utc(form) for name, form in TIME_GROUPS.items()},
    }
)

_TAG = "tag:"


def group_readers(by: Sequence[str]) -> list[GroupReader]:
    """Return what each name reads of a row.

    Raises:
        ConfigurationError: a name that there is none of, with those there are; or one given twice.
    """
    if twice := next((name for i, name in enumerate(by) if name in by[:i]), None):
        raise ConfigurationError(f"cannot group by {twice!r} twice; leave one out")
    return [_key(name) for name in by]


def _key(name: str) -> GroupReader:
    if name.startswith(_TAG) and len(name) > len(_TAG):
        tag = name.removeprefix(_TAG)
        return lambda row: row.tags.get(tag, "")
    if name not in GROUPS:
        raise ConfigurationError(f"cannot group by {name!r}; use {', '.join(GROUPS)} or tag:NAME")
    return GROUPS[name]
