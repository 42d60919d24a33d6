"""Runs a file of lines as batch jobs of vendors: sent, polled and written, also across restarts."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, closing, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from specclient.batch.budget import BatchBudget
from specclient.batch.file_runner import BatchSummary, checked_out
from specclient.batch.jobs.job_log import JobLog, VendorJob
from specclient.batch.jobs.line_requests import LineGroup, LineRequests
from specclient.batch.jobs.vendor_apis import JobStatus, VendorApi, api_of
from specclient.batch.line_index import LineIndex
from specclient.batch.lines import BatchDefaults, BatchLine, PromptForm, duplicate_line, parse_line
from specclient.batch.records import Record, answered_record, refused_record, unanswered_record
from specclient.batch.runner import batch_defaults, dollars_of
from specclient.batch.source import BinaryStream, numbered_lines
from specclient.batch.writer import RecordFile
from specclient.call.batch_lines import BatchOutput, decoded_answer, parse_output, record_of
from specclient.call.batch_paths import output_name
from specclient.client.async_client import AsyncOpenAI
from specclient.errors import BudgetExceededError, ConfigurationError
from specclient.prices.tier_rates import BATCH
from specclient.providers import Endpoint
from specclient.types.call import Call
from specclient.types.request import Request

__all__ = ["POLL_S", "run_jobs"]

#: Seconds between two looks at the jobs.
POLL_S = 30.0
#: Calls that are recorded at a time.
_AT_ONCE = 500


async def run_jobs(
    source: str | Path | BinaryStream,
    out: str | Path,
    *,
    client: AsyncOpenAI | None = None,
    model: str | None = None,
    tags: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    form: PromptForm | None = None,
    max_cost: Decimal | float | str | None = None,
    retry_failed: bool = True,
    poll_s: float = POLL_S,
    stop: asyncio.Event | None = None,
    watch: Callable[[BatchSummary], None] = lambda _: None,
) -> BatchSummary:
    """Send the lines of a file as batch jobs of their providers, and append a record of each to another file.

    Lines of one provider, method and model share a job, up to the provider's limits. ``OUT.jobs`` notes the
    jobs, so that a later run finds the jobs of one that was stopped or killed. Each line is a call in the
    ledger, with the tag ``batch`` of its job.

    Args:
        out: a path.
        max_cost: dollars for all records in ``out``; a line is not sent if it could exceed them at the price
            of the batch tier.
        poll_s: seconds between two looks at the jobs.
        stop: when set, the jobs are left alone; a later run goes on.

    Other arguments are those of :func:`specclient.batch.run_file`.

    Raises:
        ConfigurationError: an argument or file is invalid, a provider has no batch API, or there is a
            ``max_cost`` but no price for a model.
        OpenAIError: a request to a provider failed; a later run goes on.
        OSError: a record cannot be written.
    """
    begun, path = time.monotonic(), checked_out(source, out)
    with (
        closing(LineIndex()) as ids,
        closing(RecordFile(path, ids, retry_failed=retry_failed)) as output,
        closing(JobLog(path)) as log,
    ):
        async with AsyncOpenAI() if client is None else nullcontext(client) as used:
            defaults = batch_defaults(
                used.settings, model=model, policy=None, form=form, params=params, tags=tags
            )
            budget = BatchBudget(dollars_of(max_cost), output.before.cost, used.core, tier=BATCH)
            summary = BatchSummary(failed_before=output.before.failed, cost=output.before.cost)
            requests = LineRequests(used.core, used.core.pipeline.late_charges)
            run = _JobRun(used, source, defaults, ids, output, log, budget, summary, watch, begun, requests)
            await run.execute(poll_s, stop or asyncio.Event())
    return summary


class _Result(NamedTuple):
    """A line's result: its number in the output, its call in the ledger, and its record."""

    number: int

    line: BatchLine
    call: Call
    record: Record


@dataclass(slots=True)
class _JobRun:
    """One run; its attributes are the arguments of :func:`run_jobs`, opened."""

    client: AsyncOpenAI
    source: str | Path | BinaryStream
    defaults: BatchDefaults
    ids: LineIndex
    output: RecordFile
    log: JobLog
    budget: BatchBudget
    summary: BatchSummary
    watch: Callable[[BatchSummary], None]
    begun: float
    requests: LineRequests
    sent: set[str] = field(default_factory=set)

    async def execute(self, poll_s: float, stop: asyncio.Event) -> None:
        """Send the lines that no job has, and wait for all jobs."""
        await self.client.core.pipeline.ensure_recording()
        for job in self.log.open_jobs:
            if (found := await self._found(job)) is not None:
                self.sent.update(line.key for line in found.named_lines().values())
                self.budget.reserve(found.reserved)
        await self._send_lines(stop)
        while self.log.open_jobs:
            for job in self.log.open_jobs:
                await self._collect(job)
            if self.log.open_jobs:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), poll_s)
                if stop.is_set():
                    self._stop("the jobs go on at the provider; run it again to collect them")
                    break
        self.summary.seconds = time.monotonic() - self.begun

    async def _found(self, job: VendorJob) -> VendorJob | None:
        """Return a job of an earlier run with its id; None if it was never created."""
        if job.id is not None:
            return job
        identity = await api_of(self.client.core, job.provider).find(job)
        if identity is None:
            self._close(job)
            return None
        return self.log.created(job, identity)

    # Sending

    async def _send_lines(self, stop: asyncio.Event) -> None:
        groups: dict[tuple[str, ...], LineGroup] = {}
        try:
            async for line in self._lines():
                if stop.is_set():
                    break
                if line.request is None:
                    await self._write(refused_record(line))
                    continue
                placed = await self.requests.placed(line)
                estimate = self._reserve(line.request)
                group = groups.get(placed.key)
                if group is not None and group.is_full_for(placed):
                    await self._create(groups.pop(placed.key))
                    group = None
                if group is None:
                    group = groups[placed.key] = LineGroup(placed.api, placed.provider)
                group.add(line, placed, estimate)
        except BudgetExceededError as error:
            self._stop(str(error))
        for group in groups.values():
            await self._create(group)

    async def _lines(self) -> AsyncIterator[BatchLine]:
        """Yield the lines that no record and no open job has, each id once."""
        async for number, raw, end in numbered_lines(self.source):
            self.summary.read_bytes = end
            line = parse_line(number, raw, self.defaults)
            first = None if line.problem is not None else self.ids.add_line(line.key, number)
            if first is not None:
                line = duplicate_line(line, first)
            if self.ids.is_done(line.key):
                self.summary.skipped += 1
            elif line.key not in self.sent:
                yield line

    def _reserve(self, request: Request) -> Decimal:
        """Reserve the estimate of a line; return it.

        Raises:
            BudgetExceededError: the line could exceed the limit.
            ConfigurationError: there is a limit, but no price for the model.
        """
        estimate = self.budget.estimate(request)
        if self.budget.limit is not None and estimate is None:
            raise ConfigurationError(f"no price is known for {request.model}, so a limit cannot be enforced")
        self.budget.fits(estimate, alone=True)
        self.budget.reserve(estimate)
        return estimate or Decimal(0)

    async def _create(self, group: LineGroup) -> None:
        names = tuple((line.number, line.kind, line.id) for line in group.lines)
        job = VendorJob(secrets.token_hex(8), group.provider, names, datetime.now(UTC), group.reserved)
        self.log.note(job)
        if self.requests.late is not None:
            try:
                await self.requests.late.hold(job.token, group.bounds)
            except BudgetExceededError as error:
                self.log.close_job(job)
                self._stop(str(error))
                return
        self.log.created(job, await group.api.create(job, group.requests))

    # Collecting

    async def _collect(self, job: VendorJob) -> None:
        """Write and book the results of a job if it has ended."""
        assert job.id is not None
        api = api_of(self.client.core, job.provider)
        status = await api.status(job.id)
        if not status.ended:
            return
        left = job.named_lines()
        for output in status.outputs:
            await self._read(job, api, output, left)
        await self._refuse_left(left, status)
        self._close(job)

    def _close(self, job: VendorJob) -> None:
        """Release what budgets hold for a job, and note that it has ended."""
        if self.requests.late is not None:
            self.requests.late.release(job.token)
        self.log.close_job(job)

    async def _read(self, job: VendorJob, api: VendorApi, output: str, left: dict[str, BatchLine]) -> None:
        endpoint = self.client.core.pipeline.destinations.get(job.provider)
        assert isinstance(endpoint, Endpoint)
        results: list[_Result] = []
        number = -1
        async with aclosing(api.read(output)) as pieces:
            async for raw in _lines_of(pieces):
                found = parse_output(raw)
                if found is None:
                    continue
                number += 1
                line = left.pop(found.custom_id, None)
                if line is None:
                    continue
                call = record_of(
                    found,
                    endpoint,
                    self.client.core.shared.prices,
                    scope=output,
                    job=job.id or "",
                    tags=self.defaults.tags,
                    at=job.noted,
                )
                results.append(_Result(number, line, call, _record(line, found, call, endpoint)))
                if len(results) >= _AT_ONCE:
                    await self._keep(job.provider, output, results)
                    results = []
        await self._keep(job.provider, output, results)

    async def _keep(self, provider: str, output: str, results: Sequence[_Result]) -> None:
        """Book and charge results, then write the records that the output file does not have yet."""
        await self.client.core.pipeline.report_all([each.call for each in results])
        if self.requests.late is not None and results:
            charged = [(each.number, each.call) for each in results]
            await self.requests.late.charge(output_name(provider, output), charged)
        for _, line, call, record in results:
            if self.ids.is_done(line.key):  # written by an earlier run, which did not get to the end
                continue
            if record.ok:
                self.summary.unpriced += call.cost.total is None
                self.summary.cost += call.cost.total or 0
            await self._write(record)

    async def _refuse_left(self, left: Mapping[str, BatchLine], status: JobStatus) -> None:
        reason = status.problem or "the job ended without a result of the line"
        for line in left.values():
            if not self.ids.is_done(line.key):
                await self._write(unanswered_record(line, "no_result", reason))

    async def _write(self, record: Record) -> None:
        await self.output.write(record.line(), time.monotonic())
        self.summary.add(record)
        self.summary.seconds = time.monotonic() - self.begun
        self.watch(self.summary)

    def _stop(self, reason: str) -> None:
        self.summary.stopped = self.summary.stopped or reason


def _record(line: BatchLine, found: BatchOutput, call: Call, endpoint: Endpoint) -> Record:
    answer = None if found.body is None else decoded_answer(found.body, endpoint)
    if answer is None:
        reason = found.error or "unreadable_answer"
        return unanswered_record(line, reason, "the batch job has no answer to this line", call)
    answer.attach_meta(call)
    return answered_record(line, answer)


async def _lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a body; the last one may lack its line break."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
    yield rest
