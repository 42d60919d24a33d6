"""``specclient local train``: training of drafts and heads."""

from __future__ import annotations

import click

from specclient_cli.common.lazy_group import CommandTable, LazyGroup

#: The commands in the order of ``specclient local train --help``: the location of each, and its help line.
COMMANDS: CommandTable = {
    "draft": (
        "specclient_cli.local.train.draft:command",
        "Train a draft model for a target on your texts.",
    ),
    "heads": (
        "specclient_cli.local.train.heads:command",
        "Train Medusa, EAGLE or P-EAGLE heads for a frozen target.",
    ),
}


@click.group(name="train", cls=LazyGroup, commands_table=COMMANDS)
def command() -> None:
    """Train a draft model, or Medusa, EAGLE or P-EAGLE heads, for a target.

    The training data are answers of the target itself.

    \b
    Examples:
      specclient local train draft --data ./our-code --out ./our-draft
      specclient local train heads --kind eagle3 --out ./eagle3
      specclient local train heads -m ./llama-3.2-1b --kind medusa --out ./medusa
    """
