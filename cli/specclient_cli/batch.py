"""``specclient batch``: run a file of prompts or requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from specclient.batch import BatchSummary, run_file, run_jobs
from specclient.batch.jobs.job_runner import POLL_S
from specclient.batch.runner import GRACE_S
from specclient.client.async_client import AsyncOpenAI
from specclient.config import Settings
from specclient_cli.common import options, parameter_types, render
from specclient_cli.common.call_format import cost_text
from specclient_cli.common.errors import BUDGET, FAILED, INTERRUPTED, OK
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from rich.progress import Progress

PIPE = "-"


@click.command(name="batch")
@click.argument("source", type=click.Path(dir_okay=False))
@click.argument("out", type=click.Path(dir_okay=False))
@click.option(
    "-m",
    "--model",
    type=parameter_types.ModelName(),
    help="PROVIDER/MODEL for every line, even if the line names another. Default: the line's own model, else "
    "SPECCLIENT_MODEL, else default_model of the configuration, else local/demo.",
)
@click.option("--policy", type=parameter_types.PolicyName(), help="Route every line by this [policies.NAME].")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Number of lines in flight.",
)
@click.option(
    "--ordered",
    is_flag=True,
    help="Write records in the order of the lines; a slow line then delays the lines after it. Default: in "
    "the order in which they finish.",
)
@click.option(
    "--max-cost",
    type=parameter_types.DollarAmount(),
    help="Maximum dollars for all records of OUT. A line is not sent if it could exceed them.",
)
@click.option(
    "--retry-failed/--no-retry-failed",
    default=True,
    show_default=True,
    help="Retry lines that failed in an earlier run.",
)
@click.option(
    "--max-retries",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Maximum retries of a call within this run.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    help="Maximum tokens of an answer, for lines that set no maximum.",
)
@click.option(
    "--temperature",
    type=parameter_types.NonNegativeFloat(),
    help="Temperature for lines that set none; 0 always takes the most likely token.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["text", "chat"]),
    help="How to send plain prompts: as text to complete, or as user messages. Default: text for local "
    "models, chat for all others.",
)
@options.tag_option("Tag of every call in the ledger; may be repeated.")
@click.option(
    "--job",
    is_flag=True,
    help="Send the lines as batch jobs of their providers (Anthropic, OpenAI and providers with its API), "
    "which cost less and may take a day. OUT.jobs notes the jobs.",
)
@click.option(
    "--poll",
    type=click.FloatRange(min=0.0, min_open=True),
    show_default=f"{POLL_S:g}",
    metavar="SECONDS",
    help="Seconds between two looks at the jobs of --job.",
)
@click.option("--quiet", is_flag=True, help="Do not show progress.")
@pass_state
def command(state: State, /, **given: Any) -> int:
    """Run a file of prompts or requests concurrently.

    SOURCE has one JSON object per line; OUT gets one record for each. Either may be - for stdin or stdout.
    Lines are read and records are written as calls finish, so a file may be larger than memory.

    A plain line is {"prompt": ...} or {"messages": [...]}, with any other parameters of the call and an
    optional "id" (default: the line number). Its record is {"id", "output", "usage", "cost", "error"}.

    A line of an OpenAI batch file is {"custom_id", "method", "url", "body"}, for chat completions,
    completions, embeddings and responses. Its record is that of OpenAI, {"id", "custom_id", "response",
    "error"}, with an added "cost".

    To resume after a crash, Ctrl-C, a power failure or an exhausted budget, run the command again with the
    same SOURCE and OUT. Answered lines are skipped, an incomplete line at the end of OUT is repaired, and
    failed lines are retried. Only lines that were in flight can be sent twice. The first Ctrl-C lets lines in
    flight finish within 30 s; the second cancels them. With --job, Ctrl-C leaves the jobs to the provider,
    and the next run collects them; no line is sent or booked twice.

    \b
    Examples:
      specclient batch prompts.jsonl answers.jsonl -m local/demo
      specclient batch in.jsonl out.jsonl --concurrency 32 --max-cost 2.50
      specclient batch in.jsonl out.jsonl --job -m openai/gpt-4.1-mini
      jq -c '{prompt: .q}' faq.json | specclient batch - - -m openai/gpt-4.1-mini

    \b
    Exit codes: 0 every line was answered; 1 some failed; 5 the budget is
    exhausted; 130 interrupted.

    Environment: SPECCLIENT_MODEL, SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys.
    """
    settings = state.settings()
    if given["policy"] is not None and given["model"] not in (None, parameter_types.AUTO):
        raise click.UsageError(f"a policy chooses the model, so -m {given['model']} cannot be given with it.")
    _check_job(given)
    try:
        return asyncio.run(_run(settings, given))
    except asyncio.CancelledError:  # by a second signal
        raise KeyboardInterrupt from None


def _check_job(given: Mapping[str, Any]) -> None:
    """Refuse what batch jobs of providers cannot do.

    Raises:
        click.UsageError: naming the option.
    """
    if not given["job"]:
        if given["poll"] is not None:
            raise click.UsageError("--poll is for --job; pass --job, or leave it out.")
        return
    if given["policy"] is not None:
        raise click.UsageError(
            f"--job cannot be given with --policy {given['policy']}, since a job is for a named model; pass "
            "-m PROVIDER/MODEL."
        )
    if given["ordered"]:
        raise click.UsageError("--job cannot be given with --ordered: records are written as jobs end.")
    if given["out"] == PIPE:
        raise click.UsageError(
            f"OUT is {PIPE}, and --job needs a file, beside which OUT.jobs notes the jobs."
        )


async def _run(settings: Settings, given: Mapping[str, Any]) -> int:
    stop = asyncio.Event()
    params = {name: given[name] for name in ("max_tokens", "temperature") if given[name] is not None}
    with _source(given["source"]) as source, _signals_stop(stop):
        async with AsyncOpenAI(config=settings, max_retries=given["max_retries"]) as client:
            with _BatchProgress(_size(source), wanted=not given["quiet"]) as bar:
                shared: dict[str, Any] = {
                    "client": client,
                    "model": given["model"],
                    "tags": dict(given["tags"]),
                    "params": params,
                    "form": given["form"],
                    "max_cost": given["max_cost"],
                    "retry_failed": given["retry_failed"],
                    "stop": stop,
                    "watch": bar.show,
                }
                if given["job"]:
                    summary = await run_jobs(source, given["out"], poll_s=given["poll"] or POLL_S, **shared)
                else:
                    summary = await run_file(
                        source,
                        sys.stdout.buffer if given["out"] == PIPE else given["out"],
                        policy=given["policy"],
                        concurrency=given["concurrency"],
                        ordered=given["ordered"],
                        **shared,
                    )
    _report(summary)
    if stop.is_set() and summary.stopped:
        return INTERRUPTED
    if summary.stopped:
        return BUDGET
    return FAILED if summary.failed or summary.failed_before else OK


def _size(source: Any) -> int | None:
    """Return the size of a source in bytes; None if it is unknown."""
    path = Path(source) if isinstance(source, str) else None
    return path.stat().st_size if path is not None and path.is_file() else None


@contextlib.contextmanager
def _source(name: str) -> Iterator[Any]:
    """Yield the source: a path, or a duplicate of stdin.

    It is a duplicate because a thread may still block on it at exit, and the interpreter would wait for that
    thread when it closes ``sys.stdin``.
    """
    if name != PIPE:
        yield name
        return
    yield os.fdopen(os.dup(sys.stdin.fileno()), "rb", closefd=False)


@contextlib.contextmanager
def _signals_stop(stop: asyncio.Event) -> Iterator[None]:
    """Stop the batch at the first signal, and cancel it at the second."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
            return
        stop.set()
        click.echo(
            f"\nstopping: calls in flight have {GRACE_S:.0f} s to finish; press again to cancel them",
            err=True,
        )

    numbers = (signal.SIGINT, signal.SIGTERM)
    with contextlib.suppress(NotImplementedError):  # Windows
        for number in numbers:
            loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            for number in numbers:
                loop.remove_signal_handler(number)


class _BatchProgress:
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


def _report(
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
