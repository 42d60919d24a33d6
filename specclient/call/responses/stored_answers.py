"""Answers about stored responses and conversations, in the form of a provider's answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from specclient.call.responses.stored_calls import StoredCalls
from specclient.call.responses.stored_objects import StoredObjects
from specclient.call.responses.translation import typed_event
from specclient.call.result import CallResult
from specclient.providers import dialect
from specclient.providers.encoding import json_of
from specclient.stored.store import ObjectStore
from specclient.types.request import Request
from specclient.types.wire import WireResponse

__all__ = ["StoredAnswers"]

_JSON = {"content-type": "application/json"}
#: Events that are made and sent together.
_BATCH = 64


class StoredAnswers:
    """Serves the calls of :data:`specclient.call.stored_methods.STORED_METHODS` in the pipeline.

    Args:
        store: returns the store; None if nothing is stored.
    """

    def __init__(self, store: Callable[[], ObjectStore | None]) -> None:
        self._calls = StoredCalls(StoredObjects(store))

    async def execute(self, request: Request) -> CallResult:
        """Return the complete answer to a call."""
        reply = WireResponse(200, _JSON, json_of(await self._calls.answer(request)))
        return CallResult(dialect("openai").decode(request.method, reply), reply)

    async def stream(self, request: Request) -> AsyncGenerator[Any, None]:
        """Yield the start of a stream, then lists of events; there is no HTTP response."""
        events = await self._calls.events(request)
        yield None, None
        batch: list[Any] = []
        for event in events:
            batch.append(typed_event(event))
            if len(batch) >= _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch
