"""The calls of one WebSocket: each response of the server is a call in the ledger.

A call begins when ``response.create`` is sent, or when the server begins a response by itself, as it does
after speech. It ends with the event that states its usage. A response is identified by its id. A response
that the server begins is matched to the oldest request without one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specclient.budgets.answers import LIMITS
from specclient.call.decode import usage_reader
from specclient.call.pipeline import Pipeline
from specclient.call.recorder import CallRecorder
from specclient.call.websocket.methods import TRANSCRIPTION
from specclient.call.websocket.session_facts import SessionFacts, member_of
from specclient.errors import (
    APIConnectionError,
    APIError,
    BadRequestError,
    BudgetExceededError,
    LedgerError,
    OpenAIError,
)
from specclient.providers import Endpoint
from specclient.types.api_method import ApiMethod
from specclient.types.call import Call, MeteredModel
from specclient.types.request import PerCallOptions, Request

__all__ = ["CREATE", "SentRequest", "SocketMeter"]

#: The event that requests a response.
CREATE = "response.create"
_ENDS = frozenset({"response.completed", "response.done", "response.failed", "response.incomplete"})
_TRANSCRIBED = "conversation.item.input_audio_transcription.completed"


@dataclass(slots=True, eq=False)
class SentRequest:
    """A request for a response that the server has not begun yet.

    Attributes:
        record: of its call.
        event_id: the caller's id of the event; None without one.
    """

    record: CallRecorder
    event_id: str | None


class SocketMeter:
    """Records the calls of one WebSocket.

    Args:
        pipeline: records the calls, checks their permits and budgets.
        method: the method of the calls; its operation is ``realtime`` or ``response``.
        endpoint: where the WebSocket was opened.
        model: the model of the connection, as the caller named it; empty if the requests name it.
        options: tags, session and permit of the calls.
        hears: whether a Realtime session receives audio from elsewhere.

    Attributes:
        last: the record of the newest finished call; None before the first.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        method: ApiMethod,
        endpoint: Endpoint,
        model: str,
        options: PerCallOptions,
        *,
        hears: bool = False,
    ) -> None:
        self.last: Call | None = None
        self._pipeline, self._method, self._endpoint = pipeline, method, endpoint
        self._options = replace(options, headers={}, query={})
        self._realtime = method.operation == "realtime"
        self._facts = SessionFacts(model, hears=hears)
        self._usage_of = usage_reader(endpoint)
        self._sent: deque[SentRequest] = deque()
        self._open: dict[str, CallRecorder] = {}

    async def begin(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], SentRequest | None]:
        """Prepare an event that is about to be sent; a request for a response is checked and reserved.

        Returns:
            The event to send, with the provider's own name of the model; and the request, None for any other
            event. Pass the request to :meth:`drop` if it could not be sent.

        Raises:
            BudgetExceededError, LedgerError, NotFoundError: the response is refused; nothing may be sent.
            BadRequestError: the model belongs to another provider than the connection.
        """
        self._facts.note_client(event)
        if event.get("type") != CREATE:
            return event, None
        request = self._request(event)
        self._check_provider(request.model)
        decision, _, record, limited = await self._pipeline.open_record(request)
        event = self._with_limit(event, request, limited)
        if not self._realtime and event.get("model") not in (None, decision.model):
            event = {**event, "model": decision.model}
        if not self._realtime:
            self._facts.model = request.model or self._facts.model
        event_id = event.get("event_id")
        sent = SentRequest(record, event_id if isinstance(event_id, str) else None)
        self._sent.append(sent)
        return event, sent

    async def drop(self, sent: SentRequest) -> None:
        """Close the record of a request that could not be sent."""
        if sent in self._sent:
            self._sent.remove(sent)
            failure = APIConnectionError(message="Connection error. The request was not sent.")
            failure.sent = False
            await self._pipeline.close_record(sent.record, failure)

    def note(self, event: Any) -> Coroutine[Any, Any, OpenAIError | None] | None:
        """Note an event of the server.

        Returns:
            A coroutine if a call begins or ends; it must be run. Its result is the error of a response that
            the server began by itself and that a budget refuses; it runs, and should be cancelled.
        """
        kind = getattr(event, "type", None)
        if not isinstance(kind, str):
            return None
        if kind == "response.created":
            return self._begun(event)
        if kind in _ENDS:
            return self._ended(event)
        if kind == "error":
            return self._refused(event)
        if kind == _TRANSCRIBED:
            return self._transcribed(event)
        self._facts.note_server(kind, event)
        if kind.startswith("response.") and (record := self._record_of(event)) is not None:
            record.note_chunk(event, None)
        return None

    async def end(self, error: BaseException | None = None) -> None:
        """Close the records of all open calls.

        Args:
            error: why the connection ended; None if the caller closed it.
        """
        cause = asyncio.CancelledError() if error is None else error
        records = [*(sent.record for sent in self._sent), *self._open.values()]
        self._sent.clear()
        self._open.clear()
        for record in records:
            self.last = await self._pipeline.close_record(record, cause)

    async def _begun(self, event: Any) -> OpenAIError | None:
        refusal: OpenAIError | None = None
        if self._sent:
            record = self._sent.popleft().record
        else:
            record, refusal = await self._unrequested()
        record.note_headers(1, None, {})
        if not self._realtime:
            record.note_chunk(event, None)
        self._open[_response_id(event)] = record
        return refusal

    async def _unrequested(self) -> tuple[CallRecorder, OpenAIError | None]:
        """Return the record of a response that the server began by itself, and why a budget refuses it."""
        request = self._request({})
        try:
            return (await self._pipeline.open_record(request)).record, None
        except (BudgetExceededError, LedgerError) as error:
            return (await self._pipeline.open_record(request, reserve=False)).record, error

    async def _ended(self, event: Any) -> OpenAIError | None:
        record = self._open.pop(_response_id(event), None)
        if record is None:
            record = self._sent.popleft().record if self._sent else None
        if record is None:
            record = (await self._pipeline.open_record(self._request({}), reserve=False)).record
        record.note_chunk(event, self._usage_of(event))
        self.last = call = await self._pipeline.close_record(record)
        if isinstance(answer := getattr(event, "response", None), MeteredModel):
            answer.attach_meta(call)
        return None

    async def _refused(self, event: Any) -> OpenAIError | None:
        """Close the request to which an error of the server refers, if any.

        An error that names no event is assigned to the oldest request. If that is wrong, the response that
        follows is recorded as one that the server began by itself.
        """
        body = member_of(event, "error") or event
        event_id = member_of(body, "event_id")
        sent = next((one for one in self._sent if event_id in (None, one.event_id)), None)
        message = member_of(body, "message")
        failure = APIError(message if isinstance(message, str) else "the server refused the request")
        if sent is not None:
            self._sent.remove(sent)
            self.last = await self._pipeline.close_record(sent.record, failure)
        elif self._open and not self._realtime:
            record = self._open.pop(next(iter(self._open)))
            record.note_chunk(event, None)
            self.last = await self._pipeline.close_record(record, failure)
        return None

    async def _transcribed(self, event: Any) -> OpenAIError | None:
        """Record the transcription of the caller's speech, which is billed beside the responses."""
        if self._facts.transcriber:
            request = Request(
                TRANSCRIPTION, self._same_provider(self._facts.transcriber), options=self._options
            )
            record = (await self._pipeline.open_record(request, reserve=False)).record
            record.note_headers(1, None, {})
            record.note_chunk(event, self._usage_of(event))
            await self._pipeline.close_record(record)
        return None

    def _with_limit(self, event: Mapping[str, Any], request: Request, limited: Request) -> Mapping[str, Any]:
        """Return the event of a request with the limit of the answer that a budget has reserved."""
        if limited is request:
            return event
        if not self._realtime:
            kept = {name: event[name] for name in ("type", "model") if name in event}
            return {**kept, **limited.params}
        response = event.get("response")
        added = {**response} if isinstance(response, Mapping) else {}
        for name in LIMITS["realtime"]:
            added.pop(name, None)
        limits = {name: limited.params[name] for name in LIMITS["realtime"] if name in limited.params}
        return {**event, "response": {**added, **limits}}

    def _request(self, event: Mapping[str, Any]) -> Request:
        """Return the request of a response, from the event that asks for it; empty if the server began it."""
        if not self._realtime:
            params = {name: value for name, value in event.items() if name not in ("type", "model")}
            named = event.get("model")
            model = named if isinstance(named, str) else "" if event else self._facts.model
            return Request(self._method, model, params, stream=True, options=self._options)
        response = event.get("response")
        params = dict(response) if isinstance(response, Mapping) else {}
        if event and self._facts.max_output_tokens is not None:  # the provider may have refused to set it
            params["session_limit"] = self._facts.max_output_tokens
        params |= {"hears": self._facts.hears, "speaks": self._facts.speaks_in(params)}
        model = self._same_provider(self._facts.model)
        return Request(self._method, model, params, stream=True, options=self._options)

    def _same_provider(self, model: str) -> str:
        """Return a model's name with the connection's provider, unless it has one."""
        places = self._pipeline.destinations
        if places.owns_names or self._endpoint.name == places.default:
            return model
        if places.resolve(model, self._options.aliases) != model:
            return model  # an alias, which names the provider
        head = f"{self._endpoint.name}/"
        return model if model.startswith(head) else head + model

    def _check_provider(self, model: str) -> None:
        places = self._pipeline.destinations
        name = places.split(model, self._options.aliases)[0] if model else self._endpoint.name
        if name != self._endpoint.name:
            error = BadRequestError(
                f"model {model!r} is of provider {name!r}, and this WebSocket is connected to "
                f"{self._endpoint.name!r}; open another connection for it"
            )
            error.param = "model"
            raise error

    def _record_of(self, event: Any) -> CallRecorder | None:
        """Return the record of the response that an event belongs to; of the newest if it names none."""
        found = self._open.get(_response_id(event))
        if found is None and not self._realtime and self._open:
            found = self._open[next(reversed(self._open))]
        return found


def _response_id(event: Any) -> str:
    named = getattr(event, "response_id", None) or getattr(getattr(event, "response", None), "id", None)
    return named if isinstance(named, str) else ""
