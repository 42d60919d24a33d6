"""Calls of OpenAI's API whose requests are parsed, so that any provider or engine can serve them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from specclient.openai_http.request import IncomingCall, parse_call
from specclient.openai_http.response import EventEncoder, whole_body
from specclient.openai_http.responses_api.request import chat_request_of
from specclient.serving.calls.gate import CallGate
from specclient.serving.calls.response import AnswerFormat, send_stream, send_whole
from specclient.serving.exchange import HTTPExchange
from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import RESPONSE

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
        call, size = await self._parse(exchange)
        call = gate.authorized_call(exchange, call)
        request = call.request
        if self.method is RESPONSE and gate.catalogue.is_engines(request.model, request.options.aliases):
            chat = await gate.off_loop.run(size, partial(chat_request_of, request))
            call = replace(call, request=chat, response=request)
            exchange.entry.model, exchange.entry.streamed = chat.model, chat.stream
        send = send_stream if call.request.stream else send_whole
        async with gate.admitted(exchange, call.request):
            await send(exchange, gate.pipeline, call, _FORMAT)

    async def _parse(self, exchange: HTTPExchange) -> tuple[IncomingCall, int]:
        """Read and parse a call; return it and the size of its body, which is not kept."""
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
        return await self.gate.off_loop.run(len(body), parse), len(body)
