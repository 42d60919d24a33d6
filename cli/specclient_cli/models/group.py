"""``specclient models``: providers and models."""

from __future__ import annotations

import click

from specclient_cli.common import options
from specclient_cli.common.lazy_group import CommandTable, LazyGroup
from specclient_cli.common.state import State

#: The commands in the order of ``specclient models --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "list": ("specclient_cli.models.list:command", "List the models that a provider serves."),
    "show": ("specclient_cli.models.show:command", "Show the prices and capabilities of a model."),
    "probe": (
        "specclient_cli.models.probe:command",
        "Send a few requests to find out what a model supports.",
    ),
}


@click.group(name="models", cls=LazyGroup, commands_table=COMMANDS, invoke_without_command=True)
@click.option(
    "--check",
    is_flag=True,
    help="Send a request to every provider that has its key, to see whether it answers.",
)
@options.json_option
@click.pass_context
def command(ctx: click.Context, check: bool, as_json: bool) -> None:
    """List providers, local models and the keys that are set.

    Without --check, nothing is sent. A key's value is never shown, only whether it is set and which
    environment variable it is read from. The full name of a model is PROVIDER/MODEL.

    Columns about speculation: the request fields that control it, the form in which responses report it, how
    an unfinished turn is continued (prefill), and how the tokens of a prompt are scored (verification). A
    wide terminal, a pipe or --json shows all columns.

    \b
    Examples:
      specclient models
      specclient models --check
      specclient models list openai
      specclient models show openai/gpt-4.1
      specclient models probe mine/llama

    Environment: SPECCLIENT_CONFIG, and the providers' keys.
    """
    if ctx.invoked_subcommand is not None:
        if check or as_json:
            raise click.UsageError(f"put the options of `models {ctx.invoked_subcommand}` after its name.")
        return
    from specclient_cli.models.overview import print_overview  # noqa: PLC0415 - keeps --help quick

    print_overview(ctx.ensure_object(State).async_client(), check=check, as_json=as_json)
