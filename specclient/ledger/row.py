"""Turn what the ledger keeps of a call back into something with names: the row that reports read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from specclient.ledger.encoding import JSON_COLUMNS, column_values
from specclient.ledger.schema import COLUMN_NAMES, COLUMNS, RowValues
from specclient.types.call import Call

__all__ = ["LedgerRow"]

_FLAGS = tuple(column.name for column in COLUMNS if column.kind == "flag")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One finished call as the ledger keeps it; the field names are the column names.

    Attributes:
        started_at: UTC.
        model: as asked for; ``served_model``: as the answer names it; ``route``: as chosen.
        method, drafted, accepted, steps, predicted_accepted, predicted_rejected: as in ``Speculation``.
        cost_nano: nano-dollars, None where the call is unpriced; ``cost_by_kind`` sums to it.
        ttft_s, latency_s, engine_s: as in ``Call``, seconds.
        decision: ``chosen``, ``reason`` and each candidate with its verdict.
        attempts: tries it took; 0 where it is a try of its parent's itself, counted there.
        parent: ``id`` of the call that this one is a part of; ``purpose``: what for.
        strategy, pair, metadata, session: as in ``Call``.
        speculation: every field of ``Speculation`` that is known; None where nothing is.
    """

    id: str
    started_at: datetime
    operation: str
    provider: str
    model: str
    served_model: str | None = None
    route: str
    streamed: bool = False
    status: str
    error: str | None = None
    http_status: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    usage_estimated: bool = False
    method: str | None = None
    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None
    predicted_accepted: int | None = None
    predicted_rejected: int | None = None
    cost_nano: int | None = None
    cost_by_kind: Mapping[str, int] = field(default_factory=dict)
    price_source: str = "unpriced"
    cost_estimated: bool = False
    attempts: int = 1
    ttft_s: float | None = None
    latency_s: float = 0.0
    engine_s: float | None = None
    request_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    decision: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    purpose: str = "call"
    strategy: str | None = None
    pair: str | None = None
    speculation: Mapping[str, Any] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None

    @classmethod
    def of(cls, call: Call) -> LedgerRow:
        """Return the row of a call; a value of a server's that no database can hold becomes None."""
        return cls(**column_values(call))

    @classmethod
    def from_values(cls, values: RowValues) -> LedgerRow:
        """Return the row kept as these values, by a database or
        :func:`specclient.ledger.encoding.encoded_row`."""
        row: dict[str, Any] = dict(zip(COLUMN_NAMES, values, strict=True))
        row.update((name, json.loads(row[name] or "{}")) for name in JSON_COLUMNS)
        row.update((name, bool(row[name])) for name in _FLAGS)
        row["purpose"] = row["purpose"] or "call"
        row["speculation"] = json.loads(row["speculation"]) if row["speculation"] else None
        row["started_at"] = datetime.fromisoformat(row["started_at"])
        return cls(**row)

    @property
    def cost(self) -> Decimal | None:
        """Dollars, None where the call is unpriced."""
        return None if self.cost_nano is None else Decimal(self.cost_nano).scaleb(-9)
