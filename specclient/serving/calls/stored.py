"""Calls to the responses and conversations that this server stores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from specclient.call.stored_methods import STORED_METHODS, is_answered_here
from specclient.openai_http.endpoints import endpoints_at
from specclient.openai_http.request import IncomingCall
from specclient.openai_http.response import EventEncoder, whole_body
from specclient.openai_http.stored import stored_request
from specclient.providers import Endpoint
from specclient.serving.calls.gate import CallGate
from specclient.serving.calls.response import AnswerFormat, send_stream, send_whole
from specclient.serving.exchange import HTTPExchange
from specclient.types.request import Request

__all__ = ["StoredCallHandler"]

_PREFIX = "/v1"
#: The provider of calls that are answered here.
_ENGINE = "local"
_FORMAT = AnswerFormat(whole_body, lambda call, _: EventEncoder(call))


@dataclass(frozen=True, slots=True)
class StoredCallHandler:
    """Answers calls of stored objects; a key can only read and change its own.

    Attributes:
        gate: admits the calls.
    """

    gate: CallGate

    def may_answer(self, exchange: HTTPExchange) -> bool:
        """Return whether a request is for a method of stored objects."""
        row = endpoints_at(exchange.path.removeprefix(_PREFIX)).get(exchange.scope["method"])
        return row is not None and row.name in STORED_METHODS

    async def answer(self, exchange: HTTPExchange, body: bytes) -> bool:
        """Answer a request; return False for one that does not concern objects stored here.

        Raises:
            ServingError: 400, the request is invalid.
            NotFoundError: the object is not stored, or belongs to another key.
        """
        verb, path = exchange.scope["method"], exchange.path.removeprefix(_PREFIX)
        most = self.gate.json_values
        parse = partial(stored_request, verb, path, exchange.query, body, most_values=most)
        request = await self.gate.off_loop.run(len(body), parse)
        if request is None or not self._is_here(exchange, request):
            return False
        exchange.entry.route = f"{_PREFIX}{endpoints_at(path)[verb].path}"
        owner = "" if exchange.key is None else exchange.key.digest
        options = replace(request.options, owner=owner)
        request = replace(request, options=options, provider=_ENGINE)
        send = send_stream if request.stream else send_whole
        async with self.gate.admitted(exchange, request):
            await send(exchange, self.gate.pipeline, IncomingCall(request), _FORMAT)
        return True

    def _is_here(self, exchange: HTTPExchange, request: Request) -> bool:
        """Return whether this server answers a call, for example because the default provider may not."""
        places, key = self.gate.pipeline.destinations, exchange.key
        place = places.get(places.default)
        may_forward = not self.gate.catalogue.closed and not (key is not None and key.confined)
        has_key = may_forward and isinstance(place, Endpoint) and place.has_key
        return is_answered_here(request, places, has_key=has_key)
