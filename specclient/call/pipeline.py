"""The call pipeline: every request of a client passes through :class:`Pipeline`.

The steps of a call, in order:

1. ``execute`` (or ``stream``, ``stream_bytes``): calls with the response cache go to
   :mod:`specclient.call.cached.calls`, which answers them, or makes them as follows. Calls whose route is
   chosen go to the failover executor (:mod:`specclient.call.failover.executor`), which makes one or more
   attempts; all others are one attempt. Calls on which no model works go to :mod:`specclient.call.unmetered`
   and are not recorded.
2. ``attempt``: a request with a strategy goes to the strategy executor
   (:mod:`specclient.call.strategies.executor`), which sends one or more sub-calls; all others are sent once.
3. ``send`` (:mod:`specclient.call.recorded_calls`): decide the destination, check the request's permit,
   reserve the budget and open the record (``open_record``); encode, send and decode
   (:mod:`specclient.call.metered`); close the record and hand it to the observers (``close_record``). The
   chunks of a stream are noted in the record on their way (:mod:`specclient.call.recorded_stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from specclient.call import unmetered
from specclient.call.batch_paths import may_hold_batches, shows_objects
from specclient.call.errors import bodiless_answer_error, strategy_bytes_error
from specclient.call.observers import Observer
from specclient.call.recorded_calls import RecordedCalls, RecordingOptions, started
from specclient.call.result import CallResult
from specclient.call.stored_methods import STORED_METHODS, is_answered_here
from specclient.call.stream import AsyncStream
from specclient.errors import ConfigurationError
from specclient.http_transport.http import Transport
from specclient.prices.prices import Prices
from specclient.routing.router import AUTO, Router
from specclient.runtime.made_once import made_once
from specclient.types.call import Call
from specclient.types.model import Model
from specclient.types.request import Request

if TYPE_CHECKING:
    from specclient.budgets.late_charges import LateCharges
    from specclient.call.answer_judge import AnswerJudge
    from specclient.call.batch_outputs import BatchOutputs
    from specclient.call.booked_objects import BookedObjects
    from specclient.call.cached.calls import CachedCalls
    from specclient.call.cached.flights import Flights
    from specclient.call.failover.executor import FailoverExecutor, FailoverState
    from specclient.call.responses.keeper import ResponseKeeper
    from specclient.call.responses.stored_answers import StoredAnswers
    from specclient.call.strategies.executor import StrategyExecutor
    from specclient.call.subcalls import Subcall
    from specclient.config.judge_table import JudgeSettings
    from specclient.response_cache.cache import ResponseCache
    from specclient.runtime.background_tasks import BackgroundTasks
    from specclient.stored.store import ObjectStore
    from specclient.types.cache_options import CacheOptions

__all__ = ["Judging", "Observer", "Pipeline"]


class Judging(NamedTuple):
    """How answers are judged; see :class:`specclient.call.answer_judge.AnswerJudge`."""

    settings: JudgeSettings
    score: Callable[[str, float], None]
    tasks: BackgroundTasks


def _nothing_stored() -> None:
    return None


class Pipeline(RecordedCalls):
    """Serves the requests of one client.

    Args:
        router: chooses the destination of a request.
        transport: sends encoded requests over HTTP.
        prices: computes what a call cost.
        observers: called with each finished call; see :class:`RecordedCalls`.
        failover_state: returns the state of routed calls, which copies of a client share.
        stored: returns the stored responses and conversations; None if nothing is stored.
        cache: returns the response cache with its calls in flight, which copies of a client share.
        cache_default: the options for the response cache of calls without their own; None for no cache.
        judging: how a sample of routed answers is judged, and what receives the scores; None for no judge.
        options: further arguments of :class:`RecordedCalls`.
    """

    def __init__(
        self,
        router: Router,
        transport: Transport,
        prices: Prices,
        observers: Sequence[Observer],
        *,
        failover_state: Callable[[], FailoverState],
        stored: Callable[[], ObjectStore | None] = _nothing_stored,
        cache: Callable[[], tuple[ResponseCache, Flights]] | None = None,
        cache_default: CacheOptions | None = None,
        judging: Judging | None = None,
        **options: Unpack[RecordingOptions],
    ) -> None:
        super().__init__(router, transport, prices, observers, **options)
        self._failover_state = failover_state
        self._stored_source = stored
        self._cache_source = cache
        self._cache_default = cache_default
        self._judging = judging

    # Entry points

    async def call(self, request: Request) -> Any:
        """Serve a request and return the decoded answer."""
        return (await self.execute(request)).unwrap()

    async def execute(self, request: Request) -> CallResult:
        """Serve a request and return its complete answer with the HTTP response.

        A response that cannot be decoded is an error in the result and is not raised: callers that want the
        raw response still get it.
        """
        if not request.method.metered:
            if self._is_answered_here(request):
                return await self._stored.execute(request)
            await self.ensure_transport()
            result = await unmetered.execute(request, self.destinations, self.transport)
            if may_hold_batches(request):
                await self._outputs.note(request, result)
            elif shows_objects(request):
                await self.objects.note(request, result)
            return result
        if request.operation == "response":
            return await self._keeper.execute(request, self._execute)
        return await self._execute(request)

    async def _execute(self, request: Request) -> CallResult:
        if (options := request.options.cache) is None:
            options = self._cache_default
        if options:
            return await self._cached.execute(request, options, self._execute)
        if self._is_routed(request):
            result = await self._failover.execute(request)
            if result.error is None and self._is_judged(request):
                self._judge.note_answer(request, result.value)
            return result
        return await self.attempt(request)

    async def stream(self, request: Request) -> AsyncStream[Any]:
        """Serve a request as a stream of chunks or events; return once the answer has begun."""
        if not request.method.metered:
            if self._is_answered_here(request):
                return await started(self._stored.stream(request), _no_call)
            await self.ensure_transport()
            return await started(unmetered.stream(request, self.destinations, self.transport), _no_call)
        if request.operation == "response":
            return await self._keeper.stream(request, self._stream)
        return await self._stream(request)

    async def _stream(self, request: Request) -> AsyncStream[Any]:
        if (options := request.options.cache) is None:
            options = self._cache_default
        if options:
            return await self._cached.stream(request, options, self._stream)
        if self._is_routed(request):
            stream = await self._failover.stream(request)
            return self._judge.watched(request, stream) if self._is_judged(request) else stream
        return await self.attempt_stream(request)

    async def stream_bytes(self, request: Request) -> AsyncStream[bytes]:
        """Serve a request as the bytes of the response's body; return once the answer has begun."""
        if request.strategy is not None:
            raise strategy_bytes_error()
        if not request.method.metered:
            if self._is_answered_here(request):
                raise bodiless_answer_error()
            await self.ensure_transport()
            source = unmetered.stream_bytes(request, self.destinations, self.transport)
            if may_hold_batches(request):
                source = self._outputs.passing(request, source)
            elif shows_objects(request):
                source = self.objects.passing(request, source)
            return await started(source, _no_call)
        if request.operation == "response":
            return await self._keeper.stream_bytes(request, self._stream_bytes)
        return await self._stream_bytes(request)

    async def _stream_bytes(self, request: Request) -> AsyncStream[bytes]:
        if self._is_routed(request):
            return await self._failover.stream_bytes(request)
        return await self.send_bytes(request)

    def _is_answered_here(self, request: Request) -> bool:
        return request.method.name in STORED_METHODS and is_answered_here(request, self.destinations)

    @made_once
    def _keeper(self) -> ResponseKeeper:
        """Keeps responses; imported with the first one."""
        from specclient.call.responses.keeper import ResponseKeeper  # noqa: PLC0415

        return ResponseKeeper(lambda: self.router, self._stored_source)

    @made_once
    def _stored(self) -> StoredAnswers:
        """Answers calls to what is stored here; imported with the first one."""
        from specclient.call.responses.stored_answers import StoredAnswers  # noqa: PLC0415

        return StoredAnswers(self._stored_source)

    @made_once
    def _outputs(self) -> BatchOutputs:
        """Books the lines of batch outputs; imported with the first one."""
        from specclient.call.batch_outputs import BatchOutputs  # noqa: PLC0415

        return BatchOutputs(self, self._prices, lambda: self.late_charges)

    @made_once
    def objects(self) -> BookedObjects:
        """Books what is billed by itself; imported with the first answer that shows it."""
        from specclient.call.booked_objects import BookedObjects  # noqa: PLC0415

        return BookedObjects(self, self._prices, lambda: self.late_charges)

    @property
    def late_charges(self) -> LateCharges | None:
        """Charges budgets with what is booked later; None without budgets, and then not imported."""
        if self.budgets is None:
            return None
        from specclient.budgets.late_charges import LateCharges  # noqa: PLC0415 - with budgets

        return LateCharges(self.budgets)

    async def list_models(self, provider: str | None = None) -> list[Model]:
        """List the models of an endpoint or an engine; None for the default endpoint."""
        return await unmetered.list_models(provider, self.destinations, self.transport)

    def _is_routed(self, request: Request) -> bool:
        """Return whether the request's route is chosen; the common case, a named model, is decided first."""
        is_named = request.policy is None and not self.router.names_auto(request)
        return not is_named and self.router.kind(request) == AUTO

    def _is_judged(self, request: Request) -> bool:
        """Return whether the answer to a routed request is one of the sample that is judged."""
        return self._judging is not None and self._judge.samples(request, self.router.policy_of(request))

    @made_once
    def _judge(self) -> AnswerJudge:
        """Judges answers; imported with the first routed call of a client with a judge."""
        from specclient.call.answer_judge import AnswerJudge  # noqa: PLC0415

        assert self._judging is not None
        settings, score, tasks = self._judging
        return AnswerJudge(settings, self.execute, score, tasks)

    @made_once
    def _failover(self) -> FailoverExecutor:
        """Executes routed calls; imported with the first one."""
        from specclient.call.failover.executor import FailoverExecutor  # noqa: PLC0415

        return FailoverExecutor(self, self._failover_state(), clock=self._clock)

    @made_once
    def _cached(self) -> CachedCalls:
        """Serves calls with the response cache; imported with the first one."""
        from specclient.call.cached.calls import CachedCalls  # noqa: PLC0415

        if self._cache_source is None:
            raise ConfigurationError("this pipeline has no response cache; leave cache= out")
        return CachedCalls(self, *self._cache_source(), clock=self._clock)

    # One attempt: with the request's strategy, or sent as it is

    async def attempt(self, request: Request, subcall: Subcall | None = None) -> CallResult:
        """Serve a request at one destination, with its strategy if it has one."""
        if request.strategy is not None:
            return await self._strategies.execute(request, subcall)
        return await self.send(request, subcall)

    async def attempt_stream(self, request: Request, subcall: Subcall | None = None) -> AsyncStream[Any]:
        """Serve a request as a stream at one destination, with its strategy if it has one."""
        if request.strategy is not None:
            return await self._strategies.stream(request, subcall)
        return await self.send_stream(request, subcall)

    @made_once
    def _strategies(self) -> StrategyExecutor:
        """Executes strategies; imported with the first request that has one."""
        from specclient.call.strategies.cost_benefit import PredictionHistory  # noqa: PLC0415
        from specclient.call.strategies.executor import StrategyExecutor  # noqa: PLC0415

        return StrategyExecutor(self, self._prices, PredictionHistory(), clock=self._clock)


def _no_call() -> Call:
    raise AttributeError("no model worked on this call, so it has no record")
