"""Books what a vendor bills by itself when a caller's answer shows it: fine-tuning jobs and containers.

A fine-tuning job that has ended is one row of the ledger, by its ``trained_tokens`` (OpenAI, "The fine-tuning
job object": the billable tokens), however often it is read. A container that a caller makes is one row, too;
calls that run code in it are not billed for it again while its session lasts.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic_core import from_json

from specclient.call.batch_paths import CONTAINER, output_name
from specclient.call.recorded_calls import RecordedCalls
from specclient.call.result import CallResult
from specclient.prices.prices import Prices
from specclient.providers import Endpoint
from specclient.providers.reported_fields import count, fields_of
from specclient.providers.tool_usage import CONTAINER_SIZES
from specclient.runtime.event_loop import run_in_thread
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
#: Bytes of an answer that is passed on and read for what it shows.
_LARGEST: Final = 2**23


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
        await self._book_shown(request, result.value)

    async def passing(self, request: Request, source: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Yield what ``source`` yields, and book what the answer in its bytes shows.

        Args:
            source: yields the response, then lists of bytes. An answer above :data:`_LARGEST` is not booked.
        """
        kept, size = list[bytes](), 0
        async with aclosing(source):
            yield await anext(source)
            async for pieces in source:
                size += sum(map(len, pieces))
                if size <= _LARGEST:
                    kept += pieces
                yield pieces
            if size <= _LARGEST:
                with suppress(ValueError, RecursionError):  # no JSON, so nothing that is billed
                    await self._book_shown(request, await run_in_thread(partial(from_json, b"".join(kept))))

    async def _book_shown(self, request: Request, value: Any) -> None:
        places = self._calls.destinations
        endpoint = places.get(request.provider or places.default)
        if not isinstance(endpoint, Endpoint):
            return
        fields = fields_of(value)
        listed = fields.get("data")
        for each in listed if isinstance(listed, list) else [fields]:
            call = self._record(request, endpoint, fields_of(each))
            if call is not None:
                await self.book(call)

    async def book(self, call: Call) -> None:
        """Record and charge one call, once however often it is booked."""
        await self._calls.ensure_recording()
        await self._calls.report(call)
        if (late := self._late_charges()) is not None:
            await late.charge(output_name(call.provider, call.id), [(0, call)])

    def _record(self, request: Request, endpoint: Endpoint, shown: Mapping[str, Any]) -> Call | None:
        identity = shown.get("id")
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


def _container(request: Request, shown: Mapping[str, Any], identity: str) -> BilledObject:
    units = (UsageUnit(f"code_container {_memory_of(request, shown)}", Decimal(1), (identity,)),)
    return BilledObject("container", "containers", identity, Usage(units=units), _time(shown, "created_at"))


def _training(shown: Mapping[str, Any], identity: str) -> BilledObject | None:
    """Return a fine-tuning job that has ended; None for others, and for one that failed before it trained."""
    status, model = _ENDED.get(str(shown.get("status"))), shown.get("model")
    if shown.get("object") != "fine_tuning.job" or status is None or not isinstance(model, str):
        return None
    trained = count(shown.get("trained_tokens"))
    if status == "error" and not trained:
        return None
    units = () if trained is None else (UsageUnit("trained_token", Decimal(trained)),)
    at = _time(shown, "finished_at", "created_at")
    return BilledObject("fine_tuning", model[:_LONGEST], identity, Usage(units=units), at, status)


def _row_id(*names: str) -> str:
    return hashlib.sha256("\0".join(("object", *names)).encode("utf-8", "replace")).hexdigest()[:32]


def _memory_of(request: Request, shown: Mapping[str, Any]) -> str:
    """Return a container's memory, as the answer states it or else as the request asked for it."""
    asked = shown.get("memory_limit") or {**request.params, **request.options.body}.get("memory_limit")
    return str(asked) if asked in CONTAINER_SIZES else CONTAINER_SIZES[0]


def _time(shown: Mapping[str, Any], *names: str) -> datetime:
    """Return the first of an object's times that it states, else now."""
    for name in names:
        seconds = shown.get(name)
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < 2**33:
            return datetime.fromtimestamp(seconds, UTC)
    return datetime.now(UTC)
