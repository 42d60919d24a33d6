"""Endpoints of servers that are started when a call needs them, such as ``local/NAME`` with ``engine``.

Such an endpoint has no address until its server runs. Everything that only considers it (routing, prices,
capabilities) uses it as it is; an attempt awaits :meth:`StartedServer.endpoint` first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from pydantic import SecretStr

from specclient.providers.encoding import key_headers
from specclient.providers.endpoint import Endpoint
from specclient.providers.presets.registry import PRESETS
from specclient.providers.probe_cache import key_of, read_probes
from specclient.providers.unsupported import drops, is_requested, refuse_unsupported
from specclient.types.backend import ModelServer, ServerAddress
from specclient.types.request import Request
from specclient.types.wire import Authorize, WireRequest

__all__ = ["NOT_STARTED", "StartedServer", "accepted_by_server", "server_endpoint"]

#: The base URL of an endpoint whose server has not been started. Nothing listens on port 0.
NOT_STARTED = "http://127.0.0.1:0/v1"


class StartedServer:
    """A server of an endpoint, started when a call needs it.

    Args:
        server: starts it, and keeps it from being stopped during calls.
    """

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._known: tuple[ServerAddress, Endpoint] | None = None

    @property
    def title(self) -> str:
        """The server's name in messages."""
        return self._server.title

    def for_call(self, call: str, request: Request) -> StartedServer:
        """Return this server, which serves all calls."""
        del call, request
        return self

    async def endpoint(self, idle: Endpoint) -> Endpoint:
        """Start the server unless it runs; return its endpoint. Then :meth:`release` must be called.

        Args:
            idle: the endpoint without an address.

        Raises:
            ConfigurationError, EngineError: see :meth:`specclient.types.backend.ModelServer.acquire`.
        """
        address = await self._server.acquire()
        known = self._known
        if known is None or known[0] is not address:
            self._known = known = address, _at(idle, address)
        return known[1]

    def release(self) -> None:
        """Note that a call has ended."""
        self._server.release()

    def others_serve(self) -> bool:
        """Return False: there is one server."""
        return False

    def authorize(self, started: Endpoint) -> Authorize:
        """Return a function that is called before each attempt of a request, during a call.

        It starts the server again if it has ended since, and gives the request its address and key.

        Args:
            started: the endpoint that the request was encoded for.
        """
        first = True

        async def at_running_server(request: WireRequest) -> WireRequest:
            nonlocal first
            if first:  # the call has just acquired the server
                first = False
                return request
            now = await self.endpoint(started)
            self.release()
            if now.key is not None:
                request = request.with_headers(key_headers(now, now.key.get_secret_value()))
            return replace(request, url=now.base_url + request.url.removeprefix(started.base_url))

        return at_running_server

    def accepted(self, request: Request, idle: Endpoint) -> Request:
        """Return a request without parameters that the server refuses, if those are dropped.

        Fields of ``extra_body`` count, too: the server is known before it runs.

        Raises:
            UnsupportedParameterError: the request has such a parameter, and they are not dropped.
        """
        return accepted_by_server(request, idle, self._server.refused, self.title)


def accepted_by_server(request: Request, endpoint: Endpoint, refused: Collection[str], title: str) -> Request:
    """Return a request without parameters that its server refuses, if those are dropped.

    Args:
        request: the request; fields of ``extra_body`` count, too.
        endpoint: the server's endpoint.
        refused: the parameters that the server rejects while it speculates.
        title: the server's name in the error.

    Raises:
        UnsupportedParameterError: the request has such a parameter, and they are not dropped.
    """
    given: Mapping[str, object] = {**request.params, **request.options.body}
    names = [name for name in refused if is_requested(name, given.get(name))]
    if not names:
        return request
    refuse_unsupported(request, endpoint, names, why=f"{title} rejects it while it speculates")
    assert drops(request, endpoint)
    return replace(
        request,
        params={name: value for name, value in request.params.items() if name not in names},
        options=replace(
            request.options,
            body={name: value for name, value in request.options.body.items() if name not in names},
        ),
    )


def server_endpoint(name: str, server: ModelServer, env: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of a model whose server has not been started.

    Responses are served over chat completions and stored here, as those of models in this process.

    Args:
        name: the provider's name, the part of the model's name before ``/``.
        server: the model's server.
        env: the environment, which names the file of probes.
    """
    row = PRESETS.get(server.provider)
    known = Endpoint(name=name, base_url=NOT_STARTED) if row is None else row.endpoint(base_url=NOT_STARTED)
    return replace(
        known,
        name=name,
        key_env=(),
        templates={} if server.template is None else {"*": server.template},
        capabilities=replace(known.capabilities, responses=False),
        probed=read_probes(env).get(key_of(NOT_STARTED), {}),
        server=StartedServer(server),
    )


def _at(idle: Endpoint, address: ServerAddress) -> Endpoint:
    """Return an endpoint with the address of its running server."""
    return replace(
        idle,
        base_url=address.base_url,
        key=SecretStr(address.key) if address.key else None,
        served_model=address.model,
        metrics=address.metrics,
    )
