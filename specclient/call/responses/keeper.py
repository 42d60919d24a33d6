"""Responses that are kept: earlier items are added before a call, and its response is stored after it.

The context of a stored response or conversation is added to ``input`` before the call is routed. So any
model can continue it, and prices, budgets and routing count all of it. A response is stored if it was made
here from a chat completion; a provider with a Responses API stores its own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specclient.call.large_values import run_on_value
from specclient.call.over_chat import is_over_chat
from specclient.call.recorded_calls import started
from specclient.call.responses.events import Delta, delta_of
from specclient.call.responses.ids import is_local
from specclient.call.responses.items import Item, sent_again, stored_items
from specclient.call.responses.refusals import invalid, unsupported
from specclient.call.responses.stored_objects import StoredObjects
from specclient.call.result import CallResult
from specclient.call.stream import AsyncStream
from specclient.errors import BadRequestError, LedgerError, NotFoundError, OpenAIError
from specclient.providers.encoding import decoded
from specclient.routing.router import Router
from specclient.stored.space import OversizeError
from specclient.stored.store import ObjectStore, StoredResponse
from specclient.types.request import Request

__all__ = ["ResponseKeeper"]

_log = logging.getLogger("specclient")

_LAST = frozenset({"response.completed", "response.incomplete"})


@dataclass(frozen=True, slots=True)
class _ContinuedCall:
    """A call and the stored response or conversation that it continues.

    Attributes:
        request: the request with all items as its input.
        given: the caller's input, as JSON.
        earlier: the stored items before it.
        previous, conversation: the caller's ids of objects that are stored here.
    """

    request: Request
    given: Any
    earlier: list[Item] = field(default_factory=list)
    previous: str | None = None
    conversation: str | None = None

    @property
    def continues(self) -> bool:
        """Whether the call continues a response or conversation that is stored here."""
        return self.previous is not None or self.conversation is not None

    def echo(self, response: Any, *, is_stored: bool) -> None:
        """Set the fields of a response that state what it continues, and whether it is stored here."""
        fields: dict[str, Any] = {}
        if self.previous is not None:
            fields["previous_response_id"] = self.previous
        if self.conversation is not None:
            fields["conversation"] = {"id": self.conversation}
        if is_local(response.id):
            fields["store"] = is_stored
        made = type(response).construct(**fields)
        for name in fields:
            setattr(response, name, getattr(made, name))


class ResponseKeeper:
    """Serves the calls of ``responses.create``.

    Args:
        router: returns the router of the calls.
        store: returns the store of responses; None if nothing is stored.
    """

    def __init__(self, router: Callable[[], Router], store: Callable[[], ObjectStore | None]) -> None:
        self._router, self._objects = router, StoredObjects(store)
        self._warned = False

    async def execute(
        self, request: Request, serve: Callable[[Request], Awaitable[CallResult]]
    ) -> CallResult:
        """Serve a request by ``serve``, which receives it with all earlier items."""
        context = await self._open(request)
        if context is None:
            return await serve(request)
        result = await serve(context.request)
        if result.error is not None or not isinstance(getattr(result.value, "id", None), str):
            return result
        await self._keep(context, result.value, None)
        if result.reply is None:
            return result
        content = result.value.model_dump_json(exclude_unset=True, by_alias=True, warnings=False).encode()
        return replace(result, reply=replace(result.reply, content=content))

    async def stream(
        self, request: Request, serve: Callable[[Request], Awaitable[AsyncStream[Any]]]
    ) -> AsyncStream[Any]:
        """Serve a request as a stream; see :meth:`execute`."""
        context = await self._open(request)
        if context is None:
            return await serve(request)
        stream = await serve(context.request)
        kept = await started(self._kept(context, stream), lambda: stream.meta)
        kept.cached = stream.cached
        return kept

    async def stream_bytes(
        self, request: Request, serve: Callable[[Request], Awaitable[AsyncStream[bytes]]]
    ) -> AsyncStream[bytes]:
        """Serve a request as bytes, which are not kept; see :meth:`execute`.

        Raises:
            UnsupportedParameterError: the conversation is stored here; the answer could not be added to it.
        """
        context = await self._open(request)
        if context is not None and context.conversation is not None:
            raise unsupported(
                "conversation",
                "with_streaming_response returns the bytes of a provider's answer, which cannot be added to "
                "a conversation that is stored here; use with_raw_response or stream=True",
            )
        return await serve(request if context is None else context.request)

    async def _open(self, request: Request) -> _ContinuedCall | None:
        """Return a request with its earlier items; None if nothing stored here is involved.

        Raises:
            BadRequestError: the response that it continues is not stored.
            NotFoundError: the conversation is not stored.
        """
        previous, conversation = (
            request.params.get("previous_response_id"),
            request.params.get("conversation"),
        )
        if isinstance(conversation, Mapping):
            conversation = conversation.get("id")
        if not (is_local(previous) or is_local(conversation)):
            if not self._may_be_stored(request):
                return None
            given = request.params.get("input")
            return _ContinuedCall(
                request, await run_on_value(given, lambda: decoded({"input": given})["input"])
            )
        if previous is not None and conversation is not None:
            raise invalid(
                "previous_response_id",
                "previous_response_id and conversation exclude each other; give one of them",
                "mutually_exclusive_parameters",
            )
        owner = request.options.owner
        if previous is not None:
            earlier = await self._earlier(owner, previous)
        else:
            earlier = await self._objects.all_items(owner, str(conversation))
        params = await run_on_value(dict(request.params), lambda: decoded(request.params))
        given = params.pop("input", None)
        params = {
            name: value
            for name, value in params.items()
            if name not in ("previous_response_id", "conversation")
        }
        following = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
        if not isinstance(following, list):
            raise invalid("input", "input must be a string or an array")
        params["input"] = [*sent_again(earlier), *following]
        return _ContinuedCall(replace(request, params=params), given or [], earlier, previous, conversation)

    async def _earlier(self, owner: str, previous: str) -> list[Item]:
        try:
            kept = await self._objects.response(owner, previous)
        except NotFoundError as error:
            message = f"Previous response with id {previous[:80]!r} not found.{self._objects.why_nothing}"
            raise invalid("previous_response_id", message, "previous_response_not_found") from error
        return [*kept.input, *kept.response["output"]]

    def _may_be_stored(self, request: Request) -> bool:
        """Return whether the response may be made and stored here."""
        if request.params.get("store") is False or not self._objects.enabled:
            return False
        router = self._router()
        if request.policy is not None or router.names_auto(request):
            return True
        try:
            places = router.destinations
            return is_over_chat(request, places.get(places.split_request(request)[0]))
        except OpenAIError:  # raised again by the decision
            return False

    async def _kept(self, context: _ContinuedCall, stream: AsyncStream[Any]) -> AsyncGenerator[Any, None]:
        """Yield what :func:`started` needs, then the events; store the response before the last one."""
        deltas: list[Delta] = []
        wanted = self._stores(context)
        try:
            yield stream.http, stream.dialect
            while True:
                try:
                    batch = await stream.next_batch()
                except StopAsyncIteration:
                    return
                for event in batch:
                    response = getattr(event, "response", None)
                    if response is None:
                        if (delta := delta_of(event)) is not None:
                            deltas.append(delta)
                    elif event.type in _LAST:
                        await self._keep(context, response, deltas)
                    else:
                        context.echo(response, is_stored=wanted)
                yield batch
        finally:
            await stream.close()

    def _stores(self, context: _ContinuedCall) -> bool:
        return self._objects.enabled and context.request.params.get("store") is not False

    async def _keep(self, context: _ContinuedCall, response: Any, deltas: list[Delta] | None) -> None:
        """Store a finished response, and add its items to its conversation; a failure is logged once."""
        is_stored = is_local(response.id) and self._stores(context)
        context.echo(response, is_stored=is_stored)
        if not is_stored and context.conversation is None:
            return

        def keep(store: ObjectStore) -> None:
            body = json.loads(response.model_dump_json(exclude_unset=True, by_alias=True, warnings=False))
            given = stored_items(context.given, context.earlier)
            kept = StoredResponse(body, [*context.earlier, *given], deltas) if is_stored else None
            store.keep(context.request.options.owner, kept, context.conversation, [*given, *body["output"]])

        try:
            await self._objects.write(keep)
        except (BadRequestError, LedgerError, OversizeError) as error:
            context.echo(response, is_stored=False)
            if not self._warned:
                self._warned = True
                why = str(error) or "it is larger than the limits under [stored] allow"
                _log.warning(
                    "a response is not stored: %s. Calls go on; further failures are not logged", why
                )
