"""The stream of a routed call: fails over to another route, which continues the text without a break."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from specclient import tokens
from specclient.call.failover.causes import failover_scope
from specclient.call.failover.hedge import HedgedStream
from specclient.call.failover.routed_call import Attempt, RoutedCall
from specclient.call.failover.splice import StreamSplice, has_output
from specclient.call.request_params import capabilities_of
from specclient.call.stream import AsyncStream
from specclient.errors import APIError, ConfigurationError, NotFoundError, OpenAIError
from specclient.providers import Endpoint
from specclient.runtime.forks import import_lock
from specclient.types.call import Call, CallStatus
from specclient.types.request import Request
from specclient.types.route import Alternative

__all__ = ["AttemptStream", "AttemptStreamOpener", "FailoverStream", "wait_for_output"]


class _BatchReader(Protocol):
    async def next_batch(self) -> list[Any]: ...

    async def close(self) -> None: ...


class AttemptStream:
    """The opened stream of one attempt.

    Args:
        attempt: the attempt that opened the stream.
        reader: yields its batches: the stream itself, or a task that reads it.
        stream: the stream, for its record and HTTP response.
        buffered: batches that were read while waiting for the first output.
        splice: joins the stream to earlier ones; None for a stream that begins an answer.
    """

    __slots__ = ("attempt", "buffered", "reader", "splice", "stream")

    def __init__(
        self,
        attempt: Attempt,
        reader: _BatchReader,
        stream: AsyncStream[Any],
        buffered: Sequence[list[Any]] = (),
        splice: StreamSplice | None = None,
    ) -> None:
        self.attempt = attempt
        self.reader = reader
        self.stream = stream
        self.buffered = buffered
        self.splice = splice

    @classmethod
    def from_hedge(cls, winner: HedgedStream, attempt: Attempt) -> AttemptStream:
        """Return the stream that won a race."""
        return cls(attempt, winner, winner.stream, winner.buffered)


class AttemptStreamOpener(Protocol):
    """Opens streams; see :class:`specclient.call.failover.executor.FailoverExecutor`."""

    async def open_stream(
        self, call: RoutedCall, attempt: Attempt, request: Request | None = None
    ) -> AsyncStream[Any]:
        """Open the stream of an attempt.

        Args:
            request: what to send; None for the caller's request.
        """
        ...

    async def open_first(self, call: RoutedCall) -> AttemptStream:
        """Open the first stream that answers."""
        ...

    def note_finished(self, call: Call) -> None:
        """Note a finished call."""
        ...


async def wait_for_output(
    stream: AsyncStream[Any],
    attempt: Attempt,
    call: RoutedCall,
    batch_has_output: Callable[[list[Any]], bool],
) -> AttemptStream:
    """Read a stream until some of its answer has arrived, or it has ended; close it on an error."""
    buffered: list[list[Any]] = []
    try:
        while not buffered or not batch_has_output(buffered[-1]):
            buffered.append(await call.with_deadline(attempt, stream.next_batch()))
    except StopAsyncIteration:
        pass
    except BaseException:
        await stream.close()
        raise
    return AttemptStream(attempt, stream, stream, buffered)


class FailoverStream:
    """The stream of a routed call, and its record while it runs."""

    def __init__(self, opener: AttemptStreamOpener, call: RoutedCall) -> None:
        self._opener = opener
        self._call = call
        self._current: AttemptStream | None = None
        self._closed: Call | None = None
        self._ttft_s: float | None = None
        self._first: Any = None  # the first chunk that the caller saw
        self._text = ""  # of the streams that have broken off
        self._successors: list[Alternative] | None = None  # routes that may continue the answer
        call.can_resume = self._can_resume

    def meta(self) -> Call:
        """Return the record, complete once the stream has ended."""
        if self._closed is not None:
            return self._closed
        if self._call.has_subcalls or self._current is None:
            return self._record("open")
        return self._current.stream.meta

    async def batches(self) -> AsyncGenerator[Any, None]:
        """Yield ``(response, dialect)`` once the answer has begun, then lists of chunks."""
        call = self._call
        try:
            current = self._current = await self._opener.open_first(call)
            yield current.stream.http, current.stream.dialect
            while True:
                try:
                    async for batch in self._read(current):
                        yield batch
                    break
                except APIError as error:
                    failure = error
                try:
                    current = await self._resume(current, failure)
                finally:
                    del failure  # its traceback's frame holds it: a reference cycle
        except BaseException as error:
            await self._close()
            failed = isinstance(error, Exception)
            if isinstance(error, APIError) and self._text:
                error.partial = self._text
            if call.has_subcalls:
                name = type(error).__name__ if failed else None
                self._closed = self._record("error" if failed else "cancelled", name)
            elif self._current is not None:
                self._closed = self._current.stream.meta
            raise
        await self._close()
        self._closed = self._record("ok") if call.has_subcalls else current.stream.meta
        self._opener.note_finished(self._closed)

    async def _close(self) -> None:
        self._call.can_resume = None
        if self._current is not None:
            await self._current.reader.close()

    async def _read(self, current: AttemptStream) -> AsyncGenerator[list[Any], None]:
        """Yield the batches of one attempt's stream, the buffered ones first."""
        call, reader, splice = self._call, current.reader, current.splice
        for batch in current.buffered:
            if splice is None:
                self._note(batch)
                yield batch
            elif spliced := splice.spliced(batch):
                yield spliced
        current.buffered = ()
        has_deadline = call.deadline_s is not None
        while True:
            try:
                if has_deadline:
                    batch = await call.with_deadline(current.attempt, reader.next_batch())
                else:
                    batch = await reader.next_batch()
            except StopAsyncIteration:
                return
            if splice is not None:
                batch = splice.spliced(batch)
                if not batch:
                    continue
            elif not call.output_started:
                self._note(batch)
            yield batch

    def _note(self, batch: list[Any]) -> None:
        """Note the first chunk, and when the first output arrives."""
        if self._first is None and batch:
            self._first = batch[0]
        if not self._call.output_started and any(has_output(item) for item in batch):
            self._call.output_started = True
            self._ttft_s = self._call.clock() - self._call.started_s

    def _record(self, status: CallStatus, error: str | None = None) -> Call:
        return self._call.record(status, ttft_s=self._ttft_s, error=error)

    # Continuation on another route

    def _can_resume(self, failure: BaseException | None) -> bool:
        """Return whether an answer that broke off with this error is continued on another route."""
        call, remaining_s = self._call, self._call.remaining_s
        if not isinstance(failure, APIError) or failover_scope(failure) != "any" or not call.fails_over:
            return False
        is_over = remaining_s is not None and remaining_s <= 0
        if call.request.operation not in ("chat", "completion") or is_over:
            return False
        text = self._text + (failure.partial or "")
        return bool(text.strip()) and any(
            self._continuation(each, text) is not None for each in self._possible_successors()
        )

    def _possible_successors(self) -> list[Alternative]:
        """Return the routes that may continue: those not tried, then the one that broke off, once."""
        if self._successors is None:
            own = [] if self._current is None else [self._current.attempt.to]
            self._successors = [*self._call.untried, *own]
        return self._successors

    def _continuation(self, to: Alternative, text: str) -> Request | None:
        """Return the request that continues a text on a route; None where the route cannot."""
        with import_lock:
            from specclient.call.strategies.continuation import (  # noqa: PLC0415 - only after a break
                continuation_request,
                token_limit,
                without_prefilled_turn,
            )

        try:
            destination = self._call.destinations.of_model(to.provider, to.model)
        except (NotFoundError, ConfigurationError):
            return None
        request = replace(self._call.request, strategy=None)
        if any(part.strategy == "prefill" for part in self._call.parts):
            request = without_prefilled_turn(request)  # that strategy returns the turn as part of the text
        token_count = tokens.count_text(text, to.model).tokens
        if (limit := token_limit(request)) is not None:  # an estimate may exceed it: no server takes 0
            token_count = min(token_count, max(limit - 1, 0))
        return continuation_request(
            request, capabilities_of(destination, to.model), text.rstrip(), token_count
        )

    async def _resume(self, broken: AttemptStream, failure: APIError) -> AttemptStream:
        """Return the stream that continues where one has broken off.

        Raises:
            APIError: no route continues the answer; ``partial`` is all the text that the caller has.
        """
        call = self._call
        await broken.reader.close()
        call.note_failure(broken.attempt, failure)
        self._text += (failure.partial or "") if broken.splice is None else broken.splice.text
        failure.partial = None  # it is part of self._text now
        failure.__traceback__ = None  # its frames refer to the call, which keeps the error: a cycle
        while self._first is not None and call.output_started and self._can_resume(failure):
            to = self._possible_successors().pop(0)
            request = self._continuation(to, self._text)
            if request is None:
                continue
            attempt = Attempt(to, "failover", f"continues where {', '.join(call.failures)} broke off")
            call.has_subcalls = True
            try:
                stream = await self._opener.open_stream(call, attempt, request)
            except OpenAIError as error:
                call.note_failure(attempt, error)
                continue
            splice = StreamSplice(
                self._first,
                self._text,
                may_repeat=self._may_repeat(to, request),
                earlier_usage=[part.usage for part in call.parts],
            )
            call.route = call.decision_for(attempt)
            self._current = AttemptStream(attempt, stream, stream, (), splice)
            return self._current
        try:
            raise call.final_error(failure)
        finally:
            del failure  # its traceback's frame holds it: a reference cycle

    def _may_repeat(self, to: Alternative, request: Request) -> bool:
        """Return whether a route may repeat the text it continues: chats may, except Anthropic's."""
        destination = self._call.destinations.of_model(to.provider, to.model)
        is_anthropic = isinstance(destination, Endpoint) and destination.dialect == "anthropic"
        return request.operation == "chat" and not is_anthropic
