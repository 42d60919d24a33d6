"""Turn the name of what is to be trained into a run: ``specclient local train``."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient local train --help``: where each is, and its line there.
COMMANDS: CommandTable = {
    "draft": (
        "specclient_cli.local.train.draft:command",
        "Train a smaller model to draft for a target, on your texts.",
    ),
    "heads": ("specclient_cli.local.train.heads:command", "Train Medusa or EAGLE heads of a frozen target."),
}


@click.group(name="train", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Train what drafts for a target, on the target's own answers.

    \b
    Examples:
      specclient local train draft --data ./our-code --out ./our-draft
      specclient local train heads --kind eagle3 --out ./eagle3
      specclient local train heads -m ./llama-3.2-1b --kind medusa --out ./medusa
    """
