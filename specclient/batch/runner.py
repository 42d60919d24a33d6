"""Turn lines into records: so many calls at a time, each line once, within a budget, until told to stop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, nullcontext
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
from specclient.types.route import Policy

#: Seconds that lines in flight are waited for when a batch is told to stop.
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
    """Serve lines and yield a record of each; a line that fails is a record, too.

    Args:
        source: a path, a binary stream, or lines (bytes, text or mappings) from an iterable of either kind;
            it is read as calls are made, ``concurrency`` lines ahead.
        client: whose connections, retries, pacing and ledger are used; None makes one for this batch.
        model: asked for by all lines, whatever they name; None leaves it to them, and to ``default_model`` of
            the configuration.
        policy: routes every line; it chooses the model, too.
        tags: label every call in the ledger.
        params: for lines whose call takes them, and that do not set them.
        form: ``text`` continues a plain ``prompt``, ``chat`` sends it as a user's message; None does the
            first with local models, the second with all others.
        concurrency: calls at a time.
        ordered: yield records in the order of the lines, not as they finish; a slow line then holds up those
            behind it.
        max_cost: dollars; no line is sent that may pass it (see
        :class:`specclient.batch.budget.BatchBudget`).
        stop: once set, no more lines are sent; those in flight have ``grace_s`` seconds, and then no record.

    Raises:
        BudgetExceededError: ``max_cost`` is reached, after the records of all lines that were sent.
        ConfigurationError: an unusable argument, a source that cannot be read, or ``max_cost`` with a model
            whose price is unknown.
    """
    async with AsyncOpenAI() if client is None else nullcontext(client) as own:
        ask = batch_defaults(own.settings, model=model, policy=policy, form=form, params=params, tags=tags)
        running = BatchRunner(
            own.core,
            source,
            ask,
            concurrency=concurrency,
            ordered=ordered,
            max_cost=max_cost,
            grace_s=grace_s,
        )
        async with aclosing(running.records(stop)) as records:
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
    """Return what holds for every line, by a client's settings."""
    return BatchDefaults(
        default_model=settings.default_model,
        model=model,
        policy=settings.policy_named(policy) if isinstance(policy, str) else policy,
        form=form,
        params=params or {},
        tags=tags or {},
    )


class BatchRunner:
    """One run over a source.

    Attributes:
        read_bytes: of the source, so far.
        skipped: lines that an earlier run has done.
        complete: whether every line has its record.
    """

    def __init__(
        self,
        core: ClientCore,
        source: BatchSource,
        ask: BatchDefaults,
        *,
        concurrency: int = 8,
        ordered: bool = False,
        max_cost: Decimal | float | str | None = None,
        spent: Decimal = Decimal(0),
        ids: LineIndex | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigurationError(f"concurrency is {concurrency!r}; it must be a whole number, 1 or more")
        self.budget = BatchBudget(_dollars(max_cost), spent, core)
        self.read_bytes = 0
        self.skipped = 0
        self.complete = False
        self._core = core
        self._source = source
        self._ask = ask
        self._concurrency = concurrency
        self._ordered = ordered
        self._grace_s = grace_s
        self._ids = ids or LineIndex()
        self._moved = asyncio.Event()
        self._flying: dict[asyncio.Task[Record], None] = {}
        self._landed: deque[asyncio.Task[Record]] = deque()
        self._held: tuple[BatchLine, Decimal | None] | None = None
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
                self._moved.clear()
                if stopping.done() and deadline is None:
                    self._over, deadline = True, loop.time() + self._grace_s
                    loop.call_later(self._grace_s, self._moved.set)
                if reading is not None and reading.done():
                    self._take(reading)
                    reading = None
                self._launch()
                if not self._over and self._held is None and reading is None:
                    reading = self._watch(asyncio.ensure_future(_next(lines)))
                while (task := self._next_landed()) is not None:
                    yield task.result()
                    self._moved.set()  # there is room for another
                late = deadline is not None and loop.time() >= deadline
                if late or (self._over and not self._flying):
                    self.complete = self._exhausted and not self._flying
                    break
                await self._moved.wait()
        finally:
            left = [each for each in (stopping, reading, *self._flying) if each is not None]
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await lines.aclose()
        if self._failure is not None:
            raise self._failure

    async def _lines(self) -> AsyncGenerator[BatchLine, None]:
        """Yield the lines that are to be served, each id once."""
        async with aclosing(numbered_lines(self._source)) as source:
            async for number, raw, end in source:
                self.read_bytes = end
                line = parse_line(number, raw, self._ask)
                first = None if line.problem is not None else self._ids.meet(line.key, number)
                if first is not None:
                    line = duplicate_line(line, first)
                if not self._ids.is_done(line.key):
                    yield line
                    continue
                self.skipped += 1
                if self.skipped % _SKIPS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # for a signal to be heard

    def _take(self, reading: asyncio.Task[BatchLine | None]) -> None:
        """Take the line that has been read, or the end of all lines."""
        try:
            line = reading.result()
            if line is None:
                self._over = self._exhausted = True
                return
            self._held = line, None if line.request is None else self.budget.estimate(line.request)
        except Exception as error:  # noqa: BLE001 - raised once all that is in flight has landed
            self._fail(error)

    def _launch(self) -> None:
        """Send the line that is held, if there is room for it, and money."""
        if self._held is None or self._over or len(self._flying) >= self._concurrency:
            if self._over:
                self._held = None
            return
        line, estimate = self._held
        try:
            if line.request is not None and not self.budget.fits(estimate, alone=not self._flying):
                return
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
            return
        self._held = None
        self.budget.reserve(estimate)
        task = asyncio.create_task(self._serve(line, estimate))
        self._flying[task] = None
        task.add_done_callback(self._land)

    async def _serve(self, line: BatchLine, estimate: Decimal | None) -> Record:
        """Serve one line; whatever goes wrong is its own."""
        if line.request is None:
            return refused_record(line)
        call = None
        try:
            record = answered_record(line, await self._core.pipeline.call(line.request))
            call = record.call
        except Exception as error:  # noqa: BLE001 - one line is not to lose the others
            record = failed_record(line, error)
            if isinstance(error, BudgetExceededError):  # the client's own: no other line would be sent either
                self._fail(error)
        try:
            self.budget.settle(estimate, call)
        except ConfigurationError as error:
            self._fail(error)
        return record

    def _fail(self, error: Exception) -> None:
        """Send no more lines; the error is raised at the end."""
        self._failure, self._over, self._held = self._failure or error, True, None
        self._moved.set()

    def _land(self, task: asyncio.Task[Record]) -> None:
        if not self._ordered:
            self._landed.append(task)
        self._moved.set()

    def _next_landed(self) -> asyncio.Task[Record] | None:
        """Return a task whose record is due, None where none is; its place becomes free."""
        if self._ordered:
            task = next(iter(self._flying), None)
            if task is None or not task.done():
                return None
        else:
            task = self._landed.popleft() if self._landed else None
        if task is not None:
            del self._flying[task]
        return task

    def _watch(self, task: asyncio.Task[Any]) -> asyncio.Task[Any]:
        task.add_done_callback(lambda _: self._moved.set())
        return task


async def _next(lines: AsyncIterator[BatchLine]) -> BatchLine | None:
    return await anext(lines, None)


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


def _dollars(value: Decimal | float | str | None) -> Decimal | None:
    """Return an amount of money.

    Raises:
        ConfigurationError: it is none.
    """
    if value is None:
        return None
    try:
        dollars = Decimal(str(value))
    except ArithmeticError:
        dollars = Decimal("nan")
    if not dollars.is_finite() or dollars < 0:
        raise ConfigurationError(f"max_cost is {value!r}; it must be dollars, 0 or more")
    return dollars
