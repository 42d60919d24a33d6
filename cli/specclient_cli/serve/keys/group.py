"""``specclient serve keys``: API keys of a server."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient serve keys --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "create": ("specclient_cli.serve.keys.create:command", "Make a key and print it once."),
    "list": (
        "specclient_cli.serve.keys.list:command",
        "List the keys with their limits and spending.",
    ),
    "revoke": ("specclient_cli.serve.keys.revoke:command", "Revoke a key permanently."),
}


@click.group(name="keys", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Make, list and revoke the API keys of a server.

    The ledger's database stores hashes of the keys, so a key is shown only once. All servers that use the
    same ledger accept a new key, and refuse a revoked key, within seconds. As soon as one key exists, every
    request requires a key.

    \b
    Examples:
      specclient serve keys create alice
      specclient serve keys list
      specclient serve keys revoke alice
    """
