"""Turn a client into an ASGI application: OpenAI's routes over its request pipeline, and nothing more."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from specclient.client.async_client import AsyncOpenAI
from specclient.providers.encoding import json_of
from specclient.serving.admission import AdmissionQueue
from specclient.serving.calls.passthrough import PassthroughHandler
from specclient.serving.calls.request import parse_call
from specclient.serving.calls.response import send_stream, send_whole
from specclient.serving.catalogue import ModelCatalogue, model_row
from specclient.serving.dashboard.handlers import Dashboard
from specclient.serving.errors import ServingError
from specclient.serving.exchange import ASGIReceive, ASGIScope, ASGISend, HTTPExchange
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.limiter import KeyLimiter, authorized_request, names_of
from specclient.serving.keys.rate_limits import UsageMeter
from specclient.serving.limits import Limits
from specclient.serving.metrics import CONTENT_TYPE, ServerMetrics
from specclient.serving.middleware import EXCHANGE_KEY, RequestMiddleware
from specclient.serving.request_log import FORM_VARIABLE, OTHER_ROUTE, RequestLog, log_format
from specclient.serving.responses_api.request import chat_request_of
from specclient.types.api_method import ApiMethod
from specclient.types.backend import EngineState, SupportsEngineState
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, MODERATION, RESPONSE

CALLS = (CHAT, COMPLETION, RESPONSE, EMBEDDING, MODERATION)

Handler = Callable[[HTTPExchange], Awaitable[None]]


def create_app(
    client: AsyncOpenAI,
    *,
    key: SecretStr | None = None,
    ring: KeyCache | None = None,
    meter: UsageMeter | None = None,
    models: Sequence[str] = (),
    limits: Limits | None = None,
) -> Starlette:
    """Return the application, for :func:`make_server`, whose connections tell it when a client leaves.

    Args:
        client: serves the calls; the application closes it when it shuts down.
        key: what every request but ``/health`` must bring as its bearer token; None asks for none, and then
            only requests that name this machine as their host are served.
        ring: stored keys, any of which does as well; once there are some, a key is needed.
        meter: counts what they use of their limits; by default this process by itself.
        models: those that are served, as ``provider/model``; empty for whatever the client can reach.
        limits: see :class:`Limits`.
    """
    gate = KeyLimiter(client.pipeline.destinations, meter)
    service = Service(client, ModelCatalogue(client, models), limits or Limits(), gate, ring)
    app = Starlette(
        routes=service.routes(), lifespan=service.lifespan, exception_handlers={HTTPException: _unhandled}
    )
    app.router.redirect_slashes = False
    app.add_middleware(
        RequestMiddleware,
        handlers=service.calls,
        key=key,
        ring=ring,
        gate=gate,
        limits=service.limits,
        log=service.log,
    )
    app.state.service = service
    return app


class Service:
    """What answers requests.

    Attributes:
        turns: how many are being worked on, and wait.
        calls: what serves calls of models, by method and path.
        log: the requests themselves.
        metrics: what they came to.
    """

    def __init__(
        self,
        client: AsyncOpenAI,
        catalogue: ModelCatalogue,
        limits: Limits,
        gate: KeyLimiter,
        ring: KeyCache | None,
    ) -> None:
        self.client, self.catalogue, self.limits = client, catalogue, limits
        self.gate, self.ring = gate, ring
        if ring is not None:
            client.core.add_budget_source(ring.budgets)
        self.turns = AdmissionQueue(limits.running, limits.waiting)
        self.metrics = ServerMetrics(
            catalogue.names, lambda: (self.turns.running, self.turns.waiting), self._engines
        )
        self.turns.changed = self.metrics.turn
        self.log = RequestLog([self.metrics.request])
        self.dashboard = Dashboard(client, self.log, self.metrics.load, catalogue.names)
        self.calls = {(m.verb, f"/v1{m.path}"): _RouteApp(self._caller(m), f"/v1{m.path}") for m in CALLS}
        client.pipeline.observers += [self.log.observe, self.metrics.observe, self.dashboard.observe]

    def routes(self) -> list[Route]:
        """Return the routes, each with the ASGI application that serves it."""
        return [
            self._route("/health", self._health, "GET"),
            self._route("/ready", self._ready, "GET"),
            self._route("/metrics", self._metrics, "GET"),
            *(self._route(path, handler, "GET") for path, handler in self.dashboard.routes()),
            *(Route(path, endpoint, methods=[verb]) for (verb, path), endpoint in self.calls.items()),
            self._route("/v1/models", self._models, "GET"),
            self._route("/v1/models/{model:path}", self._model, "GET"),
            Route("/v1/{path:path}", _RouteApp(self._passing(), OTHER_ROUTE)),
        ]

    def lifespan(self, _app: Starlette) -> AbstractAsyncContextManager[None]:
        """Return the context in which requests are served."""
        return self._serving()

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None, None]:
        try:
            with log_format(os.environ.get(FORM_VARIABLE, ""), sys.stderr):
                yield
        finally:
            await self.client.close()
            await self.gate.close()
            if self.ring is not None:
                await self.ring.close()

    def _route(self, path: str, handler: Handler, verb: str) -> Route:
        return Route(path, _RouteApp(handler, path.replace(":path", "")), methods=[verb])

    def _passing(self) -> PassthroughHandler:
        own = {"/models": "GET", **{method.path: method.verb for method in CALLS}}
        return PassthroughHandler(self.client, self.catalogue, self.turns, self.gate, own)

    def _caller(self, method: ApiMethod) -> Handler:
        """Return what serves one method on which a model works."""

        async def call(talk: HTTPExchange) -> None:
            given = parse_call(method, await talk.body(), talk.headers, talk.query)
            request = authorized_request(given.request, talk.key, self.client.pipeline.destinations)
            if request is not given.request:
                given = replace(given, request=request)
            self.catalogue.check(request)
            if method is RESPONSE and self.catalogue.is_engines(request.model):
                given = replace(given, request=chat_request_of(request), response=request)
                request = given.request
            talk.entry.model, talk.entry.streamed = given.request.model, given.request.stream
            tell = send_stream if given.request.stream else send_whole
            async with self.gate.paced(talk, request), talk.while_there(), self.turns.turn(talk.entry):
                await tell(talk, self.client.pipeline, given)

        return call

    def _names(self, talk: HTTPExchange) -> list[str]:
        """Return the models that a request may use."""
        key, places = talk.key, self.client.pipeline.destinations
        return [n for n in self.catalogue.names() if key is None or key.allows(names_of(n, places))]

    async def _models(self, talk: HTTPExchange) -> None:
        rows = [model_row(name) for name in self._names(talk)]
        await talk.say(json_of({"object": "list", "data": rows}))

    async def _model(self, talk: HTTPExchange) -> None:
        name = talk.scope["path_params"]["model"]
        if name not in self._names(talk):
            raise ServingError(404, f"model {name!r} is not served here", "model", "model_not_found")
        await talk.say(json_of(model_row(name)))

    async def _health(self, talk: HTTPExchange) -> None:
        await talk.say(b'{"status":"ok"}')

    async def _ready(self, talk: HTTPExchange) -> None:
        if self.turns.full:
            raise ServingError(503, "as many requests wait as may", code="server_busy")
        loaded = [engine.name for engine in self._engines()]
        await talk.say(json_of({"status": "ready", "loaded": loaded}))

    async def _metrics(self, talk: HTTPExchange) -> None:
        await talk.say(self.metrics.text(), kind=CONTENT_TYPE)

    def _engines(self) -> list[EngineState]:
        """Return the engines in this process that are loaded, by the names of their models here."""
        backends = self.client.pipeline.destinations.made
        return [
            replace(state, name=f"{name}/{state.name}")
            for name, backend in backends.items()
            if isinstance(backend, SupportsEngineState)
            for state in backend.state()
        ]


async def _unhandled(_request: Request, error: Exception) -> Response:
    """Leave to the front what the router refuses."""
    raise error


class _RouteApp:
    """A handler as the ASGI application that a route wants."""

    def __init__(self, handler: Handler, route: str) -> None:
        self._handler, self._path = handler, route

    async def __call__(self, scope: ASGIScope, _receive: ASGIReceive, _send: ASGISend) -> None:
        talk: HTTPExchange = scope[EXCHANGE_KEY]
        talk.entry.route = self._path
        await self._handler(talk)
