"""Turn the streams that a routed call comes to into one: another route's where one fails, without a seam."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from specclient import tokens
from specclient.call.failover.attempt import Attempt, RoutedCall
from specclient.call.failover.causes import failover_scope
from specclient.call.failover.hedge import HedgedStream
from specclient.call.failover.splice import StreamSplice, has_output
from specclient.call.stream import AsyncStream
from specclient.errors import APIError, ConfigurationError, NotFoundError, OpenAIError
from specclient.providers import Endpoint
from specclient.runtime.forks import import_lock
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.route import Alternative

__all__ = ["AttemptStream", "AttemptStreamOpener", "FailoverStream", "wait_for_output"]


class _BatchReader(Protocol):
    async def next_batch(self) -> list[Any]: ...

    async def close(self) -> None: ...


class AttemptStream:
    """A stream that has been opened, with what has been read of it.

    Args:
        leg: whose it is.
        source: what it is read from; ``stream``: what that is of.
        held: what was read of it to see that it answers.
        seam: joins it to what came before; None for one that begins an answer.
    """

    __slots__ = ("held", "leg", "seam", "source", "stream")

    def __init__(
        self,
        leg: Attempt,
        source: _BatchReader,
        stream: AsyncStream[Any],
        held: Sequence[list[Any]] = (),
        seam: StreamSplice | None = None,
    ) -> None:
        self.leg = leg
        self.source = source
        self.stream = stream
        self.held = held
        self.seam = seam


class AttemptStreamOpener(Protocol):
    """What opens streams; see :class:`specclient.call.failover.executor.FailoverExecutor`."""

    async def open(self, trip: RoutedCall, leg: Attempt, request: Request | None = None) -> AsyncStream[Any]:
        """Open the stream of a leg, by default of what the caller asked for."""
        ...

    async def first(self, trip: RoutedCall) -> AttemptStream:
        """Open the first stream that answers."""
        ...

    def remember(self, call: Call) -> None:
        """Note a finished call."""
        ...


async def wait_for_output(
    stream: AsyncStream[Any], leg: Attempt, trip: RoutedCall, speaks: Callable[[list[Any]], bool]
) -> AttemptStream:
    """Return a stream once some of its answer is there; one that has none is ended."""
    held: list[list[Any]] = []
    try:
        while not held or not speaks(held[-1]):
            held.append(await trip.within(leg, stream.next_batch()))
    except StopAsyncIteration:
        pass
    except BaseException:
        await stream.close()
        raise
    return AttemptStream(leg, stream, stream, held)


def from_hedge(source: HedgedStream, leg: Attempt) -> AttemptStream:
    """Return the stream that has won a race."""
    return AttemptStream(leg, source, source.stream, source.held)


class FailoverStream:
    """One stream of a routed call, and its record while it runs."""

    def __init__(self, opener: AttemptStreamOpener, trip: RoutedCall) -> None:
        self._opener = opener
        self._trip = trip
        self._now: AttemptStream | None = None
        self._closed: Call | None = None
        self._ttft_s: float | None = None
        self._first: Any = None  # chunk, as the caller has seen it
        self._text = ""  # of the streams that have broken off
        self._others: list[Alternative] | None = None  # who may go on
        trip.continued = self._goes_on

    def meta(self) -> Call:
        """Return the record, complete once the stream has ended."""
        if self._closed is not None:
            return self._closed
        return self._account("open") if self._trip.several or self._now is None else self._now.stream.meta

    async def batches(self) -> AsyncGenerator[Any, None]:
        """Yield the head once the answer has begun, then the chunks."""
        trip = self._trip
        try:
            now = self._now = await self._opener.first(trip)
            yield now.stream.http, now.stream.dialect
            while True:
                try:
                    async for batch in self._read(now):
                        yield batch
                    break
                except APIError as error:
                    failure = error
                try:
                    now = await self._continued(now, failure)
                finally:
                    del failure  # its traceback's frame holds it: a circle
        except BaseException as error:
            await self._close()
            failed = isinstance(error, Exception)
            if isinstance(error, APIError) and self._text:
                error.partial = self._text
            if trip.several:
                name = type(error).__name__ if failed else None
                self._closed = self._account("error" if failed else "cancelled", name)
            elif self._now is not None:
                self._closed = self._now.stream.meta
            raise
        await self._close()
        self._closed = self._account("ok") if trip.several else now.stream.meta
        self._opener.remember(self._closed)

    async def _close(self) -> None:
        self._trip.continued = None
        if self._now is not None:
            await self._now.source.close()

    async def _read(self, now: AttemptStream) -> AsyncGenerator[list[Any], None]:
        """Yield what a stream brings, from what has been read of it on."""
        trip, source, seam = self._trip, now.source, now.seam
        for batch in now.held:
            if seam is None:
                self._note(batch)
                yield batch
            elif joined := seam.joined(batch):
                yield joined
        now.held = ()
        limited = trip.limit_s is not None
        while True:
            try:
                batch = await (trip.within(now.leg, source.next_batch()) if limited else source.next_batch())
            except StopAsyncIteration:
                return
            if seam is not None:
                batch = seam.joined(batch)
                if not batch:
                    continue
            elif not trip.spoken:
                self._note(batch)
            yield batch

    def _note(self, batch: list[Any]) -> None:
        """Note when the answer begins, and how its chunks are headed."""
        if self._first is None and batch:
            self._first = batch[0]
        if not self._trip.spoken and any(has_output(item) for item in batch):
            self._trip.spoken = True
            self._ttft_s = self._trip.clock() - self._trip.begun

    def _account(self, status: Any, error: str | None = None) -> Call:
        return self._trip.account(status, ttft_s=self._ttft_s, error=error)

    def _goes_on(self, failure: BaseException | None) -> bool:
        """Tell whether an answer that broke off goes on elsewhere."""
        trip, left = self._trip, self._trip.left_s
        if not isinstance(failure, APIError) or failover_scope(failure) != "any" or not trip.falls_back:
            return False
        if trip.request.operation not in ("chat", "completion") or (left is not None and left <= 0):
            return False
        text = self._text + (failure.partial or "")
        return bool(text.strip()) and any(self._asked(each, text) is not None for each in self._goers())

    def _goers(self) -> list[Alternative]:
        """Return who may go on: those who have not been asked, then the one that broke off, once."""
        if self._others is None:
            own = [] if self._now is None else [self._now.leg.to]
            self._others = [*self._trip.waiting, *own]
        return self._others

    def _asked(self, to: Alternative, text: str) -> Request | None:
        """Return the request that continues a text at a route, None where it is not known to do so."""
        with import_lock:
            from specclient.call.strategies.context import LOCAL_ENGINE_CAPABILITIES  # noqa: PLC0415 - after a break alone
            from specclient.call.strategies.prefill import (  # noqa: PLC0415
                continuation_request,
                without_prefilled_turn,
            )

        try:
            place = self._trip.places.get(to.provider)
        except (NotFoundError, ConfigurationError):
            return None
        known = place.capabilities_of(to.model) if isinstance(place, Endpoint) else LOCAL_ENGINE_CAPABILITIES
        request = replace(self._trip.request, strategy=None)
        if any(part.strategy == "prefill" for part in self._trip.parts):  # which hands it out with the answer
            request = without_prefilled_turn(request)
        return continuation_request(request, known, text.rstrip(), tokens.count_text(text, to.model).tokens)

    async def _continued(self, broken: AttemptStream, failure: APIError) -> AttemptStream:
        """Return the stream that goes on where one has broken off.

        Raises:
            APIError: nobody does; its ``partial`` is all that the caller has.
        """
        trip, frame = self._trip, self._first
        await broken.source.close()
        trip.failed(broken.leg, failure)
        self._text += (failure.partial or "") if broken.seam is None else broken.seam.text
        failure.partial = None  # it is in the text
        failure.__traceback__ = None  # its frames lead back to the trip, which keeps it: a circle
        while frame is not None and trip.spoken and self._goes_on(failure):
            to = self._goers().pop(0)
            request = self._asked(to, self._text)
            if request is None:
                continue
            leg = Attempt(to, "failover", f"goes on where {', '.join(trip.tried)} broke off")
            trip.several = True
            try:
                stream = await self._opener.open(trip, leg, request)
            except OpenAIError as error:
                trip.failed(leg, error)
                continue
            place = trip.places.get(to.provider)
            repeats = request.operation == "chat" and not (
                isinstance(place, Endpoint) and place.dialect == "anthropic"
            )
            seam = StreamSplice(
                frame, self._text, repeated=repeats, spent=[each.usage for each in trip.parts]
            )
            trip.route = trip.routed(leg)
            self._now = AttemptStream(leg, stream, stream, (), seam)
            return self._now
        try:
            raise trip.verdict(failure)
        finally:
            del failure  # as above
