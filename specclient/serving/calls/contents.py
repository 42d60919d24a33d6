"""Gemini's API over any provider or engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote

from specclient.gemini_http.events import ContentEventEncoder, meta_event
from specclient.gemini_http.models import model_list, model_resource
from specclient.gemini_http.request import content_call
from specclient.gemini_http.response import content_body
from specclient.openai_http.errors import ServingError, bad_request
from specclient.openai_http.json_body import json_object
from specclient.openai_http.model_names import check_name
from specclient.openai_http.request import IncomingCall
from specclient.providers.encoding import json_of
from specclient.serving.calls.gate import CallGate
from specclient.serving.calls.response import AnswerFormat, send_stream, send_upstream_stream, send_whole
from specclient.serving.calls.token_count import count_route, counted_tokens
from specclient.serving.exchange import HTTPExchange
from specclient.types.api_method import ApiMethod
from specclient.types.request import PerCallOptions, Request

__all__ = ["PREFIX", "ContentsHandler", "GeminiModelsHandler"]

PROVIDER = "gemini"
PREFIX = "/v1beta/models"
_VERBS = ("generateContent", "streamGenerateContent", "countTokens")
_FORMAT = AnswerFormat(content_body, ContentEventEncoder, meta_event)
#: Field of a token count that holds a whole request; Gemini's API takes no other field besides the contents.
_WHOLE = "generateContentRequest"


@dataclass(frozen=True, slots=True)
class ContentsHandler:
    """Serves ``POST /v1beta/models/{model}:{verb}``.

    Attributes:
        gate: checks and admits the calls.
    """

    gate: CallGate

    async def __call__(self, exchange: HTTPExchange) -> None:
        """Serve a request.

        Raises:
            ServingError: 404, the verb is unknown.
        """
        named, _, verb = exchange.path.removeprefix(f"{PREFIX}/").rpartition(":")
        if verb not in _VERBS or not named:
            raise ServingError(
                404,
                f"there is no route POST {exchange.path[:200]} on this server; it serves "
                f"{PREFIX}/MODEL:VERB with the verbs {', '.join(_VERBS)}",
            )
        exchange.entry.route = f"{PREFIX}/{{model}}:{verb}"
        stream = verb == "streamGenerateContent"
        if stream and parse_qs(exchange.query).get("alt") != ["sse"]:
            raise bad_request("alt", "streams are server-sent events here: add alt=sse to the query")
        gate, body = self.gate, await exchange.body()
        counts = verb == "countTokens"
        parse = partial(_parsed, gate, exchange, unquote(named), body, stream=stream, counts=counts)
        call, size = await gate.off_loop.run(len(body), parse), len(body)
        del body, parse  # the call has them as objects
        call = gate.authorized_call(exchange, call)
        if counts:
            await self._count(exchange, call, size)
        else:
            await self._answer(exchange, call)

    async def _answer(self, exchange: HTTPExchange, call: IncomingCall) -> None:
        gate, request = self.gate, call.request
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

    async def _count(self, exchange: HTTPExchange, call: IncomingCall, size: int) -> None:
        gate, chat = self.gate, call.request
        provider, model = count_route(gate, chat)
        request = await gate.off_loop.run(size, partial(_count_request, chat, provider, model))
        async with gate.admitted(exchange, request):
            if gate.route_speaks(provider, model, PROVIDER):
                result = await gate.pipeline.execute(request)
                content = json_of(result.unwrap())
            else:
                content = json_of({"totalTokens": await counted_tokens(gate, chat, size, provider, model)})
            await exchange.respond(content)


@dataclass(frozen=True, slots=True)
class GeminiModelsHandler:
    """Serves ``GET /v1beta/models`` and ``GET /v1beta/models/{model}``.

    Attributes:
        gate: lists the models that a key may use.
    """

    gate: CallGate

    async def __call__(self, exchange: HTTPExchange) -> None:
        """Serve a request.

        Raises:
            ServingError: 404, the model is not served.
        """
        names = list(self.gate.listed_models(exchange.key))
        name = exchange.scope["path_params"].get("model")
        if name is None:
            await exchange.respond(json_of(model_list(names)))
            return
        if name not in names:
            raise ServingError(404, f"model {name[:200]!r} is not served here", "model", "model_not_found")
        await exchange.respond(json_of(model_resource(name)))


def _parsed(
    gate: CallGate, exchange: HTTPExchange, named: str, body: bytes, *, stream: bool, counts: bool
) -> IncomingCall:
    given: dict[str, Any] = json_object(body, gate.json_values)
    if counts:
        whole = given.get(_WHOLE, given.get("generate_content_request"))
        given = whole if isinstance(whole, dict) else given
    check_name(named)
    aliases = gate.aliases(exchange)
    model = gate.provider_model(named, PROVIDER, PROVIDER, aliases)
    native = gate.speaks(model, PROVIDER, aliases)
    return content_call(
        given,
        model,
        exchange.headers,
        stream=stream,
        native=native,
        engine=not native and gate.catalogue.is_engines(model, aliases),
        permit=gate.permit(exchange),
    )


def _count_request(chat: Request, provider: str, model: str) -> Request:
    """Return the request that counts the tokens of a chat at a Gemini provider; counting is free."""
    written = chat.options.native
    assert written is not None
    body: dict[str, Any] = dict(written.body)
    if body.keys() != {"contents"}:
        body = {_WHOLE: {"model": f"models/{model}", **body}}
    method = ApiMethod(
        name="count_tokens", verb="POST", path="/models/{model}:countTokens", response_type=object
    )
    options = PerCallOptions(headers=chat.options.headers)
    return Request(
        method, provider=provider, content=json_of(body), path_params={"model": model}, options=options
    )
