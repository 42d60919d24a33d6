"""Books the lines of batch outputs that a caller reads, each once.

A caller reads the output of a batch job as a file (``client.files.content``), or from Anthropic's
``GET /messages/batches/{id}/results`` by path. The bytes pass unchanged; the lines in them become rows of the
ledger. A line is one row however often it is read: see :mod:`specclient.call.batch_lines`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from specclient.call.batch_lines import BatchOutput, parse_output, record_of
from specclient.call.batch_paths import JOBS, output_id, output_name
from specclient.call.recorded_calls import RecordedCalls
from specclient.call.result import CallResult
from specclient.prices.prices import Prices
from specclient.providers import Endpoint
from specclient.runtime.event_loop import run_in_thread
from specclient.runtime.forks import register_fork_reset
from specclient.types.call import Call
from specclient.types.request import PerCallOptions, Request

if TYPE_CHECKING:
    from specclient.budgets.late_charges import LateCharges

__all__ = ["BatchOutputs", "OutputReader"]

_NO_OPTIONS = PerCallOptions()

#: Bytes of the longest line that is read; a longer one is passed on and not booked.
_LONGEST_LINE = 2**25
#: Files whose job is remembered.
_MOST_FILES = 10_000
#: Bytes that are parsed at a time, and calls that are recorded at a time.
_PIECE, _AT_ONCE = 2**20, 1000


class OutputReader:
    """Reads the lines of one output as its bytes come.

    Only a file whose first line is that of an output has any; the lines of other files are not parsed.

    Args:
        scope: the id of the file or the job.
        job: the value of the lines' tag.
        options: of the request that reads it; its tags and session are those of the lines.

    Attributes:
        name: the name of the output for budgets.
        booked: the number of lines that have been recorded.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        prices: Prices,
        *,
        scope: str,
        job: str,
        options: PerCallOptions = _NO_OPTIONS,
    ) -> None:
        self._endpoint, self._prices = endpoint, prices
        self._scope, self._job, self._options = scope, job, options
        self.name, self.booked = output_name(endpoint.name, scope), 0
        self._rest: list[bytes] = []  # of the line that is not complete
        self._size = 0  # of the rest
        self._skips = False  # the rest of a line that is too long
        self._is_output: bool | None = None  # None before the first line

    @property
    def is_wanted(self) -> bool:
        """Whether further bytes can hold lines of an output."""
        return self._is_output is not False

    def feed(self, piece: bytes) -> list[Call]:
        """Return the records of the lines that are complete with these bytes."""
        if self._is_output is None and not self._rest and piece.lstrip()[:1] not in (b"", b"{"):
            self._is_output = False
        if not self.is_wanted:
            return []
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = b"" if self._skips else b"".join((*self._rest, lines[0]))
            self._rest, self._size, self._skips = [], 0, False
        if not self._skips and rest:
            self._rest.append(rest)
            self._size += len(rest)
        if self._size > _LONGEST_LINE:
            self._rest, self._size, self._skips = [], 0, True
        return self._records(lines)

    def end(self) -> list[Call]:
        """Return the record of a last line without a line break; none if it is cut short."""
        rest, self._rest = b"".join(self._rest), []
        return self._records([rest])

    def _records(self, lines: Sequence[bytes]) -> list[Call]:
        found = []
        for raw in lines:
            if not self.is_wanted or not raw.strip():
                continue
            line = parse_output(raw)
            if self._is_output is None:
                self._is_output = line is not None
            if line is not None:
                found.append(self._record(line))
        return found

    def _record(self, line: BatchOutput) -> Call:
        options = self._options
        call = record_of(
            line, self._endpoint, self._prices, scope=self._scope, job=self._job, tags=options.tags
        )
        return call if options.session is None else replace(call, session=options.session)


class BatchOutputs:
    """Books the outputs that the callers of one client read.

    Args:
        calls: receives the records.
        prices: computes what a line cost.
        late_charges: returns the budgets that count the lines; None for no budgets.
    """

    def __init__(
        self, calls: RecordedCalls, prices: Prices, late_charges: Callable[[], LateCharges | None]
    ) -> None:
        self._calls, self._prices, self._late_charges = calls, prices, late_charges
        self._jobs: OrderedDict[str, str] = OrderedDict()  # by file
        self._lock = threading.Lock()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may have held."""
        self._lock = threading.Lock()

    async def note(self, request: Request, result: CallResult) -> None:
        """Book the lines of an output, or remember the files of the jobs that an answer describes."""
        if request.method.name.startswith(JOBS):
            self._remember(result.value)
        elif result.reply is not None and (reader := self._reader(request)) is not None:
            await self._calls.ensure_recording()
            view, begin = memoryview(result.reply.content), 0
            while begin < len(view) and reader.is_wanted:
                piece, begin = bytes(view[begin : begin + _PIECE]), begin + _PIECE
                await self._book(reader, partial(reader.feed, piece))
            await self._book(reader, reader.end)

    async def passing(self, request: Request, source: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Yield what ``source`` yields, and book the lines in its bytes.

        Args:
            source: yields the response, then lists of bytes.
        """
        reader = self._reader(request)
        if reader is not None:
            await self._calls.ensure_recording()
        async with aclosing(source):
            yield await anext(source)
            async for pieces in source:
                for piece in pieces:
                    if reader is not None and reader.is_wanted:
                        await self._book(reader, partial(reader.feed, piece))
                yield pieces
            if reader is not None:
                await self._book(reader, reader.end)

    def _reader(self, request: Request) -> OutputReader | None:
        """Return a reader for the answer of a request; None if it cannot be an output."""
        scope, places = output_id(request), self._calls.destinations
        endpoint = places.get(request.provider or places.default)
        if scope is None or not isinstance(endpoint, Endpoint):
            return None
        job = self._jobs.get(scope, scope)
        return OutputReader(endpoint, self._prices, scope=scope, job=job, options=request.options)

    def _remember(self, answer: Any) -> None:
        with self._lock:
            for job in getattr(answer, "data", None) or [answer]:
                for name in ("output_file_id", "error_file_id"):
                    file, identity = getattr(job, name, None), getattr(job, "id", None)
                    if isinstance(file, str) and isinstance(identity, str):
                        self._jobs[file] = identity
            while len(self._jobs) > _MOST_FILES:
                self._jobs.popitem(last=False)

    async def _book(self, reader: OutputReader, read: Callable[[], list[Call]]) -> None:
        """Record and charge the calls that ``read`` returns, which runs in a thread."""
        calls, late = await run_in_thread(read), self._late_charges()
        for begin in range(0, len(calls), _AT_ONCE):
            some = calls[begin : begin + _AT_ONCE]
            await self._calls.report_all(some)
            if late is not None:
                await late.charge(reader.name, list(enumerate(some, reader.booked)))
            reader.booked += len(some)
