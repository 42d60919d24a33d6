"""Turn a table of commands, a line each, into a group that imports each one when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class Lazy(click.Group):
    """A group whose commands are imported when they are used, so that help and completion stay quick.

    Args:
        lines: every command with its line in the group's help, in order.
        module: where one is, as ``specclient_cli.local_{}``; its module has it as ``command``.
    """

    def __init__(self, *args: Any, lines: Mapping[str, str], module: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lines = lines
        self._module = module

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.lines)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.lines:
            return None
        module = importlib.import_module(self._module.format(name.replace("-", "_")))
        command: click.Command = module.command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.lines.items()))
