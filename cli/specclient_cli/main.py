"""Turn the words of a command line into one command's work and an exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

import specclient
from specclient_cli.common.errors import INTERRUPTED, OK, PIPE_CLOSED, PROGRAM, describe, exit_code
from specclient_cli.common.lazy_group import CommandTable, LazyGroup
from specclient_cli.common.state import State

#: The commands in the order of ``specclient --help``: where each is, and its line there.
COMMANDS: CommandTable = {
    "demo": (
        "specclient_cli.demo:command",
        "Show plain and speculative decoding side by side, routing, and what it cost.",
    ),
    "complete": ("specclient_cli.complete:command", "Continue a text, or answer it, with any model."),
    "chat": ("specclient_cli.chat:command", "Talk with any model."),
    "batch": ("specclient_cli.batch:command", "Answer a file of prompts or requests, many at a time."),
    "local": (
        "specclient_cli.local.group:command",
        "Run, time and plan models on this machine, without a server.",
    ),
    "serve": (
        "specclient_cli.serve.group:command",
        "Serve the engine and every provider behind OpenAI's HTTP routes.",
    ),
    "models": (
        "specclient_cli.models.group:command",
        "List providers and local models, and which keys are set.",
    ),
    "route": ("specclient_cli.route.explain:command", "See where a prompt would go, and why."),
    "cost": ("specclient_cli.cost.group:command", "Sum up what calls used and cost."),
    "config": ("specclient_cli.config.group:command", "Write, show and check the configuration."),
    "completion": (
        "specclient_cli.completion:command",
        "Print the script that completes commands in a shell.",
    ),
}


class RootGroup(LazyGroup):
    """All commands; a reader of the output that goes away ends one, and completion imports none."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_output()
            ctx.exit(PIPE_CLOSED)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=RootGroup,
    commands_table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Configuration file to read instead of searching for one.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.version_option(specclient.__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, config: Path | None, debug: bool) -> None:
    """An OpenAI-compatible client that routes prompts to speculative decoding, hosted or local, and accounts
    for every token. Needs no key and no network for the bundled model, local/demo.

    \b
    Examples:
      specclient demo
      specclient complete "def fibonacci(n):" -m local/demo --stream
      specclient route explain "def fibonacci(n):" --minimize latency
      specclient cost report --by model --since 7d

    \b
    Exit codes:
      0  done                         3  configuration, key or ledger
      1  a call failed                4  no route satisfies the policy
      2  wrong usage                  5  the budget is spent
                                    130  interrupted
                                    141  the reader of the output went away

    \b
    Environment:
      SPECCLIENT_CONFIG   the configuration file
      SPECCLIENT_LEDGER   the ledger's path or database URL, or 'off'
      SPECCLIENT_MODEL    the model where none is named
      NO_COLOR            no colours
      OPENAI_API_KEY, …   keys; `specclient models` lists the names
    """
    state = ctx.ensure_object(State)
    state.config, state.debug = config, debug


def main() -> None:
    """Run the command line of this process; the script ``specclient``."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a stream that is no text file keeps its own ways
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; whatever goes wrong is told on stderr."""
    state = State()
    try:
        with _warnings_on_stderr():
            outcome = cli.main(list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=state)
        sys.stdout.flush()
    except BrokenPipeError:  # what was still in the buffer
        _drop_output()
        return PIPE_CLOSED
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the rim: everything becomes one line and a code
        if state.debug:
            traceback.print_exc()
        click.echo(f"{PROGRAM}: {describe(error)}", err=True)
        return exit_code(error)
    return outcome if isinstance(outcome, int) else OK


class _WarningHandler(logging.Handler):
    """Lets the library's warnings read as the command's own."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{PROGRAM}: {record.getMessage()}", err=True)


@contextlib.contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    logger, handler = logging.getLogger("specclient"), _WarningHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _drop_output() -> None:
    """Keep Python from complaining at exit that nobody reads any more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
