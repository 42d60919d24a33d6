"""Calls of OpenAI's API whose requests are parsed, so that any provider or engine can serve them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from specclient.openai_http.request import IncomingCall, parse_call
from specclient.openai_http.response import EventEncoder, whole_body
from specclient.runtime.replaced import replaced
from specclient.serving.calls.gate import CallGate
from specclient.serving.calls.response import AnswerFormat, send_stream, send_whole
from specclient.serving.exchange import HTTPExchange
from specclient.types.api_method import ApiMethod
from specclient.types.request import Request

__all__ = ["OpenAICallHandler"]

_FORMAT = AnswerFormat(whole_body, lambda call, _: EventEncoder(call))


@dataclass(frozen=True, slots=True)
class OpenAICallHandler:
    """Serves one API method that calls a model.

    Attributes:
        gate: checks and admits the calls.
        method: the API method.
    """

    gate: CallGate
    method: ApiMethod

    async def __call__(self, exchange: HTTPExchange) -> None:
        """Serve a request."""
        gate = self.gate
        call = gate.authorized_call(exchange, await self._parse(exchange))
        if call.request.stream and self._keeps_chunks(call.request):
            request = call.request
            options = replaced(request.options, keeps_received=True)
            call = IncomingCall(replaced(request, options=options), call.meta)
        send = send_stream if call.request.stream else send_whole
        async with gate.admitted(exchange, call.request):
            await send(exchange, gate.pipeline, call, _FORMAT)

    def _keeps_chunks(self, request: Request) -> bool:
        """Return whether the chunks of a stream reach the encoder unchanged."""
        if request.strategy is not None or request.policy is not None:
            return False
        return request.operation in ("chat", "completion") and not self.gate.pipeline.router.names_auto(
            request
        )

    async def _parse(self, exchange: HTTPExchange) -> IncomingCall:
        """Read and parse a call; its body is not kept."""
        body = await exchange.body()
        parse = partial(
            parse_call,
            self.method,
            body,
            exchange.headers,
            exchange.query,
            self.gate.permit(exchange),
            most_values=self.gate.json_values,
        )
        return await self.gate.off_loop.run(len(body), parse)
