"""``specclient cache``: the answers that the response cache keeps."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient cache --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "stats": (
        "specclient_cli.cache.stats:command",
        "Show how many answers are kept, their size, and what they saved.",
    ),
    "clear": ("specclient_cli.cache.clear:command", "Remove all kept answers."),
}


@click.group(name="cache", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Show or clear the answers that the response cache keeps.

    Calls use the cache with cache=True, with the header x-specclient-cache of a server, or all of them with
    enabled = true under [cache] in specclient.toml.

    \b
    Examples:
      specclient cache stats
      specclient cache stats --json
      specclient cache clear
    """
