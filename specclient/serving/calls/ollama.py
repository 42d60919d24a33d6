"""Ollama's API over any provider or engine: chat, generate, and the models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from specclient.ollama_http.models import model_list, shown_details, version_fields
from specclient.ollama_http.request import AnswerKind, OllamaCall, model_field, ollama_call
from specclient.ollama_http.response import NDJSON, AnswerLines, answer_body, loaded_body
from specclient.openai_http.json_body import json_object
from specclient.providers import Endpoint
from specclient.providers.encoding import json_of
from specclient.routing.router import AUTO
from specclient.serving.calls.gate import CallGate
from specclient.serving.calls.response import AnswerFormat, send_stream, send_whole
from specclient.serving.exchange import HTTPExchange
from specclient.types.backend import BackendModel
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request

__all__ = ["OllamaCallHandler", "OllamaModels"]


@dataclass(frozen=True, slots=True)
class OllamaCallHandler:
    """Serves ``POST /api/chat`` or ``POST /api/generate``.

    Attributes:
        gate: checks and admits the calls.
        kind: the route.
    """

    gate: CallGate
    kind: AnswerKind

    async def __call__(self, exchange: HTTPExchange) -> None:
        """Serve a request."""
        gate, body = self.gate, await exchange.body()
        parsed = await gate.off_loop.run(len(body), partial(self._parsed, exchange, body))
        del body  # the call has it as objects
        call = gate.authorized_call(exchange, parsed.call)
        if parsed.unload is not None:  # models are loaded by their first call, and stay
            await exchange.respond(loaded_body(parsed))
            return
        parsed = replace(parsed, call=call)
        form = AnswerFormat(partial(answer_body, parsed), partial(AnswerLines, parsed), stream_type=NDJSON)
        send = send_stream if call.request.stream else send_whole
        async with gate.admitted(exchange, call.request):
            await send(exchange, gate.pipeline, call, form)

    def _parsed(self, exchange: HTTPExchange, body: bytes) -> OllamaCall:
        gate = self.gate
        given = json_object(body, gate.json_values)
        model = model_field(given.get("model"))
        return ollama_call(
            self.kind,
            given,
            exchange.headers,
            engine=gate.catalogue.is_engines(model, gate.aliases(exchange)),
            permit=gate.permit(exchange),
        )


@dataclass(frozen=True, slots=True)
class OllamaModels:
    """Serves the routes of Ollama's API about models.

    Attributes:
        gate: checks requests for a model, and lists the models.
    """

    gate: CallGate

    async def tags(self, exchange: HTTPExchange) -> None:
        """Serve ``GET /api/tags``: the models."""
        await exchange.respond(json_of(model_list(self.gate.listed_models(exchange.key))))

    async def version(self, exchange: HTTPExchange) -> None:
        """Serve ``GET /api/version``."""
        await exchange.respond(json_of(version_fields()))

    async def show(self, exchange: HTTPExchange) -> None:
        """Serve ``POST /api/show``: the facts of a model.

        Raises:
            ServingError: 400, the body names no model; 404, the model is not served, or not for this key.
        """
        body = await exchange.body()
        model = await self.gate.off_loop.run(len(body), partial(self._named, body))
        options = PerCallOptions(permit=self.gate.permit(exchange))
        request = self.gate.authorized(exchange, Request(CHAT, model, options=options))
        places = self.gate.pipeline.destinations
        if places.resolve_request(request) == AUTO:
            await exchange.respond(json_of(shown_details(AUTO, None)))
            return
        provider, inner = places.split_request(request)
        found = shown_details(f"{provider}/{inner}", self._engine_model(provider, inner))
        await exchange.respond(json_of(found))

    def _named(self, body: bytes) -> str:
        given = json_object(body, self.gate.json_values)
        return model_field(given.get("model") or given.get("name"))

    def _engine_model(self, provider: str, model: str) -> BackendModel | None:
        place = self.gate.pipeline.destinations.get(provider)
        if isinstance(place, Endpoint):
            return None
        return next((each for each in place.models() if each.id == model), None)
