"""``specclient config``: the configuration."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient config --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "init": ("specclient_cli.config.init:command", "Write a specclient.toml that explains every setting."),
    "show": ("specclient_cli.config.show:command", "Show every setting with its value and source."),
    "check": (
        "specclient_cli.config.check:command",
        "Check the file, the ledger, the keys, the engine, local models and fleets.",
    ),
}


@click.group(name="config", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Write, show and check the configuration.

    Arguments override environment variables, which override specclient.toml, which overrides defaults. The
    file is $SPECCLIENT_CONFIG, else specclient.toml in the working folder, else the one in the user's
    configuration folder.

    \b
    Examples:
      specclient config init
      specclient config show
    """
