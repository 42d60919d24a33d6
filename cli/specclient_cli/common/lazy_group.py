"""A Click group that imports each of its commands on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["CommandTable", "LazyGroup"]

#: Command name -> its location (``package.module:attribute``) and its line in the group's help.
CommandTable = Mapping[str, tuple[str, str]]


class LazyGroup(click.Group):
    """A group that imports no command for its help text or for shell completion.

    Args:
        commands_table: the commands in the order of the help text.
    """

    def __init__(self, *args: Any, commands_table: CommandTable, **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands_table = commands_table

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the table."""
        return list(self.commands_table)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Import and return a command; None if the table does not list it."""
        if name not in self.commands_table:
            return None
        module, _, attribute = self.commands_table[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help lines of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.commands_table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions for the commands and for the group's own options."""
        commands = [
            CompletionItem(name, help=line)
            for name, (_, line) in self.commands_table.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)
