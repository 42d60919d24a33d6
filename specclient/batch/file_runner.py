"""Batches from file to file, with a summary; resumes an earlier run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, closing, nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from specclient.batch.line_index import LineIndex
from specclient.batch.lines import PromptForm
from specclient.batch.records import Record
from specclient.batch.runner import GRACE_S, BatchRunner, batch_defaults
from specclient.batch.source import BinaryStream
from specclient.batch.writer import RecordFile, RecordStream
from specclient.client.async_client import AsyncOpenAI
from specclient.errors import BudgetExceededError, ConfigurationError
from specclient.types.policy import Policy

_REASONS, _NUMBERS, _LONGEST = 20, 3, 200


@dataclass(slots=True)
class BatchSummary:
    """Progress and result of a batch.

    Attributes:
        answered: lines answered by this run.
        failed: lines that failed in this run.
        skipped: lines done by earlier runs.
        failed_before: skipped lines that had failed and were not retried.
        cost: dollars, including earlier runs.
        unpriced: answers of unknown cost, which are not in ``cost``.
        seconds: duration of this run.
        read_bytes: bytes read from the source.
        reasons: reasons of failures, each with the number of lines and the first line numbers.
        stopped: why some lines were not sent; None if all were sent.
    """

    answered: int = 0
    failed: int = 0
    skipped: int = 0
    failed_before: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0
    seconds: float = 0.0
    read_bytes: int = 0
    reasons: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    stopped: str | None = None

    def add(self, record: Record) -> None:
        """Count a record."""
        if record.ok:
            self.answered += 1
            return
        self.failed += 1
        reason = (record.reason or "unknown").removeprefix(f"line {record.number} ")[:_LONGEST]
        if reason not in self.reasons and len(self.reasons) >= _REASONS:
            reason = "other reasons"
        count, numbers = self.reasons.get(reason, (0, ()))
        self.reasons[reason] = count + 1, numbers if count >= _NUMBERS else (*numbers, record.number)


async def run_file(
    source: str | Path | BinaryStream,
    out: str | Path | BinaryIO,
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
    retry_failed: bool = True,
    stop: asyncio.Event | None = None,
    grace_s: float = GRACE_S,
    watch: Callable[[BatchSummary], None] = lambda _: None,
) -> BatchSummary:
    """Execute the lines of a file and append a record of each to another file.

    Lines with an answered record in ``out`` are skipped. A line is identified by its ``custom_id`` or
    ``id``, else by its number. See :mod:`specclient.batch.writer` for the effect of a crash or a power
    failure. With ``ordered``, retried lines follow the lines of earlier runs.

    Args:
        source: see :func:`specclient.batch.run`; not an iterable.
        out: a path or a binary stream. Only a regular file can be resumed.
        max_cost: dollars for all records in ``out``.
        retry_failed: whether to retry lines that failed in an earlier run.
        watch: called with the summary after every record.

    Other arguments are those of :func:`specclient.batch.run`.

    Raises:
        ConfigurationError: an argument or file is invalid, or there is a ``max_cost`` but no price for a
            model.
        OSError: a record cannot be written, for example because the disk is full. Calls in flight are
            cancelled; a later run resumes.
    """
    begun = time.monotonic()
    with closing(LineIndex()) as ids, closing(_open(source, out, ids, retry_failed=retry_failed)) as output:
        summary = BatchSummary(failed_before=output.before.failed)
        async with AsyncOpenAI() if client is None else nullcontext(client) as used_client:
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
                spent=output.before.cost,
                ids=ids,
                grace_s=grace_s,
            )
            progress = _Progress(runner, output, summary, begun, watch)
            await progress.write_records(stop)
    return summary


@dataclass(frozen=True, slots=True)
class _Progress:
    """Writes the records of a batch, and keeps its summary up to date.

    Attributes:
        begun: when the run began, by ``time.monotonic``.
        watch: called with the summary after every record.
    """

    runner: BatchRunner
    output: RecordFile | RecordStream
    summary: BatchSummary
    begun: float
    watch: Callable[[BatchSummary], None]

    async def write_records(self, stop: asyncio.Event | None) -> None:
        """Execute all lines, or those before ``stop`` is set or the budget is spent."""
        summary = self.summary
        try:
            async with aclosing(self.runner.records(stop)) as records:
                async for record in records:
                    await self.output.write(record.line(), time.monotonic())
                    summary.add(record)
                    self._update()
                    self.watch(summary)
        except BudgetExceededError as error:
            summary.stopped = str(error)
        self._update()
        if not self.runner.complete and summary.stopped is None:
            summary.stopped = "interrupted; run it again to resume"

    def _update(self) -> None:
        summary, runner = self.summary, self.runner
        summary.skipped, summary.read_bytes = runner.skipped, runner.read_bytes
        summary.cost, summary.unpriced = runner.budget.spent, runner.budget.unpriced
        summary.seconds = time.monotonic() - self.begun


def checked_out(source: str | Path | BinaryStream, out: str | Path) -> Path:
    """Return the path of an output.

    Raises:
        ConfigurationError: it is the source, or there is no source.
    """
    path = Path(out)
    if isinstance(source, str | Path):
        if not Path(source).exists():
            raise ConfigurationError(f"there is no file {source}")
        if path.exists() and path.samefile(source):
            raise ConfigurationError(f"{out} is the source, so records cannot be written to it")
    return path


def _open(
    source: str | Path | BinaryStream, out: str | Path | BinaryIO, ids: LineIndex, *, retry_failed: bool
) -> RecordFile | RecordStream:
    """Open the output.

    Raises:
        ConfigurationError: it cannot be written, or it is the source.
    """
    if not isinstance(out, str | Path):
        return RecordStream(out)
    path = checked_out(source, out)
    if path.exists() and not path.is_file():
        try:
            return RecordStream(path.open("wb"), owned=True)
        except OSError as error:
            raise ConfigurationError(f"cannot write {out}: {error.strerror or error}") from None
    return RecordFile(path, ids, retry_failed=retry_failed)
