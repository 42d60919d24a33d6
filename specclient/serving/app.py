"""The ASGI application: routes of the OpenAI API over a client's request pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import Route

from specclient.anthropic_http.models import model_info, model_page
from specclient.client.async_client import AsyncOpenAI
from specclient.openai_http.endpoints import CALLS
from specclient.openai_http.errors import ServingError
from specclient.providers.encoding import json_of
from specclient.runtime.event_loop import run_in_thread
from specclient.serving.admission import AdmissionQueue
from specclient.serving.api_forms import ANTHROPIC
from specclient.serving.calls import contents as gemini
from specclient.serving.calls.gate import CallGate
from specclient.serving.calls.messages import CountTokensHandler, MessagesHandler
from specclient.serving.calls.off_loop import OffLoop
from specclient.serving.calls.ollama import OllamaCallHandler, OllamaModels
from specclient.serving.calls.openai_calls import OpenAICallHandler
from specclient.serving.calls.passthrough import PassthroughHandler
from specclient.serving.catalogue import ModelCatalogue
from specclient.serving.dashboard.handlers import Dashboard
from specclient.serving.exchange import EXCHANGE_KEY, ASGIReceive, ASGIScope, ASGISend, HTTPExchange
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.limiter import KeyLimiter
from specclient.serving.keys.rate_limits import UsageMeter
from specclient.serving.limits import Limits
from specclient.serving.metrics import CONTENT_TYPE, ServerMetrics
from specclient.serving.middleware import RequestMiddleware
from specclient.serving.permits import ServerPermits
from specclient.serving.request_log import FORM_VARIABLE, OTHER_ROUTE, RequestLog, log_format
from specclient.serving.sockets.handler import SOCKET_PATHS, OpenSockets, SocketHandler
from specclient.types.backend import EngineState, SupportsEngineState

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
            token; then only requests whose host is this machine are served.
        keys: stored keys, which are accepted as well. Once a key is stored, every request requires a key.
        meter: counts the use of the keys' rate limits. The default counts in this process only.
        models: the served models, as ``provider/model``; empty for all models that the client can reach.
        limits: limits of the server.
    """
    key_limiter = KeyLimiter(client.pipeline.destinations, meter)
    service = Service(client, ModelCatalogue(client, models), limits or Limits(), key_limiter, keys)
    app = Starlette(routes=service.routes(), lifespan=service.lifespan)
    app.router.redirect_slashes = False
    # In place of Starlette's own layers, because it turns every exception into a response.
    app.middleware_stack = RequestMiddleware(
        app.router,
        handlers=service.calls,
        sockets=service.sockets,
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
        gate: checks and admits the calls to models.
        calls: ASGI applications of the calls to models, by method and path.
        sockets: ASGI applications of WebSockets, by path.
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
        self.gate = CallGate(
            client,
            catalogue,
            self.permits,
            self.admission,
            key_limiter,
            self.off_loop,
            limits.json_values,
        )
        self.calls = {
            (m.verb, f"/v1{m.path}"): _RouteApp(OpenAICallHandler(self.gate, m), f"/v1{m.path}")
            for m in CALLS
        }
        for path, handler in (
            ("/v1/messages", MessagesHandler(self.gate)),
            ("/v1/messages/count_tokens", CountTokensHandler(self.gate)),
            ("/api/chat", OllamaCallHandler(self.gate, "chat")),
            ("/api/generate", OllamaCallHandler(self.gate, "generate")),
        ):
            self.calls["POST", path] = _RouteApp(handler, path)
        slots = OpenSockets(limits.sockets)
        self.sockets = {path: SocketHandler(self.gate, path, limits, slots) for path in SOCKET_PATHS}
        client.pipeline.observers += [self.log.observe, self.metrics.observe, self.dashboard.observe]

    def routes(self) -> list[Route]:
        """Return all routes with their ASGI applications."""
        ollama = OllamaModels(self.gate)
        return [
            self._route("/health", self._health, "GET"),
            self._route("/ready", self._ready, "GET"),
            self._route("/metrics", self._metrics, "GET"),
            *(self._route(path, handler, "GET") for path, handler in self.dashboard.routes()),
            *(Route(path, endpoint, methods=[verb]) for (verb, path), endpoint in self.calls.items()),
            self._route("/api/tags", ollama.tags, "GET"),
            self._route("/api/version", ollama.version, "GET"),
            self._route("/api/show", ollama.show, "POST"),
            self._route("/v1/models", self._models, "GET"),
            self._route("/v1/models/{model:path}", self._model, "GET"),
            self._route(gemini.PREFIX, gemini.GeminiModelsHandler(self.gate), "GET"),
            self._route(f"{gemini.PREFIX}/{{model:path}}", gemini.GeminiModelsHandler(self.gate), "GET"),
            self._route(f"{gemini.PREFIX}/{{model:path}}", gemini.ContentsHandler(self.gate), "POST"),
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
        calls = {path.removeprefix("/v1"): verb for verb, path in self.calls if path.startswith("/v1/")}
        own = {"/models": "GET", **calls}
        return PassthroughHandler(self.gate, own)

    async def _models(self, exchange: HTTPExchange) -> None:
        rows = self.gate.listed_models(exchange.key)
        listed = {"object": "list", "data": list(rows.values())}
        page = model_page(list(rows), exchange.query) if exchange.form is ANTHROPIC else listed
        await exchange.respond(json_of(page))

    async def _model(self, exchange: HTTPExchange) -> None:
        name = exchange.scope["path_params"]["model"]
        row = self.gate.listed_models(exchange.key).get(name)
        if row is None:
            raise ServingError(404, f"model {name!r} is not served here", "model", "model_not_found")
        await exchange.respond(json_of(model_info(name) if exchange.form is ANTHROPIC else row))

    async def _health(self, exchange: HTTPExchange) -> None:
        await exchange.respond(b'{"status":"ok"}')

    async def _ready(self, exchange: HTTPExchange) -> None:
        if self.admission.full:
            raise ServingError(503, "the queue of waiting requests is full", code="server_busy")
        loaded = [engine.name for engine in self._engines()]
        await exchange.respond(json_of({"status": "ready", "loaded": loaded}))

    async def _metrics(self, exchange: HTTPExchange) -> None:
        # With workers, it reads all their files, which takes long.
        await exchange.respond(await run_in_thread(self.metrics.text), kind=CONTENT_TYPE)

    def _engines(self) -> list[EngineState]:
        """Return the states of the loaded engines in this process, named ``provider/model``."""
        backends = self.client.pipeline.destinations.made
        return [
            replace(state, name=f"{name}/{state.name}")
            for name, backend in backends.items()
            if isinstance(backend, SupportsEngineState)
            for state in backend.state()
        ]


class _RouteApp:
    """Adapts a handler to the ASGI interface of a route."""

    def __init__(self, handler: Handler, route: str) -> None:
        self._handler, self._path = handler, route

    async def __call__(self, scope: ASGIScope, _receive: ASGIReceive, _send: ASGISend) -> None:
        exchange: HTTPExchange = scope[EXCHANGE_KEY]
        exchange.entry.route = self._path
        await self._handler(exchange)
