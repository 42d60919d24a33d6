"""Books what a vendor bills by itself when a caller's answer shows it: fine-tuning jobs and containers.

A fine-tuning job that has ended is one row of the ledger, by its ``trained_tokens`` (OpenAI, "The fine-tuning
job object": the billable tokens), however often it is read. A container that a caller makes is one row, too;
calls that run code in it are not billed for it again while its session lasts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from specclient.call.batch_paths import CONTAINER, output_name
from specclient.call.recorded_calls import RecordedCalls
from specclient.call.result import CallResult
from specclient.prices.prices import Prices
from specclient.providers import Endpoint
from specclient.providers.reported_fields import count, fields_of
from specclient.providers.tool_usage import CONTAINER_SIZES
from specclient.types.call import Call, CallStatus
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Decision
from specclient.types.usage import Usage, UsageUnit

if TYPE_CHECKING:
    from specclient.budgets.late_charges import LateCharges

__all__ = ["BilledObject", "BookedObjects"]

#: States of a job that has ended, and the status of its row.
_ENDED: Final[Mapping[str, CallStatus]] = {"succeeded": "ok", "failed": "error", "cancelled": "cancelled"}
_LONGEST: Final = 128


class BilledObject(NamedTuple):
    """Something that a vendor bills by itself.

    Attributes:
        operation: its name in the ledger.
        name: the model, or what is billed instead of one.
        identity: names it among all of its kind at the provider.
        usage: its units; without any if their number is not known.
        at: when it was billed.
    """

    operation: str
    name: str
    identity: str
    usage: Usage
    at: datetime
    status: CallStatus = "ok"


class BookedObjects:
    """Books what the answers of one client show.

    Args:
        calls: receives the records.
        prices: computes the costs.
        late_charges: returns the budgets that count them; None for no budgets.
    """

    def __init__(
        self, calls: RecordedCalls, prices: Prices, late_charges: Callable[[], LateCharges | None]
    ) -> None:
        self._calls, self._prices, self._late_charges = calls, prices, late_charges

    async def note(self, request: Request, result: CallResult) -> None:
        """Book what an answer shows."""
        places = self._calls.destinations
        endpoint = places.get(request.provider or places.default)
        if not isinstance(endpoint, Endpoint):
            return
        value = result.value
        listed = getattr(value, "data", None)
        for each in listed if isinstance(listed, list) else [value]:
            call = self._record(request, endpoint, each)
            if call is not None:
                await self.book(call)

    async def book(self, call: Call) -> None:
        """Record and charge one call, once however often it is booked."""
        await self._calls.ensure_recording()
        await self._calls.report(call)
        if (late := self._late_charges()) is not None:
            await late.charge(output_name(call.provider, call.id), [(0, call)])

    def _record(self, request: Request, endpoint: Endpoint, shown: Any) -> Call | None:
        identity = getattr(shown, "id", None)
        if not isinstance(identity, str) or not identity:
            return None
        identity = identity[:_LONGEST]
        found = (
            _container(request, shown, identity)
            if request.method.name == CONTAINER
            else _training(shown, identity)
        )
        return None if found is None else self.record(found, endpoint, request.options)

    def record(self, found: BilledObject, endpoint: Endpoint, options: PerCallOptions) -> Call:
        """Return the record of something that is billed by itself.

        Args:
            options: of the request that showed it; the record has their tags and session.
        """
        usage, at, vendor = found.usage, found.at, endpoint.price_provider
        cost = self._prices.units.price(usage, endpoint.name, found.name, price_provider=vendor, at=at)
        route = Decision(chosen=f"{endpoint.name}/{found.name}", provider=endpoint.name, model=found.name)
        return Call(
            id=_row_id(endpoint.name, found.operation, found.identity),
            started_at=at,
            operation=found.operation,
            model=route.chosen,
            route=route,
            status=found.status,
            usage=usage,
            cost=cost,
            tags=options.tags,
            session=options.session,
            purpose="object",
        )


def _container(request: Request, shown: Any, identity: str) -> BilledObject:
    units = (UsageUnit(f"code_container {_memory_of(request)}", Decimal(1), (identity,)),)
    return BilledObject("container", "containers", identity, Usage(units=units), _time(shown, "created_at"))


def _training(shown: Any, identity: str) -> BilledObject | None:
    """Return a fine-tuning job that has ended; None for others, and for one that failed before it trained."""
    status, model = _ENDED.get(str(getattr(shown, "status", None))), getattr(shown, "model", None)
    if getattr(shown, "object", None) != "fine_tuning.job" or status is None or not isinstance(model, str):
        return None
    trained = count(getattr(shown, "trained_tokens", None))
    if status == "error" and not trained:
        return None
    units = () if trained is None else (UsageUnit("trained_token", Decimal(trained)),)
    at = _time(shown, "finished_at", "created_at")
    return BilledObject("fine_tuning", model[:_LONGEST], identity, Usage(units=units), at, status)


def _row_id(*names: str) -> str:
    return hashlib.sha256("\0".join(("object", *names)).encode("utf-8", "replace")).hexdigest()[:32]


def _memory_of(request: Request) -> str:
    asked = fields_of({**request.params, **request.options.body}).get("memory_limit")
    return str(asked) if asked in CONTAINER_SIZES else CONTAINER_SIZES[0]


def _time(shown: Any, *names: str) -> datetime:
    """Return the first of an object's times that it states, else now."""
    for name in names:
        seconds = getattr(shown, name, None)
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < 2**33:
            return datetime.fromtimestamp(seconds, UTC)
    return datetime.now(UTC)
