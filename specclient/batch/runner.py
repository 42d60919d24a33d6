"""Execution of batch lines: concurrent, each id once, within a budget."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, closing, nullcontext
from decimal import Decimal
from typing import Any

from specclient.batch.budget import BatchBudget
from specclient.batch.line_index import LineIndex
from specclient.batch.lines import BatchDefaults, BatchLine, PromptForm, duplicate_line, parse_line
from specclient.batch.records import Record, answered_record, failed_record, refused_record
from specclient.batch.source import BatchSource, numbered_lines
from specclient.client.async_client import AsyncOpenAI
from specclient.client.core import ClientCore
from specclient.config import Settings
from specclient.errors import BudgetExceededError, ConfigurationError
from specclient.types.policy import Policy

#: Seconds for calls in flight to finish after a batch is stopped.
GRACE_S = 30.0
_SKIPS_AT_ONCE = 256


async def run(
    source: BatchSource,
    *,
    client: AsyncOpenAI | None = None,
    model: str | None = None,
    policy: Policy | str | None = None,
    tags: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    form: PromptForm | None = None,
    concurrency: int = 8,
    ordered: bool = False,
    max_cost: Decimal | float | str | None = None,
    stop: asyncio.Event | None = None,
    grace_s: float = GRACE_S,
) -> AsyncGenerator[Record, None]:
    """Execute lines and yield a record of each, including failed lines.

    Args:
        source: a path, a binary stream, or a sync or async iterable of lines (bytes, strings or mappings).
            It is read ahead of the calls by ``concurrency`` lines.
        client: the client to use; None makes one for this batch.
        model: model of all lines, even if they name another. None uses the model of each line, else
            ``default_model`` of the configuration.
        policy: routing policy of every line, which also chooses the model.
        tags: tags of every call in the ledger.
        params: parameters of lines that do not set them and whose API method has them.
        form: ``text`` completes a plain ``prompt``, ``chat`` sends it as a user message. None uses text for
            local models and chat for all others.
        concurrency: maximum number of calls in flight.
        ordered: yield records in the order of the lines instead of as they finish; a slow line then delays
            the lines after it.
        max_cost: maximum dollars; see :class:`specclient.batch.budget.BatchBudget`.
        stop: when set, no more lines are sent. Calls in flight have ``grace_s`` seconds to finish; calls
            that take longer have no record.
        grace_s: see ``stop``.

    Raises:
        BudgetExceededError: ``max_cost`` is reached; raised after the records of all lines that were sent.
        ConfigurationError: an argument is invalid, the source cannot be read, or there is a ``max_cost``
            but no price for a model.
    """
    async with AsyncOpenAI() if client is None else nullcontext(client) as used_client:
        with closing(LineIndex()) as ids:
            defaults = batch_defaults(
                used_client.settings, model=model, policy=policy, form=form, params=params, tags=tags
            )
            runner = BatchRunner(
                used_client.core,
                source,
                defaults,
                concurrency=concurrency,
                ordered=ordered,
                max_cost=max_cost,
                ids=ids,
                grace_s=grace_s,
            )
            async with aclosing(runner.records(stop)) as records:
                async for record in records:
                    yield record


def batch_defaults(
    settings: Settings,
    *,
    model: str | None,
    policy: Policy | str | None,
    form: PromptForm | None,
    params: Mapping[str, Any] | None,
    tags: Mapping[str, str] | None,
) -> BatchDefaults:
    """Return the arguments that apply to every line."""
    return BatchDefaults(
        default_model=settings.default_model,
        model=model,
        policy=settings.policy_named(policy) if isinstance(policy, str) else policy,
        form=form,
        params=params or {},
        tags=tags or {},
    )


class BatchRunner:
    """One run over a source; its arguments are those of :func:`run`, and ``ids``, the lines that are done.

    Attributes:
        budget: the budget of the batch.
        read_bytes: bytes read from the source so far.
        skipped: lines that an earlier run has done.
        complete: whether every line has a record.
    """

    def __init__(
        self,
        core: ClientCore,
        source: BatchSource,
        defaults: BatchDefaults,
        *,
        concurrency: int = 8,
        ordered: bool = False,
        max_cost: Decimal | float | str | None = None,
        spent: Decimal = Decimal(0),
        ids: LineIndex,
        grace_s: float = GRACE_S,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigurationError(f"concurrency is {concurrency!r}; it must be a whole number, 1 or more")
        self.budget = BatchBudget(dollars_of(max_cost), spent, core)
        self.read_bytes = 0
        self.skipped = 0
        self.complete = False
        self._core = core
        self._source = source
        self._defaults = defaults
        self._concurrency = concurrency
        self._ordered = ordered
        self._grace_s = grace_s
        self._ids = ids
        self._wake = asyncio.Event()
        self._in_flight: dict[asyncio.Task[Record], None] = {}
        self._finished: deque[asyncio.Task[Record]] = deque()
        self._pending: tuple[BatchLine, Decimal | None] | None = None
        self._over = self._exhausted = False
        self._failure: Exception | None = None

    async def records(self, stop: asyncio.Event | None = None) -> AsyncGenerator[Record, None]:
        """Yield the records; see :func:`run`."""
        loop = asyncio.get_running_loop()
        lines = self._lines()
        reading: asyncio.Task[BatchLine | None] | None = None
        stopping = self._watch(asyncio.ensure_future(_never() if stop is None else stop.wait()))
        deadline: float | None = None
        try:
            while True:
                self._wake.clear()
                if stopping.done() and deadline is None:
                    self._over, deadline = True, loop.time() + self._grace_s
                    loop.call_later(self._grace_s, self._wake.set)
                if reading is not None and reading.done():
                    self._take(reading)
                    reading = None
                self._launch()
                if not self._over and self._pending is None and reading is None:
                    reading = self._watch(asyncio.ensure_future(_next(lines)))
                while (task := self._next_finished()) is not None:
                    yield task.result()
                    self._wake.set()  # another line can be sent
                late = deadline is not None and loop.time() >= deadline
                if late or (self._over and not self._in_flight):
                    self.complete = self._exhausted and not self._in_flight
                    break
                await self._wake.wait()
        finally:
            left = [each for each in (stopping, reading, *self._in_flight) if each is not None]
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await lines.aclose()
        if self._failure is not None:
            raise self._failure

    async def _lines(self) -> AsyncGenerator[BatchLine, None]:
        """Yield the lines to execute, each id once."""
        async with aclosing(numbered_lines(self._source)) as source:
            async for number, raw, end in source:
                self.read_bytes = end
                line = parse_line(number, raw, self._defaults)
                first = None if line.problem is not None else self._ids.add_line(line.key, number)
                if first is not None:
                    line = duplicate_line(line, first)
                if not self._ids.is_done(line.key):
                    yield line
                    continue
                self.skipped += 1
                if self.skipped % _SKIPS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # lets signal handlers run

    def _take(self, reading: asyncio.Task[BatchLine | None]) -> None:
        """Take the line that has been read, or note the end of the source."""
        try:
            line = reading.result()
            if line is None:
                self._over = self._exhausted = True
                return
            self._pending = line, None if line.request is None else self.budget.estimate(line.request)
        except Exception as error:  # noqa: BLE001 - raised after all calls in flight have finished
            self._fail(error)

    def _launch(self) -> None:
        """Send the pending line if concurrency and budget allow it."""
        if self._pending is None or self._over or len(self._in_flight) >= self._concurrency:
            if self._over:
                self._pending = None
            return
        line, estimate = self._pending
        try:
            if line.request is not None and not self.budget.fits(estimate, alone=not self._in_flight):
                return
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
            return
        self._pending = None
        self.budget.reserve(estimate)
        task = asyncio.create_task(self._serve(line, estimate))
        self._in_flight[task] = None
        task.add_done_callback(self._finish)

    async def _serve(self, line: BatchLine, estimate: Decimal | None) -> Record:
        """Execute one line and return its record; errors become records."""
        if line.request is None:
            return refused_record(line)
        call = None
        try:
            record = answered_record(line, await self._core.pipeline.call(line.request))
            call = record.call
        except Exception as error:  # noqa: BLE001 - one line must not stop the others
            record = failed_record(line, error)
            if isinstance(error, BudgetExceededError):  # the client would refuse all other lines, too
                self._fail(error)
        try:
            self.budget.settle(estimate, call)
        except ConfigurationError as error:
            self._fail(error)
        return record

    def _fail(self, error: Exception) -> None:
        """Stop sending lines; the error is raised at the end."""
        self._failure, self._over, self._pending = self._failure or error, True, None
        self._wake.set()

    def _finish(self, task: asyncio.Task[Record]) -> None:
        if not self._ordered:
            self._finished.append(task)
        self._wake.set()

    def _next_finished(self) -> asyncio.Task[Record] | None:
        """Remove and return a finished task whose record is next; None if there is none."""
        if self._ordered:
            task = next(iter(self._in_flight), None)
            if task is None or not task.done():
                return None
        else:
            task = self._finished.popleft() if self._finished else None
        if task is not None:
            del self._in_flight[task]
        return task

    def _watch(self, task: asyncio.Task[Any]) -> asyncio.Task[Any]:
        task.add_done_callback(lambda _: self._wake.set())
        return task


async def _next(lines: AsyncIterator[BatchLine]) -> BatchLine | None:
    return await anext(lines, None)


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


def dollars_of(value: Decimal | float | str | None) -> Decimal | None:
    """Return an amount in dollars.

    Raises:
        ConfigurationError: the value is invalid.
    """
    if value is None:
        return None
    try:
        dollars = Decimal(str(value))
    except ArithmeticError:
        dollars = Decimal("nan")
    if not dollars.is_finite() or dollars < 0:
        raise ConfigurationError(f"max_cost is {value!r}; it must be an amount in dollars, 0 or more")
    return dollars
