"""Anthropic's Messages API over any provider or engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from specclient.anthropic_http.events import MessageEventEncoder, meta_event
from specclient.anthropic_http.request import message_call, model_field
from specclient.anthropic_http.response import message_body
from specclient.openai_http.json_body import json_object
from specclient.openai_http.request import IncomingCall
from specclient.providers.encoding import json_of
from specclient.serving.calls.gate import CallGate
from specclient.serving.calls.response import AnswerFormat, send_stream, send_upstream_stream, send_whole
from specclient.serving.calls.token_count import count_route, counted_tokens
from specclient.serving.exchange import HTTPExchange
from specclient.types.api_method import ApiMethod
from specclient.types.request import PerCallOptions, Request

__all__ = ["CountTokensHandler", "MessagesHandler"]

PROVIDER = "anthropic"
#: Not metered: counting is free.
_COUNT = ApiMethod(name="count_tokens", verb="POST", path="/messages/count_tokens", response_type=object)
_FORMAT = AnswerFormat(message_body, MessageEventEncoder, meta_event)


@dataclass(frozen=True, slots=True)
class MessagesHandler:
    """Serves ``POST /v1/messages``.

    Attributes:
        gate: checks and admits the calls.
    """

    gate: CallGate

    async def __call__(self, exchange: HTTPExchange) -> None:
        """Serve a request."""
        gate, body = self.gate, await exchange.body()
        call = await gate.off_loop.run(len(body), partial(parsed_message, gate, exchange, body))
        del body  # the call has it as objects
        call = gate.authorized_call(exchange, call)
        request = call.request
        if not request.stream:
            send = send_whole
        elif (
            request.strategy is None
            and request.policy is None
            and gate.speaks(request.model, PROVIDER, request.options.aliases)
        ):
            send = send_upstream_stream
        else:
            send = send_stream
        async with gate.admitted(exchange, request):
            await send(exchange, gate.pipeline, call, _FORMAT)


@dataclass(frozen=True, slots=True)
class CountTokensHandler:
    """Serves ``POST /v1/messages/count_tokens``: passed on to an Anthropic provider, else counted here.

    Attributes:
        gate: checks and admits the requests.
    """

    gate: CallGate

    async def __call__(self, exchange: HTTPExchange) -> None:
        """Serve a request."""
        gate, body = self.gate, await exchange.body()
        parse = partial(parsed_message, gate, exchange, body, generates=False)
        call, size = await gate.off_loop.run(len(body), parse), len(body)
        del body, parse
        chat = gate.authorized(exchange, call.request)
        provider, model = count_route(gate, chat)
        request = await gate.off_loop.run(size, partial(_count_request, chat, provider, model))
        async with gate.admitted(exchange, request):
            if gate.route_speaks(provider, model, PROVIDER):
                result = await gate.pipeline.execute(request)
                content = json_of(result.unwrap())
            else:
                count = await counted_tokens(gate, chat, size, provider, model)
                content = json_of({"input_tokens": count})
            await exchange.respond(content)


def _count_request(chat: Request, provider: str, model: str) -> Request:
    """Return the request that counts the tokens of a chat at an Anthropic provider."""
    options, written = chat.options, chat.options.native
    assert written is not None
    content = json_of({**written.body, "model": model})
    sent = PerCallOptions(headers={**options.headers, **written.headers}, query=written.query)
    return Request(_COUNT, provider=provider, content=content, options=sent)


def parsed_message(
    gate: CallGate, exchange: HTTPExchange, body: bytes, *, generates: bool = True
) -> IncomingCall:
    """Return the call of a request's body.

    Args:
        gate: names the providers.
        exchange: the request.
        body: its body.
        generates: whether an answer is requested; False to count tokens.

    Raises:
        ServingError: 400; the message names the field or block and what is allowed.
        NotFoundError: the model's provider is unknown.
    """
    given: dict[str, Any] = json_object(body, gate.json_values)
    aliases = gate.aliases(exchange)
    model = gate.provider_model(model_field(given.get("model")), PROVIDER, "claude", aliases)
    native = gate.speaks(model, PROVIDER, aliases)
    return message_call(
        {**given, "model": model},
        exchange.headers,
        exchange.query,
        native=native,
        provider=gate.provider_of(model, aliases),
        engine=not native and gate.catalogue.is_engines(model, aliases),
        generates=generates,
        permit=gate.permit(exchange),
    )
