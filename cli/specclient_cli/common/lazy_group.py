"""A Click group that imports each of its commands when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["CommandTable", "LazyGroup"]

#: Name of a command -> where it is (``package.module:attribute``) and its line in the group's help.
CommandTable = Mapping[str, tuple[str, str]]


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that help and shell completion stay fast.

    Args:
        commands_table: the commands in the order of the help.
    """

    def __init__(self, *args: Any, commands_table: CommandTable, **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands_table = commands_table

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the table."""
        return list(self.commands_table)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Import a command by its name; None if the table does not list it."""
        if name not in self.commands_table:
            return None
        module, _, attribute = self.commands_table[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' help lines from the table, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.commands_table.items()])
