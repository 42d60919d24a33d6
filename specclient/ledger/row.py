"""The columns of the table ``calls``: the fields of :class:`LedgerRow`, and one for each count of an answer.

Each field states the value of a Call that it stores. Counts have a column for each figure in
:data:`.figures.COUNTED`. A column is added as a last field of :class:`LedgerRow` with the next schema version
as its ``since``; :mod:`.migrations` adds it to older ledgers. Released columns are never changed, as
databases have them. The values come from the call's record, which holds no prompt, reply or key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

from specclient.ledger.encoding import (
    DECODERS,
    ENCODERS,
    ColumnKind,
    decision_json,
    finite,
    nano_by_kind,
    speculation_values,
    text_labels,
)
from specclient.ledger.figures import COUNTED
from specclient.ledger.store import RowValues
from specclient.runtime.frozen_dict import FrozenDict
from specclient.types.call import Call
from specclient.types.usage import NANO, Speculation
from specclient.types.wire import FailedAttempt

__all__ = [
    "COLUMNS",
    "COLUMN_NAMES",
    "KEY_COLUMN",
    "ORDER_COLUMN",
    "LedgerColumn",
    "LedgerRow",
    "encoded_row",
    "encoded_rows",
]


class LedgerColumn(NamedTuple):
    """One column of the table ``calls``.

    Attributes:
        of: reads the value from a finished call.
        null: whether the value may be unknown; always so for a column that a later version adds.
        since: the schema version that added the column.
    """

    name: str
    of: Callable[[Call], Any]
    kind: ColumnKind
    null: bool
    since: int


def column(
    of: str | Callable[[Call], Any], kind: ColumnKind = "text", *, null: bool = True, since: int
) -> dict[str, Any]:
    """Return the metadata of a field of :class:`LedgerRow`.

    Args:
        of: an attribute of Call, such as ``"usage.prompt"``, or a function of the call.
        since: the schema version that added the column.
    """
    return {"of": attrgetter(of) if isinstance(of, str) else of, "kind": kind, "null": null, "since": since}


_NO_SPECULATION = Speculation()


def _speculation(call: Call) -> Speculation:
    return call.speculation or _NO_SPECULATION


def _predicted_accepted(call: Call) -> int | None:
    count = _speculation(call).predicted_accepted
    return call.usage.accepted_prediction if count is None else count


def _predicted_rejected(call: Call) -> int | None:
    count = _speculation(call).predicted_rejected
    return call.usage.rejected_prediction if count is None else count


def _nano(dollars: Decimal | None) -> int | None:
    return None if dollars is None else int((dollars * NANO).to_integral_value())


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One finished call as the ledger stores it; the field names are the column names.

    Attributes:
        started_at: UTC.
        model: as requested.
        served_model: as the response names it.
        route: as chosen.
        method, drafted, accepted, steps, predicted_accepted, predicted_rejected: as in ``Speculation``.
        cost_nano: nano-dollars, None for an unpriced call; ``cost_by_kind`` sums to it.
        ttft_s, latency_s, engine_s: as in ``Call``, seconds.
        decision: ``chosen``, ``reason`` and each candidate with its verdict.
        attempts: number of attempts; 0 if the row is itself an attempt, counted in its parent's row.
        parent: ``id`` of the call of which this one is a part.
        purpose: the purpose of that part.
        strategy, pair, metadata, session: as in ``Call``.
        speculation: every known field of ``Speculation``; None if nothing is known.
        cached: as in ``Call``.
        saved_nano: ``Call.saved`` in nano-dollars.
        tier: as in ``Cost``.
        prompt_cache_nano: ``Cost.cache_saved`` in nano-dollars.
        in_progress: as in ``Call``.
        counts: as in ``Call``. Each count has a column and a property of its name, None where it is unknown.
    """

    id: str = field(metadata=column("id", null=False, since=1))
    started_at: datetime = field(metadata=column("started_at", "time", null=False, since=1))
    operation: str = field(metadata=column("operation", null=False, since=1))
    provider: str = field(metadata=column("provider", null=False, since=1))
    model: str = field(metadata=column("model", null=False, since=1))
    served_model: str | None = field(default=None, metadata=column("served_model", since=1))
    route: str = field(metadata=column("route.chosen", null=False, since=1))
    streamed: bool = field(default=False, metadata=column("streamed", "flag", null=False, since=1))
    status: str = field(metadata=column("status", null=False, since=1))
    error: str | None = field(default=None, metadata=column("error", since=1))
    http_status: int | None = field(default=None, metadata=column("http_status", "small", since=1))
    prompt_tokens: int | None = field(default=None, metadata=column("usage.prompt", "count", since=1))
    completion_tokens: int | None = field(default=None, metadata=column("usage.completion", "count", since=1))
    cached_tokens: int | None = field(default=None, metadata=column("usage.cached", "count", since=1))
    cache_write_tokens: int | None = field(
        default=None, metadata=column("usage.cache_write", "count", since=1)
    )
    reasoning_tokens: int | None = field(default=None, metadata=column("usage.reasoning", "count", since=1))
    usage_estimated: bool = field(
        default=False, metadata=column("usage.estimated", "flag", null=False, since=1)
    )
    method: str | None = field(default=None, metadata=column(lambda call: _speculation(call).method, since=1))
    drafted: int | None = field(
        default=None, metadata=column(lambda call: _speculation(call).drafted, "count", since=1)
    )
    accepted: int | None = field(
        default=None, metadata=column(lambda call: _speculation(call).accepted, "count", since=1)
    )
    steps: int | None = field(
        default=None, metadata=column(lambda call: _speculation(call).steps, "count", since=1)
    )
    predicted_accepted: int | None = field(
        default=None, metadata=column(_predicted_accepted, "count", since=1)
    )
    predicted_rejected: int | None = field(
        default=None, metadata=column(_predicted_rejected, "count", since=1)
    )
    cost_nano: int | None = field(default=None, metadata=column("cost.nano", "nano", since=1))
    cost_by_kind: Mapping[str, int] = field(
        default_factory=dict,
        metadata=column(lambda call: nano_by_kind(call.cost), "json", null=False, since=1),
    )
    price_source: str = field(default="unpriced", metadata=column("cost.source", null=False, since=1))
    cost_estimated: bool = field(
        default=False, metadata=column("cost.estimated", "flag", null=False, since=1)
    )
    attempts: int = field(default=1, metadata=column("attempts", "small", null=False, since=1))
    ttft_s: float | None = field(default=None, metadata=column("ttft_s", "measure", since=1))
    latency_s: float = field(
        default=0.0,
        metadata=column(lambda call: finite(call.latency_s) or 0.0, "measure", null=False, since=1),
    )
    engine_s: float | None = field(default=None, metadata=column("engine_s", "measure", since=1))
    request_id: str | None = field(default=None, metadata=column("request_id", since=1))
    tags: Mapping[str, str] = field(
        default_factory=dict,
        metadata=column(lambda call: text_labels(call.tags), "json", null=False, since=1),
    )
    decision: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=column(lambda call: decision_json(call.route), "json", null=False, since=1),
    )
    parent: str | None = field(default=None, metadata=column("parent", since=2))
    purpose: str = field(default="call", metadata=column("purpose", since=2))
    strategy: str | None = field(default=None, metadata=column("strategy", since=2))
    pair: str | None = field(default=None, metadata=column("pair", since=2))
    speculation: Mapping[str, Any] | None = field(
        default=None,
        metadata=column(lambda call: speculation_values(call.speculation), "json_or_null", since=2),
    )
    metadata: Mapping[str, str] = field(
        default_factory=dict, metadata=column(lambda call: text_labels(call.metadata), "json", since=2)
    )
    session: str | None = field(default=None, metadata=column("session", since=2))
    cached: bool = field(default=False, metadata=column("cached", "flag", since=5))
    saved_nano: int | None = field(
        default=None, metadata=column(lambda call: _nano(call.saved), "nano", since=5)
    )
    tier: str | None = field(default=None, metadata=column("cost.tier", since=6))
    prompt_cache_nano: int | None = field(
        default=None, metadata=column(lambda call: _nano(call.cost.cache_saved), "nano", since=6)
    )
    in_progress: float | None = field(default=None, metadata=column("in_progress", "measure", since=7))
    counts: Mapping[str, int] = FrozenDict()

    @classmethod
    def of(cls, call: Call) -> LedgerRow:
        """Return the row of a call; a value that no database can hold becomes None."""
        return cls.from_values(encoded_row(call))

    @classmethod
    def from_values(cls, values: RowValues) -> LedgerRow:
        """Return the row that was encoded as these values, one per column."""
        row: dict[str, Any] = {
            name: value if decode is None else decode(value)
            for name, decode, value in zip(COLUMN_NAMES, _DECODERS, values, strict=True)
        }
        row["purpose"] = row["purpose"] or "call"  # unknown in rows of schema version 1
        counts = {name: row.pop(name) for name in _COUNT_NAMES}
        row["counts"] = {name: count for name, count in counts.items() if count is not None}
        return cls(**row)

    @property
    def cost(self) -> Decimal | None:
        """Dollars, None for an unpriced call."""
        return None if self.cost_nano is None else Decimal(self.cost_nano).scaleb(-9)

    def to_dict(self) -> dict[str, Any]:
        """Return the values of all columns by name, in the order of :data:`COLUMNS`."""
        return {name: getattr(self, name) for name in COLUMN_NAMES}


def _call_count(name: str) -> Callable[[Call], int | None]:
    return lambda call: call.counts.get(name)


def _row_count(name: str) -> property:
    return property(lambda row: row.counts.get(name))


#: Names of the columns that hold counts.
_COUNT_NAMES = tuple(each.name for each in COUNTED)
for _name in _COUNT_NAMES:
    if hasattr(LedgerRow, _name):
        raise ValueError(f"the count {_name!r} has the name of a column of LedgerRow; rename it")
    setattr(LedgerRow, _name, _row_count(_name))

#: In the order of versions, which is that of the tables in databases.
COLUMNS = tuple(
    sorted(
        [
            *(LedgerColumn(each.name, **each.metadata) for each in fields(LedgerRow) if each.metadata),
            *(
                LedgerColumn(each.name, _call_count(each.name), "count", null=True, since=each.since)
                for each in COUNTED
            ),
        ],
        key=attrgetter("since"),
    )
)
COLUMN_NAMES = tuple(each.name for each in COLUMNS)
#: The key of the table, and the column that rows are found and sorted by.
KEY_COLUMN, ORDER_COLUMN = COLUMN_NAMES[:2]

_READ_AND_ENCODE = tuple((each.of, ENCODERS[each.kind]) for each in COLUMNS)
_DECODERS = tuple(DECODERS[each.kind] for each in COLUMNS)
#: The columns in which the row of a failed attempt repeats the row of its call.
_SHARED_WITH_ATTEMPTS = (
    "started_at", "operation", "provider", "model", "route", "streamed", "strategy", "pair", "tags",
    "metadata", "session",
)  # fmt: skip


def encoded_row(call: Call) -> RowValues:
    """Return the values that a database stores for a call, in the order of :data:`COLUMNS`.

    Runs for every call, so it creates no LedgerRow.
    """
    return tuple(
        [  # a list is filled faster than a generator
            value if (value := of(call)) is None or encode is None else encode(value)
            for of, encode in _READ_AND_ENCODE
        ]
    )


def encoded_rows(call: Call) -> list[RowValues]:
    """Return all rows of a call: its own, and one for each failed attempt that may have been billed."""
    own = encoded_row(call)
    if not call.lost_attempts:
        return [own]
    return [own, *(_attempt_row(own, n, lost) for n, lost in enumerate(call.lost_attempts))]


def _attempt_row(own: RowValues, number: int, lost: FailedAttempt) -> RowValues:
    """Return the row of a failed attempt: the request's columns, and no usage or cost."""
    shared = {name: own[COLUMN_NAMES.index(name)] for name in _SHARED_WITH_ATTEMPTS}
    values = (
        dict.fromkeys(COLUMN_NAMES)
        | shared
        | {
            "id": f"{own[0]}-{number + 1}",
            "status": "error",
            "error": lost.error,
            "usage_estimated": False,
            "cost_by_kind": "{}",
            "price_source": "unknown: no answer came",
            "cost_estimated": True,
            "attempts": 0,
            "latency_s": finite(lost.seconds) or 0.0,
            "decision": "{}",
            "parent": own[0],
            "purpose": "retry",
        }
    )
    return tuple(values.values())
