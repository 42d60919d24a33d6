"""Turn a file of lines into a file of records, going on where an earlier run has ended."""

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
from specclient.types.route import Policy

_REASONS, _NUMBERS, _LONGEST = 20, 3, 200


@dataclass(slots=True)
class BatchSummary:
    """How a batch stands.

    Attributes:
        answered, failed: lines of this run; ``skipped``: lines that earlier runs have done, of which
            ``failed_before`` failed, and were not to be tried again.
        cost: dollars, those of earlier runs included; ``unpriced``: answers whose cost is unknown, and not in
            it.
        seconds: of this run.
        read_bytes: of the source.
        reasons: why lines failed: how many, and the numbers of the first.
        stopped: why not all lines were sent, in words; None where they were.
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
    """Serve the lines of a file and append a record of each to another; again, for those that are missing.

    Lines whose records are in ``out`` already are left alone, if they were answered; a line is known by its
    ``custom_id`` or ``id``, else by its number. See :mod:`specclient.batch.writer` for what a kill or a power
    cut may lose. With ``ordered``, lines that are tried again come after those that were done before.

    Args:
        out: a path; or a binary stream, from which nothing can be resumed, as from a path that is no file.
        max_cost: dollars, for all records in ``out`` together.
        retry_failed: whether lines that failed before are tried again.
        watch: told how the batch stands, after every record.

    Other arguments are those of :func:`specclient.batch.run`.

    Raises:
        ConfigurationError: an unusable argument or file, or ``max_cost`` with a model whose price is unknown.
    """
    begun = time.monotonic()
    with closing(LineIndex()) as ids, closing(_open(source, out, ids, retry_failed=retry_failed)) as output:
        summary = BatchSummary(failed_before=output.before.failed)
        async with AsyncOpenAI() if client is None else nullcontext(client) as own:
            ask = batch_defaults(
                own.settings, model=model, policy=policy, form=form, params=params, tags=tags
            )
            running = BatchRunner(
                own.core,
                source,
                ask,
                concurrency=concurrency,
                ordered=ordered,
                max_cost=max_cost,
                spent=output.before.cost,
                ids=ids,
                grace_s=grace_s,
            )

            def stand() -> None:
                summary.skipped, summary.read_bytes = running.skipped, running.read_bytes
                summary.cost, summary.unpriced = running.budget.spent, running.budget.unpriced
                summary.seconds = time.monotonic() - begun

            try:
                async with aclosing(running.records(stop)) as records:
                    async for record in records:
                        await output.write(record.line(), time.monotonic())
                        summary.add(record)
                        stand()
                        watch(summary)
            except BudgetExceededError as error:
                summary.stopped = str(error)
            stand()
    if not running.complete and summary.stopped is None:
        summary.stopped = "interrupted; run it again to go on"
    return summary


def _open(
    source: str | Path | BinaryStream, out: str | Path | BinaryIO, ids: LineIndex, *, retry_failed: bool
) -> RecordFile | RecordStream:
    """Open what records are written to.

    Raises:
        ConfigurationError: it cannot be, or it is the source.
    """
    if not isinstance(out, str | Path):
        return RecordStream(out)
    path = Path(out)
    if isinstance(source, str | Path):
        if not Path(source).exists():
            raise ConfigurationError(f"there is no file {source}")
        if path.exists() and path.samefile(source):
            raise ConfigurationError(f"{out} holds the lines, so records cannot be written there")
    if path.exists() and not path.is_file():
        try:
            return RecordStream(path.open("wb"), owned=True)
        except OSError as error:
            raise ConfigurationError(f"cannot write {out}: {error.strerror or error}") from None
    return RecordFile(path, ids, retry_failed=retry_failed)
