"""Turn the name of what is to be trained into a run: ``specclient local train``."""

from __future__ import annotations

import importlib

import click

#: Every command with its line in ``specclient local train --help``, and its module.
COMMANDS = {
    "draft": "Train a smaller model to draft for a target, on your texts.",
    "heads": "Train Medusa or EAGLE heads of a frozen target.",
}


class Commands(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"specclient_cli.local_train_{name}").command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(name="train", cls=Commands)
def command() -> None:
    """Train what drafts for a target, on the target's own answers.

    \b
    Examples:
      specclient local train heads --kind eagle3 --out ./eagle3
      specclient local train heads -m ./llama-3.2-1b --kind medusa --out ./medusa
    """
