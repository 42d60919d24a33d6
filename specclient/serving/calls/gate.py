"""The checks of every call to a model before it is sent: key, permit, rate limits, admission queue."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from specclient.call.pipeline import Pipeline
from specclient.client.async_client import AsyncOpenAI
from specclient.openai_http.request import IncomingCall
from specclient.providers import Endpoint
from specclient.routing.router import AUTO
from specclient.serving.admission import AdmissionQueue
from specclient.serving.calls.off_loop import OffLoop
from specclient.serving.catalogue import ModelCatalogue, model_row
from specclient.serving.exchange import HTTPExchange
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.limiter import KeyLimiter, authorized_request
from specclient.serving.permits import ServerPermit, ServerPermits, model_names
from specclient.types.model_aliases import ModelAliases
from specclient.types.request import Request

__all__ = ["CallGate"]


@dataclass(frozen=True, slots=True)
class CallGate:
    """Checks calls, and admits them in order.

    Attributes:
        client: sends the calls.
        catalogue: the served models.
        permits: the routes that requests may be sent to.
        admission: limits concurrent requests.
        key_limiter: applies the rate limits of keys.
        off_loop: runs work on large bodies in threads.
        json_values: maximum number of values in a JSON body.
    """

    client: AsyncOpenAI
    catalogue: ModelCatalogue
    permits: ServerPermits
    admission: AdmissionQueue
    key_limiter: KeyLimiter
    off_loop: OffLoop
    json_values: int

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that serves the calls."""
        return self.client.pipeline

    def listed_models(self, key: StoredKey | None) -> dict[str, dict[str, Any]]:
        """Return the models and aliases that a key may use, by name, in the format of OpenAI's list."""
        places = self.pipeline.destinations
        aliases = self.catalogue.aliases(None if key is None else key.model_aliases)
        names = dict.fromkeys([*self.catalogue.names(), *aliases])
        return {
            name: model_row(name, aliases.get(name))
            for name in names
            if key is None or key.allows(model_names(name, places, key.model_aliases))
        }

    def permit(self, exchange: HTTPExchange) -> ServerPermit:
        """Return the permit of a request's key."""
        return self.permits.of(() if exchange.key is None else exchange.key.models)

    def authorized(self, exchange: HTTPExchange, request: Request, query: str = "") -> Request:
        """Return a request with its permit and the tags of its key, and note its model in the log.

        Args:
            query: the query string, if it is a part of the request's path.

        Raises:
            ServingError: the model is not served, or the key may not use it.
        """
        request = authorized_request(request, exchange.key, self.permit(exchange), query)
        self.catalogue.check(request)
        exchange.entry.model, exchange.entry.streamed = request.model, request.stream
        return request

    def authorized_call(self, exchange: HTTPExchange, call: IncomingCall) -> IncomingCall:
        """Return a call whose request is :meth:`authorized`."""
        request = self.authorized(exchange, call.request)
        return call if request is call.request else IncomingCall(request, call.meta)

    def admitted(self, exchange: HTTPExchange, request: Request) -> AbstractAsyncContextManager[None]:
        """Return a context that waits for the request's turn; a departure of the client cancels it."""
        admitted = _AdmittedRequest(exchange, self.admission)
        key = exchange.key
        return admitted if key is None or not key.paced else self._paced(exchange, request, admitted)

    @asynccontextmanager
    async def _paced(
        self, exchange: HTTPExchange, request: Request, admitted: _AdmittedRequest
    ) -> AsyncGenerator[None, None]:
        async with self.key_limiter.limit(exchange, request), admitted:
            yield

    def aliases(self, exchange: HTTPExchange) -> ModelAliases | None:
        """Return the aliases of a request's key; None without any."""
        return None if exchange.key is None else exchange.key.model_aliases

    def provider_model(
        self, model: str, provider: str, family: str, aliases: ModelAliases | None = None
    ) -> str:
        """Return the full name of the model that a client of a vendor's own API names.

        A bare name of one of the vendor's models belongs to the vendor's provider, unless it is an alias or
        the default provider has the vendor's API.

        Args:
            model: the name in the request.
            provider: the vendor's preset provider, whose name is also that of the dialect.
            family: the beginning of the names of the vendor's models.
            aliases: those of the request; None without any.
        """
        places = self.pipeline.destinations
        if places.resolve(model, aliases) != model:
            return model
        own = places.endpoints.get(provider)
        if places.owns_names or not model.startswith(family) or "/" in model:
            return model
        if own is None or not own.has_key or self.speaks(model, provider):
            return model
        return f"{provider}/{model}"

    def speaks(self, model: str, dialect: str, aliases: ModelAliases | None = None) -> bool:
        """Return whether the provider of a named model speaks a dialect; False for ``auto``.

        Args:
            aliases: those of the request; None without any.

        Raises:
            NotFoundError: the provider is unknown.
        """
        places = self.pipeline.destinations
        if places.resolve(model, aliases) == AUTO:
            return False
        return self.route_speaks(*places.split(model, aliases), dialect)

    def provider_of(self, model: str, aliases: ModelAliases | None = None) -> str | None:
        """Return the provider of a model; None for ``auto``.

        Raises:
            NotFoundError: the provider is unknown.
        """
        places = self.pipeline.destinations
        return None if places.resolve(model, aliases) == AUTO else places.split(model, aliases)[0]

    def route_speaks(self, provider: str, model: str, dialect: str) -> bool:
        """Return whether a provider speaks a dialect for one of its models.

        Raises:
            NotFoundError: the provider is unknown, or does not serve the model.
        """
        place = self.pipeline.destinations.of_model(provider, model)
        return isinstance(place, Endpoint) and place.dialect == dialect


class _AdmittedRequest(AbstractAsyncContextManager[None]):
    """The context of a request that has a slot of the admission queue, until its client disconnects."""

    __slots__ = ("_cancel", "_entry", "_queue")

    def __init__(self, exchange: HTTPExchange, queue: AdmissionQueue) -> None:
        self._cancel, self._entry, self._queue = exchange.cancel_on_disconnect(), exchange.entry, queue

    async def __aenter__(self) -> None:
        self._cancel.begin()
        if self._queue.acquire_nowait(self._entry):
            return
        try:
            await self._queue.acquire(self._entry)
        except BaseException as error:
            await self._cancel.end(error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.release()
        await self._cancel.end(error)
