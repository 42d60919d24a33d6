"""The ASGI application: routes of the OpenAI API over a client's request pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from specclient.client.async_client import AsyncOpenAI
from specclient.openai_http.endpoints import CALLS
from specclient.openai_http.errors import ServingError
from specclient.openai_http.request import IncomingCall, parse_call
from specclient.openai_http.responses_api.request import chat_request_of
from specclient.providers.encoding import json_of
from specclient.serving.admission import AdmissionQueue
from specclient.serving.calls.off_loop import OffLoop
from specclient.serving.calls.passthrough import PassthroughHandler
from specclient.serving.calls.response import send_stream, send_whole
from specclient.serving.catalogue import ModelCatalogue, model_row
from specclient.serving.dashboard.handlers import Dashboard
from specclient.serving.exchange import ASGIReceive, ASGIScope, ASGISend, HTTPExchange
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.limiter import KeyLimiter, authorized_request
from specclient.serving.keys.rate_limits import UsageMeter
from specclient.serving.limits import Limits
from specclient.serving.metrics import CONTENT_TYPE, ServerMetrics
from specclient.serving.middleware import EXCHANGE_KEY, RequestMiddleware
from specclient.serving.permits import ServerPermits, model_names
from specclient.serving.request_log import FORM_VARIABLE, OTHER_ROUTE, RequestLog, log_format
from specclient.types.api_method import ApiMethod
from specclient.types.backend import EngineState, SupportsEngineState
from specclient.types.inference_methods import RESPONSE
from specclient.types.permit import RoutePermit

Handler = Callable[[HTTPExchange], Awaitable[None]]


def create_app(
    client: AsyncOpenAI,
    *,
    key: SecretStr | None = None,
    keys: KeyCache | None = None,
    meter: UsageMeter | None = None,
    models: Sequence[str] = (),
    limits: Limits | None = None,
) -> Starlette:
    """Return the application.

    Run it with :func:`make_server`, whose connections signal when a client disconnects.

    Args:
        client: sends the calls. The application closes it at shutdown.
        key: the bearer token that every request except those to public paths must send. None requires no
            token; then only requests with this machine as their host are served.
        keys: stored keys, which are accepted as well. Once a key is stored, every request requires a key.
        meter: counts the use of the keys' rate limits. The default counts in this process only.
        models: the served models, as ``provider/model``; empty for all models that the client can reach.
        limits: limits of the server.
    """
    key_limiter = KeyLimiter(client.pipeline.destinations, meter)
    service = Service(client, ModelCatalogue(client, models), limits or Limits(), key_limiter, keys)
    app = Starlette(
        routes=service.routes(), lifespan=service.lifespan, exception_handlers={HTTPException: _unhandled}
    )
    app.router.redirect_slashes = False
    app.add_middleware(
        RequestMiddleware,
        handlers=service.calls,
        key=key,
        keys=keys,
        key_limiter=key_limiter,
        limits=service.limits,
        log=service.log,
    )
    app.state.service = service
    return app


class Service:
    """The state and the request handlers of the application.

    Attributes:
        client: sends the calls.
        catalogue: the served models.
        permits: the routes that requests may be sent to.
        limits: limits of the server.
        key_limiter: applies the rate limits of keys.
        keys: the stored keys; None without a ledger.
        admission: limits concurrent requests.
        off_loop: runs work on large bodies in threads.
        metrics: the Prometheus metrics.
        log: the running requests.
        dashboard: handlers of the dashboard.
        calls: ASGI applications of the calls to models, by method and path.
    """

    def __init__(
        self,
        client: AsyncOpenAI,
        catalogue: ModelCatalogue,
        limits: Limits,
        key_limiter: KeyLimiter,
        keys: KeyCache | None,
    ) -> None:
        self.client, self.catalogue, self.limits = client, catalogue, limits
        self.permits = ServerPermits(client, catalogue)
        self.key_limiter, self.keys = key_limiter, keys
        if keys is not None:
            client.core.add_budget_source(keys.budgets)
        self.admission = AdmissionQueue(limits.running, limits.waiting)
        self.off_loop = OffLoop()
        self.metrics = ServerMetrics(
            catalogue.names, lambda: (self.admission.running, self.admission.waiting), self._engines
        )
        self.admission.on_change = self.metrics.update_load
        self.log = RequestLog([self.metrics.request])
        self.dashboard = Dashboard(client, self.log, self.metrics.load, catalogue.names)
        self.calls = {
            (m.verb, f"/v1{m.path}"): _RouteApp(self._call_handler(m), f"/v1{m.path}") for m in CALLS
        }
        client.pipeline.observers += [self.log.observe, self.metrics.observe, self.dashboard.observe]

    def routes(self) -> list[Route]:
        """Return all routes with their ASGI applications."""
        return [
            self._route("/health", self._health, "GET"),
            self._route("/ready", self._ready, "GET"),
            self._route("/metrics", self._metrics, "GET"),
            *(self._route(path, handler, "GET") for path, handler in self.dashboard.routes()),
            *(Route(path, endpoint, methods=[verb]) for (verb, path), endpoint in self.calls.items()),
            self._route("/v1/models", self._models, "GET"),
            self._route("/v1/models/{model:path}", self._model, "GET"),
            Route("/v1/{path:path}", _RouteApp(self._passthrough(), OTHER_ROUTE)),
        ]

    def lifespan(self, _app: Starlette) -> AbstractAsyncContextManager[None]:
        """Return the context of Starlette's lifespan."""
        return self._serving()

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None, None]:
        try:
            with log_format(os.environ.get(FORM_VARIABLE, ""), sys.stderr):
                yield
        finally:
            await self.client.close()
            await self.key_limiter.close()
            if self.keys is not None:
                await self.keys.close()

    def _route(self, path: str, handler: Handler, verb: str) -> Route:
        return Route(path, _RouteApp(handler, path.replace(":path", "")), methods=[verb])

    def _passthrough(self) -> PassthroughHandler:
        own = {"/models": "GET", **{method.path: method.verb for method in CALLS}}
        return PassthroughHandler(
            self.client,
            self.catalogue,
            self.permits,
            self.admission,
            self.key_limiter,
            own,
            self.off_loop,
            self.limits.json_values,
        )

    def _call_handler(self, method: ApiMethod) -> Handler:
        """Return the handler of an API method that calls a model."""

        async def serve(exchange: HTTPExchange) -> None:
            key = exchange.key
            permit = self.permits.of(() if key is None else key.models)
            call, size = await self._parse(method, exchange, permit)
            request = authorized_request(call.request, key, permit)
            if request is not call.request:
                call = replace(call, request=request)
            self.catalogue.check(request)
            if method is RESPONSE and self.catalogue.is_engines(request.model):
                chat = await self.off_loop.run(size, partial(chat_request_of, request))
                call = replace(call, request=chat, response=request)
                request = chat
            exchange.entry.model, exchange.entry.streamed = call.request.model, call.request.stream
            send = send_stream if call.request.stream else send_whole
            async with (
                self.key_limiter.limit(exchange, request),
                exchange.cancel_on_disconnect(),
                self.admission.slot(exchange.entry),
            ):
                await send(exchange, self.client.pipeline, call)

        return serve

    async def _parse(
        self, method: ApiMethod, exchange: HTTPExchange, permit: RoutePermit
    ) -> tuple[IncomingCall, int]:
        """Read and parse a call; return it and the size of its body, which is not kept."""
        body = await exchange.body()
        parse = partial(
            parse_call,
            method,
            body,
            exchange.headers,
            exchange.query,
            permit,
            most_values=self.limits.json_values,
        )
        return await self.off_loop.run(len(body), parse), len(body)

    def _names(self, exchange: HTTPExchange) -> list[str]:
        """Return the models that the request's key may use."""
        key, places = exchange.key, self.client.pipeline.destinations
        return [n for n in self.catalogue.names() if key is None or key.allows(model_names(n, places))]

    async def _models(self, exchange: HTTPExchange) -> None:
        rows = [model_row(name) for name in self._names(exchange)]
        await exchange.respond(json_of({"object": "list", "data": rows}))

    async def _model(self, exchange: HTTPExchange) -> None:
        name = exchange.scope["path_params"]["model"]
        if name not in self._names(exchange):
            raise ServingError(404, f"model {name!r} is not served here", "model", "model_not_found")
        await exchange.respond(json_of(model_row(name)))

    async def _health(self, exchange: HTTPExchange) -> None:
        await exchange.respond(b'{"status":"ok"}')

    async def _ready(self, exchange: HTTPExchange) -> None:
        if self.admission.full:
            raise ServingError(503, "the queue of waiting requests is full", code="server_busy")
        loaded = [engine.name for engine in self._engines()]
        await exchange.respond(json_of({"status": "ready", "loaded": loaded}))

    async def _metrics(self, exchange: HTTPExchange) -> None:
        await exchange.respond(self.metrics.text(), kind=CONTENT_TYPE)

    def _engines(self) -> list[EngineState]:
        """Return the states of the loaded engines in this process, named ``provider/model``."""
        backends = self.client.pipeline.destinations.made
        return [
            replace(state, name=f"{name}/{state.name}")
            for name, backend in backends.items()
            if isinstance(backend, SupportsEngineState)
            for state in backend.state()
        ]


async def _unhandled(_request: Request, error: Exception) -> Response:
    """Let the middleware handle routing errors."""
    raise error


class _RouteApp:
    """Adapts a handler to the ASGI interface of a route."""

    def __init__(self, handler: Handler, route: str) -> None:
        self._handler, self._path = handler, route

    async def __call__(self, scope: ASGIScope, _receive: ASGIReceive, _send: ASGISend) -> None:
        exchange: HTTPExchange = scope[EXCHANGE_KEY]
        exchange.entry.route = self._path
        await self._handler(exchange)
