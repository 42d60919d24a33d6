"""``specclient batch``: run a file of prompts or requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specclient.batch import run_file, run_jobs
from specclient.batch.jobs.job_runner import POLL_S
from specclient.batch.runner import GRACE_S
from specclient.client.async_client import AsyncOpenAI
from specclient.config import Settings
from specclient.errors import EngineError
from specclient_cli.common import options, parameter_types
from specclient_cli.common.batch_report import BatchProgress, report_batch
from specclient_cli.common.errors import BUDGET, FAILED, INTERRUPTED, OK
from specclient_cli.common.fleet_settings import fleet_of_settings
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient_local.fleets.fleet import Fleet

PIPE = "-"
_CONCURRENCY = 8


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
    show_default=f"{_CONCURRENCY}; with --on ray, what the replicas serve at a time",
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
@click.option(
    "--on",
    type=click.Choice(["ray"]),
    help="Send the calls by Ray Data from the nodes of the fleet that -m names; needs Ray (extra 'ray').",
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

    With --on ray, the calls of -m FLEET/auto or FLEET/POOL are sent by tasks of Ray Data on the nodes of the
    fleet's cluster. Records, resumption, retries, the ledger and --max-cost are the same.

    \b
    Examples:
      specclient batch prompts.jsonl answers.jsonl -m local/demo
      specclient batch in.jsonl out.jsonl --concurrency 32 --max-cost 2.50
      specclient batch in.jsonl out.jsonl --job -m openai/gpt-4.1-mini
      specclient batch in.jsonl out.jsonl --on ray -m big/auto
      jq -c '{prompt: .q}' faq.json | specclient batch - - -m openai/gpt-4.1-mini

    \b
    Exit codes: 0 every line was answered; 1 some failed; 5 the budget is
    exhausted; 130 interrupted.

    Environment: SPECCLIENT_MODEL, SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, RAY_ADDRESS, and the providers'
    keys.
    """
    settings = state.settings()
    if given["policy"] is not None and given["model"] not in (None, parameter_types.AUTO):
        raise click.UsageError(f"a policy chooses the model, so -m {given['model']} cannot be given with it.")
    _check_job(given)
    fleet = _fleet_of(state, given) if given["on"] == "ray" else None
    try:
        return asyncio.run(_run(settings, given, fleet))
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


def _fleet_of(state: State, given: Mapping[str, Any]) -> Fleet:
    """Return the fleet whose cluster sends the calls.

    Raises:
        click.UsageError: the model is not a fleet's, or the calls are those of batch jobs.
        CheckpointError, ConfigurationError: the fleet's table is invalid.
    """
    if given["job"]:
        raise click.UsageError("--on ray cannot be given with --job, whose calls are made by providers.")
    model = given["model"]
    name = (model or "").partition("/")[0]
    fleets = state.settings().fleets
    if name not in fleets:
        known = f"configured are {', '.join(fleets)}" if fleets else "add a table [fleets.NAME]"
        got = f"-m {model} names none" if model else "-m is not given"
        raise click.UsageError(
            f"--on ray needs -m FLEET/auto or FLEET/POOL with a fleet, and {got}; {known}."
        )
    return fleet_of_settings(name, fleets[name])


@contextlib.asynccontextmanager
async def _client(
    settings: Settings, given: Mapping[str, Any], fleet: Fleet | None, stop: asyncio.Event
) -> AsyncIterator[AsyncOpenAI]:
    """Yield the client of the batch.

    Raises:
        EngineError: Ray's program ended before the batch did.
    """
    options: dict[str, Any] = {"config": settings, "max_retries": given["max_retries"]}
    if fleet is None:
        async with AsyncOpenAI(**options) as client:
            yield client
        return
    from specclient_cli.common.ray_transport import ray_client  # noqa: PLC0415 - with fleets alone

    async with (
        ray_client(fleet, stop.set) as (http_client, transport),
        AsyncOpenAI(http_client=http_client, **options) as client,
    ):
        yield client
        if transport.failure is not None:
            raise EngineError(f"Ray: {transport.failure}; run the command again to resume")


async def _run(settings: Settings, given: Mapping[str, Any], fleet: Fleet | None) -> int:
    stop = asyncio.Event()
    params = {name: given[name] for name in ("max_tokens", "temperature") if given[name] is not None}
    with _source(given["source"]) as source, _signals_stop(stop):
        async with _client(settings, given, fleet, stop) as client:
            with BatchProgress(_size(source), wanted=not given["quiet"]) as bar:
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
                        concurrency=given["concurrency"] or (fleet.capacity if fleet else _CONCURRENCY),
                        ordered=given["ordered"],
                        **shared,
                    )
    report_batch(summary)
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
