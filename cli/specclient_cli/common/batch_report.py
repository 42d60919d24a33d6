"""The progress and the result of a batch on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from specclient.batch import BatchSummary
from specclient_cli.common import render
from specclient_cli.common.call_format import cost_text

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["BatchProgress", "report_batch"]


class BatchProgress:
    """Progress display on a terminal: lines, rate, cost and remaining time.

    Args:
        size: size of the source in bytes; None if it is unknown.
        wanted: False shows nothing.
    """

    def __init__(self, size: int | None, *, wanted: bool) -> None:
        self._progress = _progress(size) if wanted and render.console(stderr=True).is_terminal else None
        self._size = size

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task("batch", total=self._size, status="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, summary: BatchSummary) -> None:
        """Update the display."""
        if self._progress is not None:
            self._progress.update(self._task, completed=summary.read_bytes, status=_status(summary))


def _progress(size: int | None) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    left = [TimeRemainingColumn(compact=True)] if size is not None else []
    columns = (BarColumn(bar_width=None), TextColumn("{task.fields[status]}", markup=False), *left)
    return Progress(*columns, console=render.console(stderr=True), transient=True, expand=True)


def _status(summary: BatchSummary) -> str:
    lines = summary.answered + summary.failed
    rate = lines / summary.seconds if summary.seconds else 0.0
    failed = f", {summary.failed} failed" if summary.failed else ""
    return f"{lines} lines{failed} · {rate:.1f}/s · {_cost(summary)}"


def _cost(summary: BatchSummary) -> str:
    if summary.unpriced and not summary.cost:
        return "unpriced"
    more = f" and {summary.unpriced} unpriced" if summary.unpriced else ""
    return cost_text(summary.cost if summary.cost else Decimal(0)) + more


def report_batch(
    summary: BatchSummary, to: Callable[[str], None] = lambda text: click.echo(text, err=True)
) -> None:
    """Print the result on stderr, with the reasons of failed lines."""
    before = [f"{summary.skipped} done before"] if summary.skipped else []
    parts = [f"{summary.answered} answered", f"{summary.failed} failed", *before, _cost(summary)]
    to(" · ".join([*parts, f"{summary.seconds:.1f} s"]))
    for reason, (count, numbers) in sorted(summary.reasons.items(), key=lambda each: -each[1][0]):
        lines = ", ".join(map(str, sorted(numbers))) + (", …" if count > len(numbers) else "")
        to(f"  {count} × {render.printable(reason)} (line{'s' if count > 1 else ''} {lines})")
    if summary.failed_before:
        to(f"  {summary.failed_before} failed in earlier runs and were not retried (--no-retry-failed)")
    if summary.stopped:
        to(summary.stopped)
