"""The program ``specclient``: its commands, exit codes and top-level error handling."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

import specclient
from specclient_cli.common.errors import INTERRUPTED, OK, PIPE_CLOSED, PROGRAM, describe, exit_code
from specclient_cli.common.lazy_group import CommandTable, LazyGroup
from specclient_cli.common.state import State

#: The commands in the order of ``specclient --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "demo": (
        "specclient_cli.demo:command",
        "Show plain and speculative decoding, routing, and the cost of both.",
    ),
    "complete": ("specclient_cli.complete:command", "Complete a text, or answer a prompt, with any model."),
    "chat": ("specclient_cli.chat:command", "Chat with any model."),
    "batch": ("specclient_cli.batch:command", "Run a file of prompts or requests concurrently."),
    "local": (
        "specclient_cli.local.group:command",
        "Run, measure and train models on this machine, without a server.",
    ),
    "serve": (
        "specclient_cli.serve.group:command",
        "Serve local models and all providers through the OpenAI HTTP API.",
    ),
    "fleet": (
        "specclient_cli.fleet.group:command",
        "Run a pair of models on several replicas of vLLM, with Ray Serve.",
    ),
    "models": (
        "specclient_cli.models.group:command",
        "List providers, local models and the keys that are set.",
    ),
    "route": ("specclient_cli.route.group:command", "Explain, list and simulate routing decisions."),
    "feedback": ("specclient_cli.feedback:command", "Score the answer of a call."),
    "cost": ("specclient_cli.cost.group:command", "Report what calls used and cost, and estimate costs."),
    "cache": (
        "specclient_cli.cache.group:command",
        "Show or clear the answers that the response cache keeps.",
    ),
    "config": ("specclient_cli.config.group:command", "Write, show and check the configuration."),
    "completion": (
        "specclient_cli.completion:command",
        "Print a script for shell completion.",
    ),
}


class RootGroup(LazyGroup):
    """The root group; it ends quietly if the reader of the output closes the pipe."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_output()
            ctx.exit(PIPE_CLOSED)


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
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(specclient.__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, config: Path | None, debug: bool) -> None:
    """An OpenAI-compatible client that routes prompts to hosted or local speculative decoding and records
    the cost of every token. The bundled model, local/demo, needs no key and no network.

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
      2  wrong usage                  5  the budget is exhausted
                                    130  interrupted
                                    141  the output pipe was closed

    \b
    Environment:
      SPECCLIENT_CONFIG   the configuration file
      SPECCLIENT_LEDGER   the ledger's path or database URL, or 'off'
      SPECCLIENT_MODEL    the default model
      NO_COLOR            disables colors
      OPENAI_API_KEY, …   API keys; `specclient models` lists their names
    """
    state = ctx.ensure_object(State)
    state.config, state.debug = config, debug


def main() -> None:
    """Run the command line of this process. This is the entry point of the script ``specclient``."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a replaced stream may not be a text file
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Errors are printed on stderr.

    Args:
        arguments: the arguments after the program's name.
    """
    state = State()
    try:
        with _warnings_on_stderr():
            outcome = cli.main(list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=state)
        sys.stdout.flush()
    except BrokenPipeError:  # raised by the last flush
        _drop_output()
        return PIPE_CLOSED
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - every error becomes one line and an exit code
        if state.debug:
            traceback.print_exc()
        click.echo(f"{PROGRAM}: {describe(error)}", err=True)
        return exit_code(error)
    return outcome if isinstance(outcome, int) else OK


class _WarningHandler(logging.Handler):
    """Prints the library's warnings in the format of the command's own messages."""

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
    """Discard further output, so that Python reports no broken pipe at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
