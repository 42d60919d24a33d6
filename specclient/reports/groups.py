"""Group names of reports, and the functions that read a group's value from a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow

__all__ = ["GROUPS", "TIME_GROUPS", "GroupReader", "group_readers"]

#: Reads the group's value from a row; "" if the row has none.
GroupReader = Callable[[LedgerRow], str]


def _in_utc(form: str) -> GroupReader:
    def key(row: LedgerRow) -> str:
        at: datetime = row.started_at
        return (at if at.tzinfo is UTC else at.astimezone(UTC)).strftime(form)

    return key


#: Spans of time, the shortest first, with their formats; all in UTC.
TIME_GROUPS: Mapping[str, str] = MappingProxyType(
    {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m"}
)

#: Group names, in addition to ``tag:NAME``.
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
        "tier": lambda row: row.tier or "",
        "session": lambda row: row.session or "",
        **{name: _in_utc(form) for name, form in TIME_GROUPS.items()},
    }
)

_TAG = "tag:"


def group_readers(by: Sequence[str]) -> list[GroupReader]:
    """Return the reader for each group name.

    Raises:
        ConfigurationError: an unknown name, the message lists the known ones; or the same name twice.
    """
    if twice := next((name for i, name in enumerate(by) if name in by[:i]), None):
        raise ConfigurationError(f"cannot group by {twice!r} twice; leave one out")
    return [_group_reader(name) for name in by]


def _group_reader(name: str) -> GroupReader:
    if name.startswith(_TAG) and len(name) > len(_TAG):
        tag = name.removeprefix(_TAG)
        return lambda row: row.tags.get(tag, "")
    if name not in GROUPS:
        raise ConfigurationError(f"cannot group by {name!r}; use {', '.join(GROUPS)} or tag:NAME")
    return GROUPS[name]
